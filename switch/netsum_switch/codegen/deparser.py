"""The deparser: valid headers in order, then the payload."""

from __future__ import annotations

from collections.abc import Collection

from netsum_switch.codegen.source import Source, bits_var, dirty_var, field_var, raw_var, valid_var
from netsum_switch.program import HeaderInfo, Program

_SHIFT_LIMIT = 64


def pack(header: HeaderInfo) -> str:
    """Python for a header's bytes."""
    if header.varbit is not None:
        return _pack_varbit(header)
    if header.size > _SHIFT_LIMIT and all(field.width % 8 == 0 and not field.signed for field in header.fields):
        fields = [f"{field_var(header.name, each.name)}.to_bytes({each.width // 8}, 'big')" for each in header.fields]
        return f"b''.join(({', '.join(fields)},))"
    low = header.size * 8
    terms = []
    for field in header.fields:
        low -= field.width
        name = field_var(header.name, field.name)
        value = f"({name} & {(1 << field.width) - 1:#x})" if field.signed else name
        terms.append(f"{value} << {low}" if low else value)
    return f"({' | '.join(terms) or '0'}).to_bytes({header.size}, 'big')"


def header_bytes(header: HeaderInfo) -> str:
    """Python for the size of a header."""
    return (
        str(header.size)
        if header.varbit is None
        else f"({header.size} + ({bits_var(header.name, header.varbit)} >> 3))"
    )


def _pack_varbit(header: HeaderInfo) -> str:
    low, variable = header.size * 8, ""
    terms: list[str] = []
    for field in header.fields:
        name = field_var(header.name, field.name)
        if field.varbit:
            variable = f" + {bits_var(header.name, field.name)}"
            terms = [term.replace("@", variable) for term in terms]
            terms.append(f"{name} << {low}")
            continue
        low -= field.width
        value = f"({name} & {(1 << field.width) - 1:#x})" if field.signed else name
        terms.append(f"{value} << {low}{'' if variable else '@'}")
    return f"({' | '.join(terms)}).to_bytes({header_bytes(header)}, 'big')"


def write_deparser(source: Source, program: Program, written: Collection[str]) -> None:
    """Write the deparser into ``frame``. ``written`` are the headers that the egress control writes to: the others were
    packed once, before the packet was replicated."""
    source.line("pieces = []")
    for name in program.deparse_order:
        header = program.headers[name]
        with source.block(f"if {valid_var(name)}:"):
            if name in written:
                source.line(f"pieces.append({pack(header)} if {dirty_var(name)} else {raw_var(name)})")
            else:
                source.line(f"pieces.append({raw_var(name)})")
    source.line("pieces.append(payload)")
    source.line("frame = b''.join(pieces)")


def write_packing(source: Source, program: Program, written: Collection[str]) -> None:
    """Pack what was changed in ingress and egress leaves alone, once for all replicas."""
    for name in program.deparse_order:
        if name not in written:
            with source.block(f"if {dirty_var(name)} and {valid_var(name)}:"):
                source.line(f"{raw_var(name)} = {pack(program.headers[name])}")
