"""The parser: states as nested ``if``s, headers as slices of the frame.

It is written inside a loop that runs once; an error sets ``parser_error`` and leaves the loop, as BMv2 goes on to the
ingress control with what was parsed until then.
"""

from __future__ import annotations

from netsum_switch.codegen.expression import Code, Expressions
from netsum_switch.codegen.flow import Branch, Node, write_structured
from netsum_switch.codegen.primitives import Primitives
from netsum_switch.codegen.source import Source, dirty_var, field_var, raw_var, valid_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.program import HeaderInfo, Json, Program

# Headers of whole-byte fields that are larger than this are cut field by field; smaller ones by shifting one number.
_SHIFT_LIMIT = 64


class ParserWriter:
    """Writes the program's parser. Variables: ``frame``, ``size`` (its length) and ``at`` (the position)."""

    def __init__(self, program: Program, expressions: Expressions, primitives: Primitives) -> None:
        self._program = program
        self._expressions = expressions
        self._primitives = primitives
        self._states: dict[str, Json] = {state["name"]: state for state in program.parser["parse_states"]}
        self._too_short = program.errors.get("PacketTooShort", 1)
        self._no_match = program.errors.get("NoMatch", 2)

    def write(self, source: Source) -> None:
        """Write all states."""
        graph: dict[str, list[Node]] = {
            name: list(dict.fromkeys(each["next_state"] for each in state["transitions"])) or [None]
            for name, state in self._states.items()
        }

        def emit(node: str, join: Node, branch: Branch) -> None:
            self._state(source, self._states[node], join, branch)

        write_structured(graph, self._program.parser["init_state"], emit, "the parser")

    def _state(self, source: Source, state: Json, join: Node, branch: Branch) -> None:
        for operation in state["parser_ops"]:
            self._operation(source, operation)
        keys = state["transition_key"]
        if not keys:
            return
        widths = [self._key_width(key) for key in keys]
        names = [self._key_text(source, key, index) for index, key in enumerate(keys)]
        head, complete = "if", False
        for transition in state["transitions"]:
            condition = self._matches(transition, names, widths)
            with source.block(f"{head} {condition}:" if condition != "True" or head == "if" else "else:"):
                branch(transition["next_state"], join)
            head = "elif"
            if condition == "True":
                complete = True
                break
        if not complete:
            with source.block("else:"):
                source.line(f"standard_metadata__parser_error = {self._no_match}; break")

    def _operation(self, source: Source, operation: Json) -> None:
        kind, params = operation["op"], operation["parameters"]
        if kind == "extract" and params[0]["type"] == "regular":
            self._extract(source, self._program.headers[params[0]["value"]])
        elif kind == "set":
            self._primitives.store(source, params[0], self._source_value(source, params[1]))
        elif kind == "verify":
            condition = self._expressions.compile(params[0])
            error = self._expressions.compile(params[1])
            source.line(f"if not {condition.text}: standard_metadata__parser_error = {error.text}; break")
        elif kind == "advance":
            bits = self._expressions.compile(params[0]).text
            source.line(f"if size < at + {bits} // 8: standard_metadata__parser_error = {self._too_short}; break")
            source.line(f"at += {bits} // 8")
        elif kind == "primitive":
            self._primitives.body(source, params)
        else:
            detail = params[0].get("type", "") if params else ""
            raise UnsupportedError(f"the parser operation {kind!r} {detail}".rstrip())

    def _extract(self, source: Source, header: HeaderInfo) -> None:
        size, raw = header.size, raw_var(header.name)
        source.line(f"if size < at + {size}: standard_metadata__parser_error = {self._too_short}; break")
        source.line(f"{raw} = frame[at:at + {size}]; at += {size}; {valid_var(header.name)} = 1")
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

    def _source_value(self, source: Source, node: Json) -> Code:
        if node["type"] != "lookahead":
            return self._expressions.compile(node)
        offset, width = node["value"]
        return self._lookahead(source, offset, width)

    def _lookahead(self, source: Source, offset: int, width: int) -> Code:
        end = (offset + width + 7) // 8
        source.line(f"if size < at + {end}: standard_metadata__parser_error = {self._too_short}; break")
        shift = end * 8 - offset - width
        text = f"from_bytes(frame[at:at + {end}], 'big')"
        return Code(f"({text} >> {shift} & {(1 << width) - 1:#x})", width)

    def _key_width(self, key: Json) -> int:
        if key["type"] == "lookahead":
            return int(key["value"][1])
        if key["type"] == "field":
            return self._expressions.field(*key["value"]).width
        raise UnsupportedError(f"parser transition keys of type {key['type']!r}")

    def _key_text(self, source: Source, key: Json, index: int) -> str:
        if key["type"] == "field":
            return field_var(*key["value"])
        value = self._lookahead(source, *key["value"])
        source.line(f"ahead{index} = {value.text}")
        return f"ahead{index}"

    @staticmethod
    def _matches(transition: Json, names: list[str], widths: list[int]) -> str:
        """The transition's condition. Values and masks are padded to whole bytes, key by key."""
        if transition["type"] == "default":
            return "True"
        if transition["type"] != "hexstr":
            raise UnsupportedError(f"parser transitions of type {transition['type']!r}")
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
