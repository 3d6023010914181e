"""Controls: tables and conditions of a pipeline as nested ``if``s."""

from __future__ import annotations

from netsum_switch.action_profile import MEMBER
from netsum_switch.codegen.source import Source, ident
from netsum_switch.codegen.statements import StatementWriter
from netsum_switch.lowering.control import Branch, NodeName, following, write_structured
from netsum_switch.lowering.program import Lowered
from netsum_switch.lowering.statements import Apply, Condition, Control, Direct


def lookup_var(table: str) -> str:
    """The generated code's name for a table's lookup function."""
    return f"find_{ident(table)}"


def default_var(table: str) -> str:
    """The generated code's name for a table's default cell."""
    return f"default_{ident(table)}"


def write_control(source: Source, lowered: Lowered, control: Control, writer: StatementWriter) -> None:
    """Write one control; ``exit`` leaves the loop that it is written in."""
    expressions = writer.expressions

    def emit(name: str, join: NodeName, branch: Branch) -> None:
        node = control.nodes[name]
        if isinstance(node, Condition):
            choose(expressions.condition(node.condition), node.yes, node.no, join, branch)
        elif isinstance(node, Direct):
            writer.action(source, node.action)
            if node.next != join:
                branch(node.next, join)
        else:
            _look_up(source, lowered, node, writer)
            apply(node, join, branch)

    def choose(condition: str, yes: NodeName, no: NodeName, join: NodeName, branch: Branch) -> None:
        if yes != join:
            with source.block(f"if {condition}:"):
                branch(yes, join)
        if no != join:
            with source.block("else:" if yes != join else f"if not {condition}:"):
                branch(no, join)

    def apply(node: Apply, join: NodeName, branch: Branch) -> None:
        head = "if"
        for index, (action, to) in enumerate(node.actions):
            leads = not node.by_hit and to != join
            if action.body or leads:
                with source.block(f"{head} action == {index}:"):
                    writer.action(source, action)
                    if leads:
                        branch(to, join)
                head = "elif"
        if node.by_hit:
            choose("hit", node.hit, node.miss, join, branch)
        elif node.otherwise != join:
            with source.block(f"{head} action < 0:"):
                branch(node.otherwise, join)

    graph = {name: following(node) for name, node in control.nodes.items()}
    write_structured(graph, control.entry, emit, f"the control flow of {control.name}")


def _look_up(source: Source, lowered: Lowered, node: Apply, writer: StatementWriter) -> None:
    """Set ``row`` to the entry's or the default action's code, ``action`` to the action's number and, if it matters, ``hit``."""
    values = [writer.expressions.value(each) for each in node.keys]
    table = next(
        each
        for pipeline in lowered.program.pipelines.values()
        for each in pipeline["tables"]
        if each["name"] == node.table
    )
    wants_tuple = len(values) != 1 or table["match_type"] != "exact"
    key = f"({', '.join(values)}{',' if len(values) == 1 else ''})" if wants_tuple else values[0]
    source.line(f"row = {lookup_var(node.table)}({key})" if values else "row = None")
    with source.block("if row is None:"):
        source.line(f"row = {default_var(node.table)}[0]" + ("; hit = False" if node.by_hit else ""))
    if node.by_hit or node.with_counters or node.on_hit or node.profile is not None:
        with source.block("else:"):
            if node.by_hit:
                source.line("hit = True")
            if node.with_counters:
                source.line("entry = row[1]; entry.packets += 1; entry.bytes += received")
            writer.statements(source, node.on_hit)
            if node.profile is not None:
                source.line(f"row = {_member(lowered, node.profile, node.selector, writer)}")
    source.line("action = row[0]")


def _member(lowered: Lowered, profile: str, selector: str | None, writer: StatementWriter) -> str:
    """Python for what an entry of a table with an action profile stands for: a member, or a group that a hash chooses from."""
    member = f"members_{ident(profile)}[row[2]]"
    if selector is None:
        return member
    value = writer.expressions.call(lowered.calculations[selector])
    return f"{member} if row[0] == {MEMBER} else chosen_{ident(profile)}(row[2], {value})"
