# SPDX-License-Identifier: MIT
"""The functions that carry a packet from one control to the next: ingress, egress, the deparser, and the copies of a packet."""

from __future__ import annotations

from collections.abc import Callable

from netsum_switch.lowering.values import (
    EGRESS_CLONE,
    EGRESS_FIELDS,
    INGRESS_CLONE,
    NORMAL,
    RECIRC,
    REPLICATION,
    RESUBMIT,
    Variable,
)
from netsum_switch.native import wide_integers as wire
from netsum_switch.native.layout import (
    DEEPEST,
    GROUP_IDS,
    LENGTHS_AT,
    MAX_PASSES,
    PASSES_IN_TURN,
    PRIORITIES_AT,
    RECORD_BYTES,
    WHOLE,
    Context,
    Head,
    OutputKind,
    storage,
)
from netsum_switch.native.llvm_builder import LlvmFunction, Register
from netsum_switch.native.module import FUNCTION, Module
from netsum_switch.native.statements import StatementWriter

# What the functions that carry a packet from one control to the next have in common.
#
# What happens after each control is simple_switch's: docs/simple_switch.md there, "Pseudocode for what happens at the
# end of ingress and egress processing".


NO_ROOM = "there is no room for what a packet becomes; it is dropped"


class PacketWriter(StatementWriter):
    """The common base of the functions of this module."""

    def __init__(self, module: Module, name: str, parameters: str = FUNCTION) -> None:
        super().__init__(module, name, parameters)
        self.lowered = module.lowered
        self.variables = module.lowered.variables
        self.expressions.where = f"what comes after the control ({name})"

    def set_standard(self, name: str, value: Register) -> None:
        if self.variables.has("standard_metadata", name):
            self.set_number(self.variables.standard(name), value)

    def set_mark(self, name: str, value: Register) -> None:
        self.set_number(self.variables.mark(name), value)

    def mark(self, name: str) -> Register:
        return self.expressions.emit(self.variables.mark(name), 64)

    def set_time(self, name: str) -> None:
        """Set a timestamp that the program reads: a call of the clock takes time."""
        if self.variables.has("standard_metadata", name) and self.variables.standard(name) in self.module.read:
            self.set_standard(name, self.out.value(f"call i64 {self.pointer(Context.CLOCK)}(ptr %c)"))

    def dropped(self) -> Register:
        spec = self.variables.standard("egress_spec")
        bits = max(spec.bits, 64)
        return self.out.compare("eq", bits, self.expressions.emit(spec, bits), self.lowered.drop_port)

    def by_list(self, number: Register, each: Callable[[Variable, int], None]) -> None:
        """Do something with each variable of the field list with this number, and the offset that it is kept at."""
        for wanted, fields in self.lowered.field_lists.items():
            if not fields or wanted == 0:
                continue
            with self.out.when(self.out.compare("eq", 64, number, wanted)):
                at = 0
                for variable in fields:
                    each(variable, at)
                    at += storage(variable.bits) // 8

    @property
    def kept(self) -> int:
        return kept_bytes(self.module)

    def keep(self, number: Register, to: Register) -> None:
        """Copy a field list's variables to memory."""
        self.by_list(number, lambda each, at: self._move(self.out.offset(to, at), self.expressions.pointer(each), each))

    def restore(self, number: Register, of: Register) -> None:
        self.by_list(number, lambda each, at: self._move(self.expressions.pointer(each), self.out.offset(of, at), each))

    def _move(self, to: Register, of: Register, variable: Variable) -> None:
        self.out.copy(to, of, storage(variable.bits) // 8)
        self._touch(variable)

    def clear_metadata(self) -> None:
        for each in self.variables.metadata():
            self.assign(each, self.lowered.values.zero)

    def start_over(self, frame: Register, size: Register, instance: int, mark: str) -> None:
        """Put a frame where those wait that start over, with the kept variables."""
        number = self.mark(mark)
        total = self.out.op("add", 64, size, self.kept)
        at = self.reserve(int(Context.PENDING), total)
        self.out.clear(at, self.kept)
        self.keep(number, at)
        self.out.copy(self.out.offset(at, self.kept), frame, size)
        argument = self.out.op("or", 64, self.out.op("shl", 64, number, 8), instance)
        self.commit(Context.PENDING, OutputKind.PENDING, argument, total)

    def reserve(self, word: Register | int, size: Register) -> Register:
        """Room for a record's bytes, or an error."""
        at = self.out.value(f"call ptr @reserve(ptr %c, i64 {word}, i64 {size})")
        self.fail(self.out, self.out.value(f"icmp eq ptr {at}, null"), NO_ROOM)
        return at

    def commit(self, word: int, kind: int, argument: Register, size: Register) -> None:
        self.out.line(f"call void @commit(ptr %c, i64 {int(word)}, i64 {int(kind)}, i64 {argument}, i64 {size})")

    def leave_ingress(self, port: Register, rid: Register, instance: Register) -> None:
        """Hand a copy to egress, by way of the port's queue where the program has queues."""
        name = "enqueue" if self.module.queued else "egress"
        self.call(name, "ptr %s", "ptr %c", f"i64 {port}", f"i64 {rid}", f"i64 {instance}")

    def begin(self, frame: Register, size: Register, port: Register) -> None:
        """The state of a packet that comes in."""
        out, layout = self.out, self.module.layout
        out.clear(out.offset("%s", int(Head.END)), layout.narrow_end - Head.END)
        for group, (start, length) in layout.wide.items():
            flag = out.offset("%s", layout.flag(group))
            with out.when(out.compare("ne", 8, out.load(flag, 8), 0)):
                out.clear(out.offset("%s", start), length)
                out.store("0", flag, 8)
        out.store_pointer(frame, "%s")
        self.set_head(Head.RECEIVED, size)
        self.set_head(Head.AT, "0")
        self.set_mark("length", size)
        self.set_mark("truncated", str(WHOLE))
        self.set_standard("ingress_port", port)

    def replicas(self, word: int, number: Register) -> tuple[Register, Register]:
        """(pointer to the replicas, how many) of a group or session; the number is one of 16 bits or fewer."""
        out = self.out
        entry = out.offset(self.pointer(word), out.op("shl", 64, number, 3))
        first, count = (out.resize(out.load(out.offset(entry, at), 32, 4), 32, 64) for at in (0, 4))
        return out.offset(self.pointer(word + 1), out.op("shl", 64, first, 4)), count


def kept_bytes(module: Module) -> int:
    """Bytes of the longest field list."""
    sizes = [sum(storage(each.bits) // 8 for each in fields) for fields in module.lowered.field_lists.values()]
    return (max(sizes, default=0) + 7) // 8 * 8


# Copies of a packet: to the members of a group, and clones.


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
        writer.leave_ingress(port, rid, "%instance")
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
    lengths = out.offset(writer.pointer(Context.SESSIONS), LENGTHS_AT)
    most = out.resize(out.load(out.offset(lengths, out.op("shl", 64, marks["clone_session"], 2)), 32, 4), 32, 64)
    writer.by_list(
        marks["clone_list"],
        lambda each, at: out.copy(out.offset(space, at), out.offset("%o", layout.offsets[each]), storage(each.bits) // 8),
    )
    if instance == INGRESS_CLONE:
        size = out.load(out.offset("%o", int(Head.RECEIVED)), 64, 8)
        writer.begin(out.load_pointer("%o"), size, "%port")
        writer.set_head(Head.DEPTH, depth)
        writer.call("parse")
    else:
        out.copy("%s", "%o", layout.size)
        writer.set_head(Head.DEPTH, depth)
    writer.set_mark("truncated", most)
    writer.clear_metadata()
    writer.restore(marks["clone_list"], space)
    if module.queued and writer.variables.has("standard_metadata", "priority"):
        priorities = out.offset(writer.pointer(Context.SESSIONS), PRIORITIES_AT)
        priority = out.load(out.offset(priorities, marks["clone_session"]), 8)
        with out.when(out.compare("ne", 8, priority, 0)):
            writer.set_standard("priority", out.resize(priority, 8, 64))
    writer.call("copies", "ptr %s", "ptr %c", f"ptr {replicas}", f"i64 {count}", f"i64 {instance}")
    out.give("i32 0")


# Egress and the deparser: one copy of a packet becomes a record.


def write_egress(module: Module) -> None:
    """``egress``: one copy, to a record."""
    parameters = "ptr noalias %s, ptr noalias %c, i64 %port, i64 %rid, i64 %instance"
    if module.queued:
        parameters += ", i64 %enqueued, i64 %depth, i64 %waited, i64 %left"
    writer = PacketWriter(module, "egress", parameters)
    out, lowered = writer.out, module.lowered
    spec = lowered.drop_port + 1 & (1 << lowered.variables.standard("egress_spec").bits) - 1
    values = {"egress_port": "%port", "egress_rid": "%rid", "instance_type": "%instance", "egress_spec": str(spec)}
    if module.queued:
        values |= {"enq_timestamp": "%enqueued", "enq_qdepth": "%depth", "deq_timedelta": "%waited", "deq_qdepth": "%left"}
    for name in EGRESS_FIELDS:  # without a queue, what is not said is 0
        if name in ("egress_global_timestamp", "enq_timestamp") and name not in values:
            writer.set_time(name)
        else:
            writer.set_standard(name, writer.mark("length") if name == "packet_length" else values.get(name, "0"))
    for name in ("clone", "leaving"):
        writer.set_mark(name, "0")
    with out.unless(out.compare("eq", 64, "%instance", NORMAL)):
        writer.set_mark("recirculate", "0")  # of copies; a packet that ingress has marked starts over behind the deparser
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
        writer.commit(Context.PENDING, OutputKind.PENDING, argument, out.op("add", 64, total, kept))
        out.give("i32 0")
    most = writer.mark("truncated")
    size = out.choose(out.compare("ult", 64, total, most), 64, total, most)
    writer.commit(Context.OUT, OutputKind.SENT, "%port", size)


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
    start = out.load_pointer(place)
    split = len(fields)
    if length is not None:
        split = next(number for number, each in enumerate(writer.lowered.program.headers[name].fields) if each.varbit)
    at = _write_fields(writer, fields[:split], start, 0)
    if length is not None:
        size = out.op("lshr", 64, writer.expressions.emit(length, 64), 3)
        to = out.offset(start, at // 8)
        writer.append_varbit(to, str(at % 8), fields[split], size, aligned=at % 8 == 0)
        start = out.offset(start, size)
        at = _write_fields(writer, fields[split + 1 :], start, at)
    out.store_pointer(out.offset(start, at // 8), place)


def _write_fields(writer: PacketWriter, fields: list[Variable], base: Register, at: int) -> int:
    """Write fields end to end, the first ``at`` bits behind a place; the bits up to their end."""
    out, assembly = writer.out, writer.module.assembly
    for group in wire.groups([each.bits for each in fields], at):
        to, sources = out.offset(base, group.at // 8), fields[group.first : group.first + len(group.widths)]
        if len(sources) == 1:
            writer.append(to, str(group.at % 8), sources[0], sources[0].bits, aligned=group.whole)
        else:
            values = [
                out.load(writer.expressions.pointer(each), storage(each.bits), min(storage(each.bits), 64) // 8)
                for each in sources
            ]
            wire.store_big(assembly, out, wire.number_of(out, values, group), to, group.size)
    return at + sum(each.bits for each in fields)


# Ingress, and the function that the module is there for.
#
#     i32 process(ptr context, ptr frame, i64 length, i64 port)
#
# gives 0, or the number of an error. It touches nothing but the memory that the context points to and calls nothing but
# the clock, so compiled code can call it in a loop: what comes out are records (`layout.Record`) in memory.


def write_ingress(module: Module) -> None:
    """``ingress``: a frame from the parser to its copies."""
    parameters = "ptr noalias %s, ptr noalias %c, ptr %frame, i64 %size, i64 %port, i64 %instance, i64 %list, ptr %kept"
    writer = PacketWriter(module, "ingress", parameters)
    out, lowered = writer.out, module.lowered
    writer.begin("%frame", "%size", "%port")
    # Metadata of packets that start over is 0, unless kept.
    with out.when(out.compare("eq", 64, "%instance", NORMAL)):
        writer.set_time("ingress_global_timestamp")
    writer.restore("%list", "%kept")
    # These are never kept, also not by a field list with all of standard_metadata (P4_14).
    writer.set_standard("packet_length", "%size")
    writer.set_standard("instance_type", "%instance")
    writer.call("parse")
    writer.call("verify")
    writer.call("control_ingress")
    with out.when(writer.expressions.condition(lowered.variables.mark("clone"))):
        writer.call("clone_ingress", "ptr %s", "ptr %c", "i64 %port")
    for digest in lowered.digests:
        same = out.compare("eq", 64, writer.mark("digest"), digest.list_id)
        with out.when(same):
            writer.record(Context.OUT, OutputKind.DIGEST, str(digest.list_id), digest.values)
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
    number = writer.expressions.at_most(group)
    with out.when(out.compare("ne", 64, number, 0)):
        with out.unless(out.compare("ult", 64, number, GROUP_IDS)):
            out.give("i32 0")  # there is no such group
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
    writer.leave_ingress(port, rid, str(NORMAL))


def write_process(module: Module) -> None:
    """``process``: a frame, and whatever of it starts over. What waits to start over lies in one of two spaces; what that
    makes waits in the other, and then it is the other way round."""
    out = module.assembly.function("process", "ptr noalias %c, ptr %frame, i64 %size, i64 %port", linkage="")
    state = out.load_pointer(out.offset("%c", 8 * Context.STATES))
    out.store("0", out.offset(state, int(Head.DEPTH)), 64, 8)
    wait_in(out, 0)
    _ingress(out, state, "%frame", "%size", "%port", "0", "0", "null")
    run_generations(module, out, state, "0")


def wait_in(out: LlvmFunction, space: Register | int) -> Register:
    """Make packets that start over wait in this one of the two spaces from now on; gives where it begins."""
    word = {each: out.offset("%c", 8 * each) for each in Context}
    room = out.load(word[Context.PENDING_SIZE], 64, 8)
    start = out.op("add", 64, out.load(word[Context.PENDING_SPACE], 64, 8), out.op("mul", 64, room, space))
    out.store(start, word[Context.PENDING], 64, 8)
    out.store(out.op("add", 64, start, room), word[Context.PENDING_END], 64, 8)
    return start


def run_generations(module: Module, out: LlvmFunction, state: Register, passes_before: Register) -> None:
    """Run what starts over, beginning with what waits in the first space, and end the function. After so many passes that others
    would wait long, packets become records, for later."""
    turn, passes, cursor, start = out.number(), out.number(passes_before), out.space(8), out.number()
    last = out.op("add", 64, passes_before, PASSES_IN_TURN)
    first = out.load(out.offset("%c", 8 * Context.PENDING_SPACE), 64, 8)
    out.store(first, start, 64, 8)
    generation, each, another = out.label(), out.label(), out.label()
    out.begin(generation)
    begin, end = out.load(start, 64, 8), out.load(out.offset("%c", 8 * Context.PENDING), 64, 8)
    with out.when(out.compare("eq", 64, end, begin)):
        out.give("i32 0")
    other = out.op("sub", 64, 1, out.load(turn, 64, 8))
    out.store(other, turn, 64, 8)
    out.store(wait_in(out, other), start, 64, 8)
    out.store(begin, cursor, 64, 8)
    out.begin(each)
    at = out.load(cursor, 64, 8)
    out.branch(out.compare("ult", 64, at, end), another, generation)
    out.begin(another)
    record = out.pointer_to(at)
    argument, size = (out.load(out.offset(record, offset), 64, 8) for offset in (8, 16))
    whole = out.op("and", 64, out.op("add", 64, size, RECORD_BYTES + 7), -8)
    out.store(out.op("add", 64, at, whole), cursor, 64, 8)
    body = out.offset(record, RECORD_BYTES)
    so_far = out.load(passes, 64, 8)
    with out.when(out.compare("uge", 64, so_far, MAX_PASSES)):
        out.give(f"i32 {module.error(f'a packet started over {MAX_PASSES} times; dropped')}")
    with out.when(out.compare("uge", 64, so_far, last)):
        total = out.op("add", 64, size, 8)
        room = out.value(f"call ptr @reserve(ptr %c, i64 {int(Context.OUT)}, i64 {total})")
        with out.when(out.value(f"icmp eq ptr {room}, null")):
            out.give(f"i32 {module.error(NO_ROOM)}")
        out.store(so_far, room, 64, 8)
        out.copy(out.offset(room, 8), body, size)
        kind = f"i64 {int(Context.OUT)}, i64 {int(OutputKind.DEFERRED)}"
        out.line(f"call void @commit(ptr %c, {kind}, i64 {argument}, i64 {total})")
        out.jump(each)
    out.increment(passes)
    _start_over(module, out, state, body, argument, size)
    out.jump(each)


def _start_over(module: Module, out: LlvmFunction, state: Register, kept: Register, argument: Register, size: Register) -> None:
    """Run a frame that waits: its kept variables lie before it."""
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
