"""Copies of a packet: to the members of a group, and clones."""

from __future__ import annotations

from netsum_switch.lowering.standard import EGRESS_CLONE, INGRESS_CLONE
from netsum_switch.native.layout import DEEPEST, Context, Head, storage
from netsum_switch.native.module import Module
from netsum_switch.native.packet import WHOLE, PacketWriter


def write_copies(module: Module) -> None:
    """``copies``: egress for every replica, each with the variables as they were."""
    writer = PacketWriter(module, "copies", "ptr noalias %s, ptr noalias %c, ptr %replicas, i64 %count, i64 %instance")
    out, layout = writer.out, module.layout
    spaces = [(int(Head.END), layout.saved_end - Head.END)]
    spaces += [(layout.offsets[each], storage(each.bits) // 8) for each in layout.saved_wide]
    with out.when(out.compare("ugt", 64, "%count", 1)):
        _save(writer, spaces, back=False)
    with out.each("%count") as index:
        with out.when(out.compare("ne", 64, index, 0)):
            _save(writer, spaces, back=True)
        replica = out.offset("%replicas", out.op("shl", 64, index, 4))
        port, rid = (out.load(out.offset(replica, at), 64, 8) for at in (0, 8))
        writer.call("egress", "ptr %s", "ptr %c", f"i64 {port}", f"i64 {rid}", "i64 %instance")
    out.give("i32 0")


def _save(writer: PacketWriter, spaces: list[tuple[int, int]], *, back: bool) -> None:
    out, at = writer.out, writer.module.layout.size
    for start, size in spaces:
        here, there = out.offset("%s", start), out.offset("%s", at)
        out.copy(*((here, there) if back else (there, here)), size)
        at += size


def write_clones(module: Module) -> None:
    """``clone_ingress``: the frame as it came in, parsed again, with nothing kept but the field list; ``clone_egress``: the
    headers as they are."""
    writer = PacketWriter(module, "clone_ingress", "ptr noalias %o, ptr noalias %c, i64 %port")
    _clone(writer, module, INGRESS_CLONE)
    writer = PacketWriter(module, "clone_egress", "ptr noalias %o, ptr noalias %c")
    _clone(writer, module, EGRESS_CLONE)


def _clone(writer: PacketWriter, module: Module, instance: int) -> None:
    """Make the clone of a packet, whose state is %o, in the next state, %s."""
    out, layout = writer.out, module.layout
    space = out.space(max(8, writer.kept))
    out.line(f"%s = getelementptr inbounds i8, ptr %o, i64 {layout.stride}")
    depth = out.op("add", 64, out.load(out.offset("%o", int(Head.DEPTH)), 64, 8), 1)
    too_deep = out.compare("uge", 64, depth, DEEPEST)
    writer.fail(out, too_deep, f"a packet clones itself {DEEPEST} times over; it is dropped")
    marks = {}
    for name in ("clone_session", "clone_list"):
        variable = writer.variables.mark(name)
        held = storage(variable.bits)
        marks[name] = out.resize(out.load(out.offset("%o", layout.offsets[variable]), held), held, 64)
    replicas, count = writer.replicas(Context.SESSIONS, marks["clone_session"])
    with out.when(out.compare("eq", 64, count, 0)):
        out.give("i32 0")
    writer.by_list(
        marks["clone_list"],
        lambda each, at: out.copy(
            out.offset(space, at), out.offset("%o", layout.offsets[each]), storage(each.bits) // 8
        ),
    )
    if instance == INGRESS_CLONE:
        size = out.load(out.offset("%o", int(Head.RECEIVED)), 64, 8)
        writer.begin(out.load_pointer("%o"), size, "%port")
        writer.set_head(Head.DEPTH, depth)
        writer.call("parse")
    else:
        out.copy("%s", "%o", layout.size)
        writer.set_head(Head.DEPTH, depth)
        writer.set_mark("truncated", str(WHOLE))
    writer.clear_metadata()
    writer.restore(marks["clone_list"], space)
    writer.call("copies", "ptr %s", "ptr %c", f"ptr {replicas}", f"i64 {count}", f"i64 {instance}")
    out.give("i32 0")
