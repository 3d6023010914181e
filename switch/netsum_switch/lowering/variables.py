"""The variables of a program: what a packet carries from the parser to the deparser."""

from __future__ import annotations

from collections.abc import Iterator

from netsum_switch.errors import JsonError
from netsum_switch.lowering.values import Variable
from netsum_switch.program import HeaderInfo, Program

_LENGTH_BITS = 32
# What controls say about a packet, and the numbers that the switch keeps of it.
_MARKS = {
    "clone": 1, "clone_session": 15, "clone_list": 32, "resubmit": 32, "recirculate": 32, "digest": 32, "leaving": 1,
    "truncated": 64, "length": 64,
}  # fmt: skip


class Variables:
    """The variables of headers and fields, and those of the packet itself (`mark`)."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._fields: dict[tuple[str, str], Variable] = {}
        self._lengths: dict[str, Variable] = {}
        self._next: dict[str, Variable] = {}
        self._marks = {name: Variable(bits, name == "length", name) for name, bits in _MARKS.items()}
        self._peeks: dict[int, list[Variable]] = {}
        for header in program.headers.values():
            if not header.metadata:
                self._fields[header.name, "$valid$"] = Variable(1, False, f"{header.name}.$valid$")
            for field in header.fields:
                variable = Variable(field.width, field.signed, f"{header.name}.{field.name}")
                self._fields[header.name, field.name] = variable
                if field.varbit:
                    self._lengths[header.name] = Variable(_LENGTH_BITS, False, f"{header.name}.{field.name}.$bits$")
        for stack in program.columns:
            self._next[stack] = Variable(_LENGTH_BITS, False, f"{stack}.$next$")

    def field(self, header: str, name: str) -> Variable:
        return self._fields[header, name]

    def has(self, header: str, name: str) -> bool:
        return (header, name) in self._fields

    def fields(self, header: str) -> list[Variable]:
        """A header's fields in order."""
        return [self._fields[header, each.name] for each in self.program.headers[header].fields]

    def valid(self, header: str) -> Variable:
        return self._fields[header, "$valid$"]

    def length(self, header: str) -> Variable | None:
        """The bits of the header's varbit field, if it has one."""
        return self._lengths.get(header)

    def next(self, stack: str) -> Variable:
        """How many headers of a stack were extracted."""
        return self._next[stack]

    def mark(self, name: str) -> Variable:
        return self._marks[name]

    def standard(self, name: str) -> Variable:
        if ("standard_metadata", name) not in self._fields:
            raise JsonError(f"the program has no standard_metadata.{name}: it was not compiled for v1model")
        return self._fields["standard_metadata", name]

    def peek(self, bits: int, number: int) -> Variable:
        """A place for a lookahead that only a transition looks at."""
        known = self._peeks.setdefault(bits, [])
        while len(known) <= number:
            known.append(Variable(bits, False, f"$peek{bits}.{len(known)}"))
        return known[number]

    def metadata(self) -> list[Variable]:
        return [
            self._fields[header.name, field.name]
            for header in self.program.headers.values()
            if header.metadata
            for field in header.fields
        ]

    def of_header(self, header: HeaderInfo) -> list[Variable]:
        """Everything that belongs to a header: what moves when the header moves."""
        length = self.length(header.name)
        own = [] if header.metadata else [self.valid(header.name)]
        return [*own, *self.fields(header.name), *([length] if length is not None else [])]

    def __iter__(self) -> Iterator[Variable]:
        yield from self._marks.values()
        yield from self._next.values()
        yield from self._lengths.values()
        yield from self._fields.values()
        for known in self._peeks.values():
            yield from known
