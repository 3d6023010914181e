"""The parser: states as nested ``if``s, headers as slices of the frame.

It is written inside a loop that runs once. An error sets ``parser_error`` and leaves the loop: like BMv2, the switch goes on
to the ingress control with what was parsed so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netsum_switch.codegen.deparser import header_bytes
from netsum_switch.codegen.expression import Code, Expressions
from netsum_switch.codegen.flow import Branch, Node, has_loop, write_structured
from netsum_switch.codegen.header_operations import HeaderOperations
from netsum_switch.codegen.primitives import Primitives
from netsum_switch.codegen.source import Source, bits_var, dirty_var, field_var, next_var, raw_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.program import STACK_FIELDS, Json, Program

_ERROR = "standard_metadata__parser_error"
_CORE_ERRORS = (
    "NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds",
    "HeaderTooShort", "ParserTimeout", "ParserInvalidArgument",
)  # fmt: skip

_NEXT_OF = ("stack", "union_stack")

# Headers of whole-byte fields that are larger than this are sliced field by field; smaller ones are shifted out of one number.
_SHIFT_LIMIT = 64


class ParserWriter:
    """Writes the program's parser. Variables: ``frame``, ``size`` (its length) and ``at`` (the position)."""

    def __init__(self, program: Program, expressions: Expressions, primitives: Primitives) -> None:
        self._program = program
        self._expressions = expressions
        self._primitives = primitives
        self._states: dict[str, Json] = {state["name"]: state for state in program.parser["parse_states"]}
        self._operations = HeaderOperations(program, expressions)
        self._too_short = self._error("PacketTooShort")
        self._out_of_bounds = self._error("StackOutOfBounds")
        self._header_too_short = self._error("HeaderTooShort")
        self._invalid_argument = self._error("ParserInvalidArgument")

    def _error(self, name: str) -> int:
        """The number of a core error. If the program does not name it, it gets one behind those that the program names."""
        errors = dict(self._program.errors)
        for each in _CORE_ERRORS:
            errors.setdefault(each, max(errors.values(), default=-1) + 1)
        return errors[name]

    def write(self, source: Source) -> None:
        """Write all states and the loop around them.

        States without loops between them are nested; with loops (header stacks), a Python loop goes from state to state.
        """
        graph: dict[str, list[Node]] = {name: self._following(state) for name, state in self._states.items()}
        entry: Node = self._program.parser["init_state"]
        if has_loop(graph, entry):
            self._write_automaton(source, entry)
            return

        def emit(node: str, join: Node, branch: Branch) -> None:
            self._state(source, self._states[node], join, branch)

        with source.block("while True:"):
            write_structured(graph, entry, emit, "the parser")
            source.line("break")

    @staticmethod
    def _following(state: Json) -> list[Node]:
        following: list[Node] = [each["next_state"] for each in state["transitions"]]
        if not any(each["type"] == "default" for each in state["transitions"]):
            following.append(None)  # a key that matches nothing ends the parser without an error
        return list(dict.fromkeys(following))

    def _write_automaton(self, source: Source, entry: Node) -> None:
        numbers = {name: number for number, name in enumerate(self._states)}
        if entry is None:
            return

        def branch(first: Node, _join: Node) -> None:
            source.line("break" if first is None else f"state = {numbers[first]}; continue")

        source.line(f"state = {numbers[entry]}")
        with source.block("while True:"):
            for name, number in numbers.items():
                with source.block(f"if state == {number}:"):
                    self._state(source, self._states[name], "", branch)
                    source.line("break")

    def _state(self, source: Source, state: Json, join: Node, branch: Branch) -> None:
        for operation in state["parser_ops"]:
            self._operation(source, operation)
        keys = state["transition_key"]
        widths = [self._key_width(key) for key in keys]
        names = [self._key_text(source, key, index) for index, key in enumerate(keys)]
        head = "if"
        for transition in state["transitions"]:
            condition = self._matches(transition, names, widths)
            if condition == "True":
                if transition["next_state"] != join:
                    if head == "if":
                        branch(transition["next_state"], join)
                    else:
                        with source.block("else:"):
                            branch(transition["next_state"], join)
                return
            with source.block(f"{head} {condition}:"):
                if transition["next_state"] != join:
                    branch(transition["next_state"], join)
            head = "elif"

    def _operation(self, source: Source, operation: Json) -> None:
        kind, params = operation["op"], operation["parameters"]
        if kind == "extract" and params[0]["type"] == "regular":
            self._extract(source, params[0]["value"])
        elif kind == "extract" and params[0]["type"] in _NEXT_OF:
            self._extract_next(source, params[0], self._extract)
        elif kind == "extract_VL" and params[0]["type"] == "regular":
            self._extract_varbit(source, params[0]["value"], params[1])
        elif kind == "extract_VL" and params[0]["type"] in _NEXT_OF:
            self._extract_next(source, params[0], lambda to, name: self._extract_varbit(to, name, params[1]))
        elif kind == "set":
            self._set(source, params[0], self._source_value(source, params[1]))
        elif kind == "verify":
            condition = self._expressions.compile(params[0])
            error = self._expressions.compile(params[1])
            source.line(f"if not {condition.text}: {_ERROR} = {error.text}; break")
        elif kind in ("advance", "shift"):
            self._advance(source, kind, params)
        elif kind == "primitive":
            self._primitives.body(source, params)
        else:
            detail = params[0].get("type", "") if params else ""
            raise UnsupportedError(f"the program uses the parser operation {kind!r} {detail}".rstrip())

    def _set(self, source: Source, target: Json, value: Code) -> None:
        for case, _ in self._expressions.fields(target):
            if not self._program.headers[case.header].metadata:
                source.line(f"{dirty_var(case.header)} = 1")
        self._primitives.store(source, target, value)

    def _advance(self, source: Source, kind: str, params: list[Any]) -> None:
        if kind == "shift":
            source.line(f"skipped = {params[0]}")  # a bare number, of bytes
        else:
            bits = self._expressions.compile(params[0])
            source.line(f"skipped = {bits.text}")
            source.line(f"if skipped & 7: {_ERROR} = {self._invalid_argument}; break")
            source.line("skipped >>= 3")
        source.line(f"if size - at < skipped: {_ERROR} = {self._too_short}; break")
        source.line("at += skipped")

    def _extract_next(self, source: Source, target: Json, extract: Callable[[Source, str], None]) -> None:
        place = target["value"] if target["type"] == "union_stack" else [target["value"]]
        following = next_var(place[0])
        head = "if"
        for at, name in enumerate(self._program.column(*place)):
            with source.block(f"{head} {following} == {at}:"):
                extract(source, name)
            head = "elif"
        source.line(f"else: {_ERROR} = {self._out_of_bounds}; break")
        source.line(f"{following} += 1")

    def _extract(self, source: Source, name: str) -> None:
        header = self._program.headers[name]
        size, raw = header.size, raw_var(header.name)
        source.line(f"if size < at + {size}: {_ERROR} = {self._too_short}; break")
        source.line(f"{raw} = frame[at:at + {size}]; at += {size}")
        self._operations.mark_valid(source, name)
        source.line(f"{dirty_var(header.name)} = 0")
        if size > _SHIFT_LIMIT and all(field.width % 8 == 0 and not field.signed for field in header.fields):
            start = 0
            for field in header.fields:
                end = start + field.width // 8
                source.line(f"{field_var(header.name, field.name)} = from_bytes({raw}[{start}:{end}], 'big')")
                start = end
            return
        source.line(f"bits = from_bytes({raw}, 'big')")
        low = size * 8
        for field in header.fields:
            low -= field.width
            value = Code(f"(bits >> {low})" if low else "bits", size * 8 - low)
            source.line(f"{field_var(header.name, field.name)} = {self._expressions.stored(field, value)}")

    def _extract_varbit(self, source: Source, name: str, length: Json) -> None:
        """``extract`` with two arguments, the second the bits of the varbit field."""
        header = self._program.headers[name]
        assert header.varbit is not None
        bits, limit = bits_var(name, header.varbit), self._program.fields[name, header.varbit].width
        source.line(f"length_given = {self._expressions.compile(length).text}")
        source.line(f"if length_given & 7: {_ERROR} = {self._invalid_argument}; break")
        source.line(f"if size - at < {header.size} + (length_given >> 3): {_ERROR} = {self._too_short}; break")
        source.line(f"if length_given > {limit}: {_ERROR} = {self._header_too_short}; break")
        source.line(f"{bits} = length_given")
        source.line(f"{raw_var(name)} = frame[at:at + {header_bytes(header)}]; at += {header_bytes(header)}")
        self._operations.mark_valid(source, name)
        source.line(f"{dirty_var(name)} = 0")
        source.line(f"bits = from_bytes({raw_var(name)}, 'big')")
        low, behind = header.size * 8, f" + {bits}"
        for field in header.fields:
            if field.varbit:
                behind = ""
                source.line(f"{field_var(name, field.name)} = bits >> {low} & (1 << {bits}) - 1")
                continue
            low -= field.width
            value = Code(f"(bits >> ({low}{behind}))", None)
            source.line(f"{field_var(name, field.name)} = {self._expressions.stored(field, value)}")

    def _source_value(self, source: Source, node: Json) -> Code:
        if node["type"] != "lookahead":
            return self._expressions.compile(node)
        offset, width = node["value"]
        return self._lookahead(source, offset, width)

    def _lookahead(self, source: Source, offset: int, width: int) -> Code:
        end = (offset + width + 7) // 8
        source.line(f"if size < at + {end}: {_ERROR} = {self._too_short}; break")
        shift = end * 8 - offset - width
        text = f"from_bytes(frame[at:at + {end}], 'big')"
        return Code(f"({text} >> {shift} & {(1 << width) - 1:#x})", width)

    def _key_width(self, key: Json) -> int:
        if key["type"] == "lookahead":
            return int(key["value"][1])
        if key["type"] == "field":
            return self._expressions.field(*key["value"]).width
        if key["type"] in STACK_FIELDS:
            *place, field = key["value"]
            return self._expressions.field(self._program.column(*place)[0], field).width
        raise UnsupportedError(f"the program has a parser transition key of type {key['type']!r}")

    def _key_text(self, source: Source, key: Json, index: int) -> str:
        if key["type"] == "field":
            text = field_var(*key["value"])
            field = self._expressions.field(*key["value"])
            return f"({text} & {(1 << field.width) - 1:#x})" if field.signed else text
        if key["type"] in STACK_FIELDS:
            source.line(f"last{index} = {self._expressions.compile(key).text}")
            return f"last{index}"
        value = self._lookahead(source, *key["value"])
        source.line(f"ahead{index} = {value.text}")
        return f"ahead{index}"

    @staticmethod
    def _matches(transition: Json, names: list[str], widths: list[int]) -> str:
        """The transition's condition. Values and masks are padded to whole bytes, key by key."""
        if transition["type"] == "default":
            return "True"
        if transition["type"] != "hexstr":
            raise UnsupportedError(f"the program has parser transitions of type {transition['type']!r}")
        padded = [(width + 7) // 8 * 8 for width in widths]
        value = int(transition["value"], 16)
        mask = int(transition["mask"], 16) if transition["mask"] is not None else (1 << sum(padded)) - 1
        terms, low = [], sum(padded)
        for name, width, bits in zip(names, widths, padded, strict=True):
            low -= bits
            wanted, cared = value >> low & ((1 << bits) - 1), mask >> low & ((1 << width) - 1)
            if cared == (1 << width) - 1:
                terms.append(f"{name} == {wanted}")
            elif cared:
                terms.append(f"{name} & {cared:#x} == {wanted & cared}")
        return " and ".join(terms) or "True"
