"""The deparser: valid headers in order, then the payload."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from netsum_switch.codegen.source import Source, bits_var, dirty_var, field_var, raw_var, valid_var
from netsum_switch.program import HeaderInfo, Program

_SHIFT_LIMIT = 64


def pack(header: HeaderInfo) -> str:
    """Python for a header's bytes."""
    if header.size > _SHIFT_LIMIT and all(field.width % 8 == 0 and not field.signed for field in header.fields):
        fields = [f"{field_var(header.name, each.name)}.to_bytes({each.width // 8}, 'big')" for each in header.fields]
        return f"b''.join(({', '.join(fields)},))"
    return f"({' | '.join(_terms(header)) or '0'}).to_bytes({header_bytes(header)}, 'big')"


def _terms(header: HeaderInfo) -> list[str]:
    """Python for each field, shifted to its place in the header as one number."""
    low = header.size * 8
    after = "" if header.varbit is None else f" + {bits_var(header.name, header.varbit)}"
    terms = []
    for field in header.fields:
        name = field_var(header.name, field.name)
        value = f"({name} & {(1 << field.width) - 1:#x})" if field.signed else name
        if field.varbit:
            after = ""
        else:
            low -= field.width
        terms.append(f"{value} << {low}{after}" if low or header.varbit is not None else value)
    return terms


def header_bytes(header: HeaderInfo) -> str:
    """Python for the size of a header."""
    if header.varbit is None:
        return str(header.size)
    return f"({header.size} + ({bits_var(header.name, header.varbit)} >> 3))"


def shared_headers(program: Program, written: Collection[str], assigned: Collection[str]) -> dict[str, list[bool]]:
    """Which fields egress writes to, by header, of those that it writes to in part. ``assigned``: the variables that it sets.

    The other fields are the same in all copies of a packet and are packed once. Stacks are left out: their headers move.
    """
    moving = {name for columns in program.columns.values() for elements in columns for name in elements}
    shared = {}
    for name in written:
        header = program.headers[name]
        changes = [field_var(name, field.name) in assigned for field in header.fields]
        if name not in moving and header.varbit is None and header.size <= _SHIFT_LIMIT and changes.count(False) > 1:
            shared[name] = changes
    return shared


def write_deparser(
    source: Source, program: Program, written: Collection[str], shared: Mapping[str, Sequence[bool]]
) -> None:
    """Write the deparser into ``frame``. ``written`` are the headers that the egress control writes to; the others were
    packed once, before the packet was copied. ``shared`` is what `shared_headers` returned; ``packed`` holds the
    numbers that are the same in all copies."""
    source.line("pieces = []")
    for name in program.deparse_order:
        header = program.headers[name]
        with source.block(f"if {valid_var(name)}:"):
            if name in shared:
                _write_shared(source, header, list(shared).index(name), shared[name])
            elif name in written:
                source.line(f"pieces.append({pack(header)} if {dirty_var(name)} else {raw_var(name)})")
            else:
                source.line(f"pieces.append({raw_var(name)})")
    source.line("pieces.append(payload)")
    source.line("frame = b''.join(pieces)")


def _write_shared(source: Source, header: HeaderInfo, place: int, changes: Sequence[bool]) -> None:
    terms = _terms(header)
    with source.block(f"if {dirty_var(header.name)}:"):
        source.line(f"same = packed[{place}]")
        with source.block("if same is None:"):
            kept = [term for term, changed in zip(terms, changes, strict=True) if not changed]
            source.line(f"same = packed[{place}] = {' | '.join(kept)}")
        own = [term for term, changed in zip(terms, changes, strict=True) if changed]
        source.line(f"pieces.append(({' | '.join(['same', *own])}).to_bytes({header.size}, 'big'))")
    source.line(f"else: pieces.append({raw_var(header.name)})")


def write_packing(source: Source, program: Program, written: Collection[str]) -> None:
    """Pack the headers that ingress changed and egress does not, once for all replicas."""
    for name in program.deparse_order:
        if name not in written:
            with source.block(f"if {dirty_var(name)} and {valid_var(name)}:"):
                source.line(f"{raw_var(name)} = {pack(program.headers[name])}")
