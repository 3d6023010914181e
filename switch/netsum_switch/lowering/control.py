# SPDX-License-Identifier: MIT
"""Controls: tables and conditions of a pipeline as nodes that lead to one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from netsum_switch.errors import JsonError, UnsupportedError
from netsum_switch.lowering.expressions import Expressions
from netsum_switch.lowering.primitives import Primitives
from netsum_switch.lowering.statements import Apply, Condition, Control, Direct, MeterRead, Node
from netsum_switch.lowering.values import Expression
from netsum_switch.program import Json, Program, selector_of

NodeName = str | None
"""A node's name; None is the end."""


def has_loop(graph: Mapping[str, Sequence[NodeName]], entry: NodeName) -> bool:
    """True if a node that can be reached from ``entry`` leads back to itself."""
    done: set[NodeName] = set()
    on_way: set[NodeName] = set()
    way: list[tuple[NodeName, Iterator[NodeName]]] = [(None, iter((entry,)))]  # a list: Python's calls are not as deep
    while way:
        node, rest = way[-1]
        for to in rest:
            if to in on_way:
                return True
            if to is not None and to not in done:
                on_way.add(to)
                way.append((to, iter(graph[to])))
                break
        else:
            way.pop()
            on_way.discard(node)
            done.add(node)
    return False


class Controls:
    """Lowers one pipeline."""

    def __init__(self, program: Program, expressions: Expressions, primitives: Primitives) -> None:
        self._program = program
        self._expressions = expressions
        self._primitives = primitives

    def lower(self, name: str) -> Control:
        pipeline = self._program.pipelines[name]
        nodes: dict[str, Node] = {each["name"]: self._table(each) for each in pipeline["tables"]}
        for each in pipeline["conditionals"]:
            condition = self._expressions.condition(each["expression"])
            nodes[each["name"]] = Condition(condition, each["true_next"], each["false_next"])
        for each in pipeline.get("action_calls") or []:
            nodes[each["name"]] = Direct(self._primitives.action(each["action_id"], []), each.get("next_node"))
        entry = pipeline["init_table"]
        graph = {each: following(node) for each, node in nodes.items()}
        for to in [entry, *(to for successors in graph.values() for to in successors)]:
            if to is not None and to not in nodes:
                raise JsonError(f"the control {name} has no node {to!r}")
        if has_loop(graph, entry):
            raise UnsupportedError(f"the control flow of {name} has a loop")
        return Control(name, entry, nodes)

    def _table(self, table: Json) -> Node:
        following: dict[str, str | None] = table["next_tables"]
        default = table.get("default_entry") or {}
        base: str | None = table.get("base_default_next")
        measured = table["with_counters"] or table.get("direct_meters") is not None
        if not table["key"] and default.get("action_entry_const") and not measured:
            action_id = default["action_id"]
            args = [self._expressions.values.constant(int(each, 16)) for each in default["action_data"]]
            if len(args) != len(self._program.actions[action_id]["runtime_data"]):
                raise JsonError(f"table {table['name']}: its default action has other parameters")
            name = next((each for at, each in self._actions(table) if at == action_id), None)
            if name is None:
                raise UnsupportedError(f"table {table['name']}: its default action is not one of its actions")
            after = following.get("__MISS__", following.get(name, base))
            return Direct(self._primitives.action(action_id, args), after)
        keys = [self._key(key) for key in table["key"]]
        by_hit = "__HIT__" in following or "__MISS__" in following
        actions = [(self._primitives.action(at), following.get(name, base)) for at, name in self._actions(table)]
        profile: str | None = table.get("action_profile")
        hit, miss = following.get("__HIT__", base), following.get("__MISS__", base)
        return Apply(
            table["name"],
            tuple(value for value, _ in keys),
            tuple(width for _, width in keys),
            bool(table["with_counters"]),
            self._meter(table),
            profile,
            selector_of(profile) if profile and "selector" in self._program.profiles[profile] else None,
            tuple(actions),
            hit,
            miss,
            by_hit,
            base,
        )

    def _meter(self, table: Json) -> MeterRead | None:
        """The reading of the meter beside each entry."""
        name = table.get("direct_meters")
        if name is None:
            return None
        target = self._expressions.variables.field(*self._program.meters[name]["result_target"])
        return MeterRead(target, name, self._expressions.values.row_number)

    @staticmethod
    def _actions(table: Json) -> list[tuple[int, str]]:
        return list(zip(table["action_ids"], table["actions"], strict=True))

    def _key(self, key: Json) -> tuple[Expression, int]:
        """A key field's value, which is 0 in a header that is not valid, and its width."""
        values, variables, target = self._expressions.values, self._expressions.variables, key["target"]
        if isinstance(target, str):
            return variables.valid(target), 1
        header, name = target
        field = variables.field(header, name)
        value: Expression = field
        mask = (1 << field.bits) - 1 if field.signed else None
        if key.get("mask") is not None:
            mask = int(key["mask"], 16)
        if mask is not None:
            value = values.operation("&", value, values.constant(mask))
        if name != "$valid$" and not self._program.headers[header].metadata:
            value = values.operation("?", variables.valid(header), value, values.zero)
        return value, field.bits


def following(node: Node) -> list[str | None]:
    """The nodes to which a node may lead."""
    if isinstance(node, Condition):
        return [node.yes, node.no]
    if isinstance(node, Direct):
        return [node.next]
    if node.by_hit:
        return [node.hit, node.miss]
    return [*(to for _, to in node.actions), node.otherwise]
