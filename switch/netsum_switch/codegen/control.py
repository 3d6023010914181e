"""Controls: tables and conditions of a pipeline as nested ``if``s."""

from __future__ import annotations

from netsum_switch.action_profile import MEMBER
from netsum_switch.codegen.expression import Code, Expressions, constant
from netsum_switch.codegen.flow import Branch, Node, write_structured
from netsum_switch.codegen.primitives import Primitives
from netsum_switch.codegen.source import Source, dirty_var, field_var, ident, valid_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.program import Json, Program, selector_of


def lookup_var(table: str) -> str:
    """The generated code's name for a table's lookup function."""
    return f"find_{ident(table)}"


def default_var(table: str) -> str:
    """The generated code's name for a table's default cell."""
    return f"default_{ident(table)}"


class Control:
    """Writes one pipeline."""

    def __init__(self, program: Program, name: str, expressions: Expressions, primitives: Primitives) -> None:
        pipeline = program.pipelines[name]
        self._program = program
        self._tables: dict[str, Json] = {table["name"]: table for table in pipeline["tables"]}
        self._conditions: dict[str, Json] = {each["name"]: each for each in pipeline["conditionals"]}
        self._entry: Node = pipeline["init_table"]
        self._name: str = pipeline["name"]
        self._expressions = expressions
        self._primitives = primitives

    def write(self, source: Source) -> None:
        """Write the control's code; ``exit`` leaves the loop that it is written in."""
        graph: dict[str, list[Node]] = {}
        for name, table in self._tables.items():
            graph[name] = list(dict.fromkeys([*table["next_tables"].values(), *self._fallback(table)]))
        for name, condition in self._conditions.items():
            graph[name] = [condition["true_next"], condition["false_next"]]

        def emit(node: str, join: Node, branch: Branch) -> None:
            if node in self._conditions:
                self._condition(source, self._conditions[node], join, branch)
            else:
                self._table(source, self._tables[node], join, branch)

        write_structured(graph, self._entry, emit, f"the control flow of {self._name}")

    @staticmethod
    def _fallback(table: Json) -> list[Node]:
        """Where a table leads when ``next_tables`` does not say, since it names an action that was removed."""
        known = "base_default_next" in table and "__HIT__" not in table["next_tables"]
        return [table["base_default_next"]] if known or not table["next_tables"] else []

    def _condition(self, source: Source, condition: Json, join: Node, branch: Branch) -> None:
        text = self._expressions.condition(condition["expression"])
        yes, no = condition["true_next"], condition["false_next"]
        if yes == join:
            with source.block(f"if not {text}:"):
                branch(no, join)
            return
        with source.block(f"if {text}:"):
            branch(yes, join)
        if no != join:
            with source.block("else:"):
                branch(no, join)

    def _table(self, source: Source, table: Json, join: Node, branch: Branch) -> None:
        following: dict[str, Node] = table["next_tables"]
        default = table.get("default_entry") or {}
        if not table["key"] and default.get("action_entry_const"):
            action_id = default["action_id"]
            data = [constant(int(each, 16)).text for each in default["action_data"]]
            self._primitives.action(source, action_id, self._primitives.arguments(action_id, data))
            after = following.get(
                "__MISS__", following.get(self._name_of(table, action_id), table.get("base_default_next"))
            )
            if after != join:
                branch(after, join)
            return
        self._lookup(source, table)
        head = "if"
        for index, (action_id, name) in enumerate(zip(table["action_ids"], table["actions"], strict=True)):
            if not self._program.actions[action_id]["primitives"] and following.get(name, join) == join:
                continue  # nothing to do
            with source.block(f"{head} action == {index}:"):
                count = len(self._program.actions[action_id]["runtime_data"])
                data = [f"row[{each + 2}]" for each in range(count)]
                self._primitives.action(source, action_id, self._primitives.arguments(action_id, data))
                if name in following and following[name] != join:
                    branch(following[name], join)
            head = "elif"
        if "__HIT__" in following or "__MISS__" in following:
            hit, miss = following.get("__HIT__", join), following.get("__MISS__", join)
            if hit != join:
                with source.block("if hit:"):
                    branch(hit, join)
            if miss != join:
                with source.block("else:" if hit != join else "if not hit:"):
                    branch(miss, join)

    def _lookup(self, source: Source, table: Json) -> None:
        values = [self._key(key) for key in table["key"]]
        wants_tuple = len(values) != 1 or table["match_type"] != "exact"
        key = f"({', '.join(values)}{',' if len(values) == 1 else ''})" if wants_tuple else values[0]
        source.line(f"row = {lookup_var(table['name'])}({key})" if values else "row = None")
        counts = "; entry = row[1]; entry.packets += 1; entry.bytes += received" if table["with_counters"] else ""
        uses_hit = "__HIT__" in table["next_tables"] or "__MISS__" in table["next_tables"]
        with source.block("if row is None:"):
            source.line(f"row = {default_var(table['name'])}[0]" + ("; hit = False" if uses_hit else ""))
        if uses_hit or counts or table.get("direct_meters") or table.get("action_profile"):
            with source.block("else:"):
                source.line(("hit = True" if uses_hit else "pass") + counts)
                self._meter(source, table)
                self._member(source, table)
        source.line("action = row[0]")

    def _member(self, source: Source, table: Json) -> None:
        """Of a table with an action profile an entry names a member, or a group that a hash chooses from."""
        profile = table.get("action_profile")
        if profile is None:
            return
        member = f"members_{ident(profile)}[row[2]]"
        if "selector" in self._program.profiles[profile]:
            value = self._primitives.calculation(selector_of(profile))
            member = f"{member} if row[0] == {MEMBER} else chosen_{ident(profile)}(row[2], {value})"
        source.line(f"row = {member}")

    def _meter(self, source: Source, table: Json) -> None:
        """The entry's meter colours the packet before the action runs."""
        name = table.get("direct_meters")
        if name is not None:
            header, field = self._program.meters[name]["result_target"]
            if not self._program.headers[header].metadata:
                source.line(f"{dirty_var(header)} = 1")
            colour = Code(f"meter_{ident(name)}(row[1].slot, received, now())", 2)
            self._primitives.store(source, {"type": "field", "value": [header, field]}, colour)

    def _key(self, key: Json) -> str:
        """A key field's value: 0 if its header is invalid."""
        target = key["target"]
        if isinstance(target, str):
            return field_var(target, "$valid$")
        header, name = target
        field = self._expressions.field(header, name)
        value = field_var(header, name)
        mask = (1 << field.width) - 1 if field.signed else None
        if key.get("mask") is not None:
            mask = int(key["mask"], 16)
        if mask is not None:
            value = f"{value} & {mask:#x}"
        if name != "$valid$" and not self._program.headers[header].metadata:
            value = f"({value} if {valid_var(header)} else 0)"
        return value

    @staticmethod
    def _name_of(table: Json, action_id: int) -> str:
        for each, name in zip(table["action_ids"], table["actions"], strict=True):
            if each == action_id:
                found: str = name
                return found
        raise UnsupportedError(f"table {table['name']}: its default action is not one of its actions")
