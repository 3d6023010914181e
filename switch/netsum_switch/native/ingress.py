"""Ingress, and the function that the module is there for.

    i32 process(ptr context, ptr frame, i64 length, i64 port)

gives 0, or the number of an error. It touches nothing but the memory that the context points to and calls nothing but the clock,
so compiled code can call it in a loop: what comes out are records (`layout.Record`) in memory.
"""

from __future__ import annotations

from netsum_switch.lowering.standard import NORMAL, REPLICATION, RESUBMIT
from netsum_switch.native.layout import RECORD_BYTES, Context, Head, Record
from netsum_switch.native.llvm_builder import LlvmFunction, Register
from netsum_switch.native.module import Module, refuse
from netsum_switch.native.packet import WHOLE, PacketWriter, kept_bytes
from netsum_switch.pipeline import MAX_PASSES


def write_ingress(module: Module) -> None:
    """``ingress``: a frame from the parser to its copies."""
    parameters = "ptr noalias %s, ptr noalias %c, ptr %frame, i64 %size, i64 %port, i64 %instance, i64 %list, ptr %kept"
    writer = PacketWriter(module, "ingress", parameters)
    out, lowered = writer.out, module.lowered
    writer.begin("%frame", "%size", "%port")
    writer.set_standard("packet_length", "%size")
    writer.set_standard("instance_type", "%instance")
    # Metadata of packets that start over is 0, unless kept.
    with out.when(out.compare("eq", 64, "%instance", NORMAL)):
        writer.set_time("ingress_global_timestamp")
    writer.restore("%list", "%kept")
    writer.call("parse")
    writer.call("verify")
    writer.call("control_ingress")
    with out.when(writer.expressions.condition(lowered.variables.mark("clone"))):
        writer.call("clone_ingress", "ptr %s", "ptr %c", "i64 %port")
    for digest in lowered.digests:
        same = out.compare("eq", 64, writer.mark("digest"), digest.list_id)
        with out.when(same):
            writer.record(Context.OUT, Record.DIGEST, str(digest.list_id), digest.values)
        module.image.digests[digest.list_id] = [(each.bits, each.signed) for each in digest.values]
    with out.when(out.compare("ne", 64, writer.mark("resubmit"), 0)):
        writer.start_over("%frame", "%size", RESUBMIT, "resubmit")
        out.give("i32 0")
    _forward(writer)
    out.give("i32 0")


def _forward(writer: PacketWriter) -> None:
    """Multicast, drop or unicast."""
    out, lowered = writer.out, writer.lowered
    group = lowered.variables.standard("mcast_grp")
    if group.bits > 16:
        raise refuse(f"the program's multicast groups have {group.bits} bits")
    number = writer.expressions.emit(group, 64)
    with out.when(out.compare("ne", 64, number, 0)):
        writer.set_mark("truncated", str(WHOLE))  # BMv2 makes whole copies
        replicas, count = writer.replicas(Context.GROUPS, number)
        writer.call("copies", "ptr %s", "ptr %c", f"ptr {replicas}", f"i64 {count}", f"i64 {REPLICATION}")
        out.give("i32 0")
    with out.when(writer.dropped()):
        out.give("i32 0")
    port = writer.expressions.emit(lowered.variables.standard("egress_spec"), 64)
    rid: Register = "0"  # what ingress made it stays
    if lowered.variables.has("standard_metadata", "egress_rid"):
        rid = writer.expressions.emit(lowered.variables.standard("egress_rid"), 64)
    writer.call("egress", "ptr %s", "ptr %c", f"i64 {port}", f"i64 {rid}", f"i64 {NORMAL}")


def write_process(module: Module) -> None:
    """``process``: a frame, and whatever of it starts over. What waits to start over lies in one of two spaces; what that
    makes waits in the other, and then it is the other way round."""
    out = module.assembly.function("process", "ptr noalias %c, ptr %frame, i64 %size, i64 %port", linkage="")
    word = {each: out.offset("%c", 8 * each) for each in Context}
    state = out.load_pointer(word[Context.STATES])
    out.store("0", out.offset(state, int(Head.DEPTH)), 64, 8)
    space, room = out.load(word[Context.PENDING_SPACE], 64, 8), out.load(word[Context.PENDING_SIZE], 64, 8)
    turn, passes, cursor = out.number(), out.number(), out.space(8)
    _wait_in(out, word, space, room)
    _ingress(out, state, "%frame", "%size", "%port", "0", "0", "null")
    generation, each, another = out.label(), out.label(), out.label()
    out.begin(generation)
    now = out.load(turn, 64, 8)
    start, end = out.op("add", 64, space, out.op("mul", 64, now, room)), out.load(word[Context.PENDING], 64, 8)
    with out.when(out.compare("eq", 64, end, start)):
        out.give("i32 0")
    other = out.op("sub", 64, 1, now)
    out.store(other, turn, 64, 8)
    _wait_in(out, word, out.op("add", 64, space, out.op("mul", 64, other, room)), room)
    out.store(start, cursor, 64, 8)
    out.begin(each)
    at = out.load(cursor, 64, 8)
    out.branch(out.compare("ult", 64, at, end), another, generation)
    out.begin(another)
    with out.when(out.compare("ugt", 64, out.increment(passes), MAX_PASSES)):
        out.give(f"i32 {module.error(f'a packet started over {MAX_PASSES} times; dropped')}")
    _start_over(module, out, state, at, cursor)
    out.jump(each)


def _wait_in(out: LlvmFunction, word: dict[Context, Register], start: Register, room: Register) -> None:
    """What starts over waits in this space from now on."""
    out.store(start, word[Context.PENDING], 64, 8)
    out.store(out.op("add", 64, start, room), word[Context.PENDING_END], 64, 8)


def _start_over(module: Module, out: LlvmFunction, state: Register, at: Register, cursor: Register) -> None:
    """Run a frame that waits, and go on to the next."""
    record = out.pointer_to(at)
    argument, size = (out.load(out.offset(record, offset), 64, 8) for offset in (8, 16))
    whole = out.op("and", 64, out.op("add", 64, size, RECORD_BYTES + 7), -8)
    out.store(out.op("add", 64, at, whole), cursor, 64, 8)
    kept = out.offset(record, RECORD_BYTES)
    frame, length = out.offset(kept, kept_bytes(module)), out.op("sub", 64, size, kept_bytes(module))
    instance, fields = out.op("and", 64, argument, 255), out.op("lshr", 64, argument, 8)
    _ingress(out, state, frame, length, "0", instance, fields, kept)


def _ingress(out: LlvmFunction, state: Register, frame: Register, *rest: Register) -> None:
    """Call ``ingress``, and give its error on."""
    *numbers, kept = rest
    words = ", ".join(f"i64 {each}" for each in numbers)
    error = out.value(f"call i32 @ingress(ptr {state}, ptr %c, ptr {frame}, {words}, ptr {kept})")
    with out.when(out.compare("ne", 32, error, 0)):
        out.give(f"i32 {error}")
