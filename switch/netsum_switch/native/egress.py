"""Egress and the deparser: one copy of a packet becomes a record."""

from __future__ import annotations

from netsum_switch.lowering.standard import EGRESS_FIELDS, RECIRC
from netsum_switch.lowering.values import Variable
from netsum_switch.native import bytes as wire
from netsum_switch.native.layout import Context, Head, Record, storage
from netsum_switch.native.llvm_builder import Register
from netsum_switch.native.module import Module
from netsum_switch.native.packet import PacketWriter


def write_egress(module: Module) -> None:
    """``egress``: one copy, to a record."""
    writer = PacketWriter(module, "egress", "ptr noalias %s, ptr noalias %c, i64 %port, i64 %rid, i64 %instance")
    out, lowered = writer.out, module.lowered
    spec = lowered.drop_port + 1 & (1 << lowered.variables.standard("egress_spec").bits) - 1
    values = {"egress_port": "%port", "egress_rid": "%rid", "instance_type": "%instance", "egress_spec": str(spec)}
    for name in EGRESS_FIELDS:  # there is no queue: what is not said is 0
        if name in ("egress_global_timestamp", "enq_timestamp"):
            writer.set_time(name)
        else:
            writer.set_standard(name, writer.mark("length") if name == "packet_length" else values.get(name, "0"))
    for name in ("clone", "recirculate", "leaving"):
        writer.set_mark(name, "0")
    writer.call("control_egress")
    with out.when(writer.expressions.condition(lowered.variables.mark("clone"))):
        writer.call("clone_egress")
    with out.when(writer.dropped()):
        out.give("i32 0")
    writer.call("update")
    _deparse(writer)
    out.give("i32 0")


def _deparse(writer: PacketWriter) -> None:
    """The valid headers in order, then the payload."""
    out, lowered = writer.out, writer.lowered
    rest = out.op("sub", 64, writer.head(Head.RECEIVED), writer.head(Head.AT))
    total = rest
    for name in lowered.deparsed:
        valid = writer.expressions.condition(lowered.variables.valid(name))
        total = out.op("add", 64, total, out.choose(valid, 64, _header_bytes(writer, name), 0))
    again = out.compare("ne", 64, writer.mark("recirculate"), 0)
    kept = out.choose(again, 64, writer.kept, 0)
    word = out.choose(again, 64, int(Context.PENDING), int(Context.OUT))
    room = writer.reserve(word, out.op("add", 64, total, kept))
    place = out.space(8)
    out.store_pointer(out.offset(room, kept), place)
    for name in lowered.deparsed:
        with out.when(writer.expressions.condition(lowered.variables.valid(name))):
            _write_header(writer, name, place)
    payload = out.offset(out.load_pointer("%s"), writer.head(Head.AT))
    out.copy(out.load_pointer(place), payload, rest)
    with out.when(again):
        out.clear(room, writer.kept)
        number = writer.mark("recirculate")
        writer.keep(number, room)
        argument = out.op("or", 64, out.op("shl", 64, number, 8), RECIRC)
        writer.commit(Context.PENDING, Record.PENDING, argument, out.op("add", 64, total, kept))
        out.give("i32 0")
    most = writer.mark("truncated")
    size = out.choose(out.compare("ult", 64, total, most), 64, total, most)
    writer.commit(Context.OUT, Record.SENT, "%port", size)


def _header_bytes(writer: PacketWriter, name: str) -> Register:
    header, length = writer.lowered.program.headers[name], writer.variables.length(name)
    if length is None:
        return str(header.size)
    more = writer.out.op("lshr", 64, writer.expressions.emit(length, 64), 3)
    return writer.out.op("add", 64, more, header.size)


def _write_header(writer: PacketWriter, name: str, place: Register) -> None:
    """A header's bytes where ``place`` points to, which goes on behind them."""
    out, variables = writer.out, writer.variables
    fields, length = variables.fields(name), variables.length(name)
    at = out.load_pointer(place)
    split = len(fields)
    if length is not None:
        split = next(number for number, each in enumerate(writer.lowered.program.headers[name].fields) if each.varbit)
    at = _write_fields(writer, name, fields[:split], at)
    if length is not None:
        size = out.op("lshr", 64, writer.expressions.emit(length, 64), 3)
        wire.reverse_bytes(out, at, writer.expressions.pointer(fields[split]), size)
        at = _write_fields(writer, name, fields[split + 1 :], out.offset(at, size))
    out.store_pointer(at, place)


def _write_fields(writer: PacketWriter, name: str, fields: list[Variable], at: Register) -> Register:
    """Fields end to end; a pointer behind them."""
    out, assembly = writer.out, writer.module.assembly
    end = 0
    for group in wire.groups([each.bits for each in fields], name):
        to, end = out.offset(at, group.at), group.at + group.size
        sources = [writer.expressions.pointer(each) for each in fields[group.first : group.first + len(group.widths)]]
        if wire.is_wide(group):
            wire.reverse_limbs(out, to, sources[0], group.size // 8)
            continue
        values = [
            out.load(source, storage(bits), min(storage(bits), 64) // 8)
            for source, bits in zip(sources, group.widths, strict=True)
        ]
        wire.store_big(assembly, out, wire.number_of(out, values, group), to, group.size)
    return out.offset(at, end)
