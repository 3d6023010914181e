"""Primitives: each method writes one kind as Python. Reference: simple_switch's primitives.cpp."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netsum_switch.codegen.checksum import Checksums
from netsum_switch.codegen.expression import Code, Expressions
from netsum_switch.codegen.flow import Branch, Node, write_structured
from netsum_switch.codegen.header_operations import HeaderOperations
from netsum_switch.codegen.source import Source, dirty_var, field_var, ident, valid_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.pipeline import MAX_TURNS
from netsum_switch.program import STACK_FIELDS, FieldInfo, Json, Program, jump_target

Params = list[Json]

_JUMPS = ("_jump", "_jump_if_zero")
# Primitives that write to their first parameter, which may be an expression for an lvalue.
_WRITE_FIRST = frozenset(
    {
        "assign",
        "assign_VL",
        "assign_header",
        "add_header",
        "remove_header",
        "register_read",
        "modify_field_with_hash_based_offset",
        "modify_field_rng_uniform",
    }
)
# Primitives that write to their third.
_WRITE_THIRD = frozenset({"execute_meter"})  # fmt: skip


class Primitives:
    """Writes actions. ``egress`` says which pipeline they run in, since some primitives differ there."""

    def __init__(
        self, program: Program, expressions: Expressions, checksums: Checksums, drop_port: int, *, egress: bool
    ) -> None:
        self._program = program
        self._expressions = expressions
        self._checksums = checksums
        self._headers = HeaderOperations(program, expressions)
        self._drop_port = drop_port
        self._egress = egress
        self._writers: dict[str, Callable[[Source, Params, Sequence[Code]], None]] = {
            "assign": self._assign,
            "assign_VL": self._headers.assign_varbit,
            "assign_header": self._headers.assign,
            "assign_header_stack": self._headers.assign_stack,
            "assign_union": self._headers.assign_union,
            "assign_union_stack": self._headers.assign_union_stack,
            "add_header": self._headers.add,
            "remove_header": self._headers.remove,
            "push": self._headers.push,
            "pop": self._headers.pop,
            "register_read": self._register_read,
            "register_write": self._register_write,
            "count": self._count,
            "execute_meter": self._meter,
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
            "exit": self._nothing,
            "assert": self._assert,
            "assume": self._assert,
            "log_msg": self._log,
            "no_op": self._nothing,
            "noop": self._nothing,
        }

    def action(self, source: Source, action_id: int, args: Sequence[Code] = ()) -> None:
        self.body(source, self._program.actions[action_id]["primitives"], args)

    def calculation(self, name: str) -> str:
        """Python for the value of a calculation."""
        return self._checksums.call(name)

    def arguments(self, action_id: int, values: Sequence[str]) -> list[Code]:
        data = self._program.actions[action_id]["runtime_data"]
        return [Code(text, each["bitwidth"]) for text, each in zip(values, data, strict=True)]

    def body(self, source: Source, primitives: Sequence[Json], args: Sequence[Code] = ()) -> None:
        """Write primitives one after the other. ``exit`` takes effect after the last, as in BMv2."""
        names = [each["op"] for each in primitives]
        for name in names:
            if name not in self._writers and name not in _JUMPS:
                raise UnsupportedError(f"the program uses the primitive {name!r}; this switch does not run it")
        for header in sorted({header for each in primitives for header in self._touched(each, args)}):
            source.line(f"{dirty_var(header)} = 1")
        exits, jumps = "exit" in names, any(name in _JUMPS for name in names)
        if exits and jumps:
            source.line("leaving = False")
        if jumps:
            self._with_jumps(source, primitives, args)
        else:
            self._straight(source, primitives, args)
        if exits:
            source.line("if leaving: break" if jumps else "break")

    def _straight(self, source: Source, primitives: Sequence[Json], args: Sequence[Code]) -> None:
        for index, primitive in enumerate(primitives):
            name, params = primitive["op"], primitive["parameters"]
            if name == "add_header":
                self._headers.add(source, params, args, overwritten=self._overwritten(primitives[index + 1 :], params))
            elif name != "exit":
                self._writers[name](source, params, args)

    def _with_jumps(self, source: Source, primitives: Sequence[Json], args: Sequence[Code]) -> None:
        """``_jump`` and ``_jump_if_zero`` are p4c's ``if`` and loops inside an action."""
        end = len(primitives)

        def node(index: int) -> Node:
            return str(index) if index < end else None

        def target(index: int) -> int:
            return jump_target(primitives[index], end)

        if any(target(at) <= at for at, each in enumerate(primitives) if each["op"] in _JUMPS):
            self._with_loops(source, primitives, args, target)
            return

        graph: dict[str, list[Node]] = {}
        for index, primitive in enumerate(primitives):
            following = [] if primitive["op"] == "_jump" else [node(index + 1)]
            if primitive["op"] in _JUMPS:
                following.append(node(target(index)))
            graph[str(index)] = following

        def emit(name: str, join: Node, branch: Branch) -> None:
            primitive = primitives[int(name)]
            if primitive["op"] == "_jump_if_zero":
                condition = self._expressions.condition(primitive["parameters"][0], args)
                with source.block(f"if {condition}:"):
                    branch(node(int(name) + 1), join)
                if node(target(int(name))) != join:
                    with source.block("else:"):
                        branch(node(target(int(name))), join)
            elif primitive["op"] == "exit":
                source.line("leaving = True")
            elif primitive["op"] != "_jump":
                self._writers[primitive["op"]](source, primitive["parameters"], args)

        write_structured(graph, node(0), emit, "an action")

    def _with_loops(
        self, source: Source, primitives: Sequence[Json], args: Sequence[Code], target: Callable[[int], int]
    ) -> None:
        """Runs of primitives between jumps. A jump forward is to a later ``if``, one backward needs another turn."""
        jumps = [at for at, each in enumerate(primitives) if each["op"] in _JUMPS]
        starts = sorted({0, *(at + 1 for at in jumps), *map(target, jumps)} - {len(primitives)})
        source.line("step = turns = 0")
        with source.block(f"while step < {len(primitives)}:"):
            source.line(f"if turns > {MAX_TURNS}: endless()")
            source.line("turns += 1")
            for start, end in zip(starts, [*starts[1:], len(primitives)], strict=True):
                with source.block(f"if step == {start}:"):
                    source.line(f"step = {end}")
                    for at in range(start, end):
                        op, params = primitives[at]["op"], primitives[at]["parameters"]
                        if op == "_jump":
                            source.line(f"step = {target(at)}")
                        elif op == "_jump_if_zero":
                            source.line(f"if not {self._expressions.condition(params[0], args)}: step = {target(at)}")
                        elif op == "exit":
                            source.line("leaving = True")
                        else:
                            self._writers[op](source, params, args)

    def _touched(self, primitive: Json, args: Sequence[Code]) -> set[str]:
        """Packet headers whose bytes may be outdated afterwards: those of the first parameter, which takes the result."""
        if not primitive["parameters"] or primitive["op"] == "remove_header":
            return set()  # making a header invalid leaves its bytes as they are
        target = primitive["parameters"][2 if primitive["op"] in _WRITE_THIRD else 0]
        if target["type"] in ("header_stack", "header_union", "header_union_stack"):
            return set()  # these also move or copy the marks
        if target["type"] == "header":
            names = {target["value"]}
        elif target["type"] in ("field", *STACK_FIELDS) or (
            primitive["op"] in _WRITE_FIRST and target["type"] == "expression"
        ):
            names = self._headers.touched(target, args)
        else:
            return set()
        return {name for name in names if not self._program.headers[name].metadata}

    def _overwritten(self, following: Sequence[Json], params: Params) -> set[str]:
        """Fields of the header that the rest of the action sets before anything reads them, so they need not be cleared."""
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
                    continue  # access outside the register has no effect
                written.add(target["value"][1])
        return written

    def store(self, source: Source, target: Json, code: Code, args: Sequence[Code] = ()) -> None:
        """Assign to a field, or to one of the fields that a stack access can stand for."""
        cases = self._expressions.fields(target, args)
        if len(cases) > 1:
            source.line(f"stored = {code.text}")
            code = Code("stored", code.bits)
        head = "if"
        for case, name in cases:
            if not case.condition:
                self._store(source, case.header, name, code)
                continue
            with source.block(f"{head} {case.condition}:"):
                self._store(source, case.header, name, code)
            head = "elif"

    def _store(self, source: Source, header: str, name: str, code: Code) -> None:
        if name == "$valid$":
            source.line(f"{valid_var(header)} = {code.text}")
            return
        field = self._program.fields[header, name]
        source.line(f"{field_var(header, name)} = {self._expressions.stored(field, code)}")

    def _value(self, node: Json, args: Sequence[Code]) -> Code:
        return self._expressions.compile(node, args)

    def _assign(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        self.store(source, params[0], self._value(params[1], args), args)

    def _guard(self, name: str, index: Code, section: str) -> tuple[str, str]:
        """(array's variable, condition under which the index is inside; empty if it always is)."""
        array = next(each for each in self._program.json[section] if each["name"] == name)
        inside = index.bits is not None and 1 << index.bits <= array["size"]
        return ident(name), "" if inside else f"if {index.text} < {array['size']}: "

    def _register_read(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        index = self._value(params[2], args)
        name, guard = self._guard(params[1]["value"], index, "register_arrays")
        array = next(each for each in self._program.json["register_arrays"] if each["name"] == params[1]["value"])
        value = Code(f"register_{name}[{index.text}]", array["bitwidth"])
        if guard:
            with source.block(guard.rstrip()):
                self.store(source, params[0], value, args)
        else:
            self.store(source, params[0], value, args)

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

    def _meter(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        index = self._value(params[1], args)
        name, guard = self._guard(params[0]["value"], index, "meter_arrays")
        with source.block(guard.rstrip() or "if True:"):
            self.store(source, params[2], Code(f"meter_{name}({index.text}, received, now())", 2), args)

    def _mark_to_drop(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        source.line(f"standard_metadata__egress_spec = {self._drop_port}")
        source.line("standard_metadata__mcast_grp = 0")

    def _hash(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        base, size = self._value(params[1], args), self._value(params[3], args)
        digest = self._checksums.call(params[2]["value"])
        self.store(source, params[0], Code(f"({digest} % ({size.text} or 1) + {base.text})", None), args)

    def _random(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        low, high = self._value(params[1], args).text, self._value(params[2], args).text
        with source.block(f"if {low} <= {high}:"):
            self.store(source, params[0], Code(f"randint({low}, {high})", None), args)

    def _digest(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        source.line(f"digest_list = {self._value(params[1], args).text}")

    def _clone(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        session, fields = self._value(params[0], args), self._value(params[1], args)
        source.line(f"clone = ({session.text} & 0x7fff, {fields.text})")

    def _resubmit(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        # In the other control it would set a mark that nothing reads.
        if not self._egress:
            source.line(f"resubmit = {self._value(params[0], args).text}")

    def _recirculate(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        if not self._egress:
            raise UnsupportedError("the program recirculates in the ingress control; this switch does not run that")
        source.line(f"recirculate = {self._value(params[0], args).text}")

    def _truncate(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        source.line(f"truncated = min(truncated, {self._value(params[0], args).text})")

    def _assert(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        source.line(f"if not {self._value(params[0], args).text}: abort()")

    def _log(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        values: list[Json] = params[1]["value"] if len(params) > 1 else []
        texts = [self._value(each, args).text for each in values]
        source.line(f"log_message({', '.join([repr(params[0]['value']), *texts])})")

    def _nothing(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        return
