"""Primitives: one method writes one kind of primitive as Python. Truth: simple_switch's primitives.cpp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netsum_switch.codegen.expression import Code, Expressions
from netsum_switch.codegen.source import Source, dirty_var, field_var, ident, valid_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.program import FieldInfo, Json, Program

Params = list[Json]


class Primitives:
    """Writes actions. ``egress`` says which pipeline they run in: some primitives mean something else there."""

    def __init__(self, program: Program, expressions: Expressions, drop_port: int, *, egress: bool) -> None:
        self._program = program
        self._expressions = expressions
        self._drop_port = drop_port
        self._egress = egress
        self._writers: dict[str, Callable[[Source, Params, Sequence[Code]], None]] = {
            "assign": self._assign,
            "assign_header": self._assign_header,
            "add_header": self._add_header,
            "remove_header": self._remove_header,
            "register_read": self._register_read,
            "register_write": self._register_write,
            "count": self._count,
            "mark_to_drop": self._mark_to_drop,
            "drop": self._mark_to_drop,
            "modify_field_with_hash_based_offset": self._hash,
            "modify_field_rng_uniform": self._random,
            "generate_digest": self._digest,
            "clone_ingress_pkt_to_egress": self._clone,
            "clone_egress_pkt_to_egress": self._clone,
            "resubmit": self._resubmit,
            "recirculate": self._recirculate,
            "truncate": self._truncate,
            "exit": self._exit,
            "assert": self._assert,
            "assume": self._assert,
            "log_msg": self._log,
            "no_op": self._nothing,
            "noop": self._nothing,
        }

    def action(self, source: Source, action_id: int, row: str) -> None:
        """Write an action's body; its parameters are ``row[2]``, ``row[3]``, … (see table.py, `Code`)."""
        action = self._program.actions[action_id]
        args = [
            Code(f"{row}[{index + 2}]", parameter["bitwidth"]) for index, parameter in enumerate(action["runtime_data"])
        ]
        self.body(source, action["primitives"], args)

    def body(self, source: Source, primitives: Sequence[Json], args: Sequence[Code] = ()) -> None:
        """Write primitives one after the other."""
        touched: set[str] = set()
        for header in sorted(touched.union(*(self._touched(each["parameters"]) for each in primitives))):
            source.line(f"{dirty_var(header)} = 1")
        for index, primitive in enumerate(primitives):
            name, params = primitive["op"], primitive["parameters"]
            writer = self._writers.get(name)
            if writer is None:
                raise UnsupportedError(f"the program uses the primitive {name!r}; this switch does not run it")
            if name == "add_header":
                self._add_header(source, params, args, overwritten=self._overwritten(primitives[index + 1 :], params))
            else:
                writer(source, params, args)

    def _touched(self, params: Params) -> set[str]:
        """Packet headers whose bytes may no longer hold: those of the first parameter, where results go."""
        if not params:
            return set()
        kind, value = params[0]["type"], params[0].get("value")
        header = value[0] if kind == "field" and value else value if kind == "header" else None
        info = self._program.headers.get(header) if isinstance(header, str) else None
        return {info.name} if info is not None and not info.metadata else set()

    def _overwritten(self, following: Sequence[Json], params: Params) -> set[str]:
        """Fields of the header that the rest of the action sets before anything reads them: no need to clear those."""
        header = params[0]["value"]
        written: set[str] = set()
        for primitive in following:
            reads = str(primitive["parameters"][1:])
            if f"'{header}'" in reads:
                break
            target = primitive["parameters"][0] if primitive["parameters"] else {}
            if (
                primitive["op"] in ("assign", "register_read")
                and target.get("type") == "field"
                and target["value"][0] == header
            ):
                if primitive["op"] == "register_read":
                    continue  # does nothing outside the register
                written.add(target["value"][1])
        return written

    def store(self, source: Source, target: Json, code: Code) -> None:
        """Assign to a field."""
        header, name = target["value"]
        if name == "$valid$":
            source.line(f"{valid_var(header)} = {code.text}")
            return
        field: FieldInfo = self._program.fields[header, name]
        source.line(f"{field_var(header, name)} = {self._expressions.stored(field, code)}")

    def _value(self, node: Json, args: Sequence[Code]) -> Code:
        return self._expressions.compile(node, args)

    def _assign(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        if params[0]["type"] != "field":
            raise UnsupportedError(f"assignments to {params[0]['type']!r}")
        self.store(source, params[0], self._value(params[1], args))

    def _assign_header(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        to, of = params[0]["value"], params[1]["value"]
        source.line(f"{valid_var(to)} = {valid_var(of)}")
        pairs = zip(self._program.headers[to].fields, self._program.headers[of].fields, strict=True)
        with source.block(f"if {valid_var(of)}:"):
            for left, right in pairs:
                source.line(f"{field_var(to, left.name)} = {field_var(of, right.name)}")

    def _add_header(
        self, source: Source, params: Params, args: Sequence[Code], overwritten: frozenset[str] | set[str] = frozenset()
    ) -> None:
        header = self._program.headers[params[0]["value"]]
        with source.block(f"if not {valid_var(header.name)}:"):
            names = [field_var(header.name, field.name) for field in header.fields if field.name not in overwritten]
            if names:
                source.line(" = ".join(names) + " = 0")
            source.line(f"{valid_var(header.name)} = 1")
            source.line(f"length += {header.size}")

    def _remove_header(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        header = self._program.headers[params[0]["value"]]
        with source.block(f"if {valid_var(header.name)}:"):
            source.line(f"{valid_var(header.name)} = 0")
            source.line(f"length -= {header.size}")

    def _guard(self, name: str, index: Code, section: str) -> tuple[str, str]:
        """(array's variable, condition under which the index is inside; empty if it always is)."""
        array = next(each for each in self._program.json[section] if each["name"] == name)
        inside = index.bits is not None and 1 << index.bits <= array["size"]
        return ident(name), "" if inside else f"if {index.text} < {array['size']}: "

    def _register_read(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        index = self._value(params[2], args)
        name, guard = self._guard(params[1]["value"], index, "register_arrays")
        header, field = params[0]["value"]
        array = next(each for each in self._program.json["register_arrays"] if each["name"] == params[1]["value"])
        value = Code(f"register_{name}[{index.text}]", array["bitwidth"])
        stored = self._expressions.stored(self._program.fields[header, field], value)
        source.line(f"{guard}{field_var(header, field)} = {stored}")

    def _register_write(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        index, value = self._value(params[1], args), self._value(params[2], args)
        name, guard = self._guard(params[0]["value"], index, "register_arrays")
        array = next(each for each in self._program.json["register_arrays"] if each["name"] == params[0]["value"])
        stored = self._expressions.stored(FieldInfo("", array["bitwidth"], False), value)
        source.line(f"{guard}register_{name}[{index.text}] = {stored}")

    def _count(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        index = self._value(params[1], args)
        name, guard = self._guard(params[0]["value"], index, "counter_arrays")
        source.line(f"{guard}packets_{name}[{index.text}] += 1; bytes_{name}[{index.text}] += received")

    def _mark_to_drop(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        source.line(f"standard_metadata__egress_spec = {self._drop_port}")
        source.line("standard_metadata__mcast_grp = 0")

    def _hash(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        base, size = self._value(params[1], args), self._value(params[3], args)
        digest = f"calculate_{ident(params[2]['value'])}({self.calculation_arguments(params[2]['value'])})"
        self.store(source, params[0], Code(f"({digest} % ({size.text} or 1) + {base.text})", None))

    def calculation_arguments(self, name: str) -> str:
        """The variables that a calculation's function takes (see checksum.py)."""
        names = []
        for each in self._program.calculations[name]["input"]:
            if each["type"] == "field":
                names += [field_var(*each["value"]), valid_var(each["value"][0])]
            elif each["type"] != "hexstr":
                raise UnsupportedError(f"hashes over {each['type']!r} ({name})")
        metadata = {valid_var(header.name) for header in self._program.headers.values() if header.metadata}
        return ", ".join("1" if each in metadata else each for each in names)

    def _random(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        low, high = self._value(params[1], args).text, self._value(params[2], args).text
        with source.block(f"if {low} <= {high}:"):
            self.store(source, params[0], Code(f"randint({low}, {high})", None))

    def _digest(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        source.line(f"digest_list = {self._value(params[1], args).text}")

    def _clone(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        session, fields = self._value(params[0], args), self._value(params[1], args)
        source.line(f"clone = ({session.text} & 0x7fff, {fields.text})")

    def _resubmit(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        if self._egress:
            raise UnsupportedError("resubmit in the egress control")
        source.line(f"resubmit = {self._value(params[0], args).text}")

    def _recirculate(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        if not self._egress:
            raise UnsupportedError("recirculate in the ingress control")
        source.line(f"recirculate = {self._value(params[0], args).text}")

    def _truncate(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        source.line(f"truncated = {self._value(params[0], args).text}")

    def _exit(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        # The pipeline is written inside a loop that runs once.
        source.line("break")

    def _assert(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        source.line(
            f"if not {self._value(params[0], args).text}: raise AssertionError('an assertion of the program failed')"
        )

    def _log(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        values: list[Any] = params[1]["value"] if len(params) > 1 else []
        texts = [self._value(each, args).text for each in values]
        source.line(f"log_message({params[0]['value']!r}, {', '.join(texts)})")

    def _nothing(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        return
