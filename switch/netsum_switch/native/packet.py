"""A packet's way: parser, ingress, copies, egress, deparser, and again what starts over.

    i32 process(ptr context, ptr frame, i64 length, i64 port)

gives 0, or the number of an error, after which the packet has no records. It touches nothing but the memory that the context
points to and calls nothing but the clock, so compiled code can call it in a loop: what comes out are records (`layout.Record`)
in memory. What happens after each control is simple_switch's: docs/simple_switch.md there.
"""

from __future__ import annotations

from collections.abc import Callable

from netsum_switch.lowering.values import Variable
from netsum_switch.native import bytes as wire
from netsum_switch.native.assembly import Register
from netsum_switch.native.layout import (
    DEEPEST,
    EGRESS_FIELDS,
    RECORD_BYTES,
    Context,
    Head,
    Record,
    storage,
)
from netsum_switch.native.module import Module, refuse
from netsum_switch.native.statements import StatementWriter

# simple_switch's PKT_INSTANCE_TYPE_*
NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRC, REPLICATION, RESUBMIT = 0, 1, 2, 4, 5, 6
WHOLE = 1 << 30  # the length that a packet that is not truncated is cut to
MAX_PASSES = 1 << 16
NO_ROOM = "there is no room for what a packet becomes; it is dropped"


class PacketWriter(StatementWriter):
    """What the functions of this module have in common."""

    def __init__(self, module: Module, name: str, parameters: str = "ptr noalias %s, ptr noalias %c") -> None:
        super().__init__(module, name, parameters)
        self.lowered = module.lowered
        self.variables = module.lowered.variables
        self.expressions.where = f"what comes after the control ({name})"

    def set_number(self, target: Variable, value: Register) -> None:
        """Set a variable to an i64."""
        held = storage(target.bits)
        cut = self.out.resize(value, 64, target.bits) if target.bits < 64 else value
        self.out.store(self.out.resize(cut, min(target.bits, 64), held), self.expressions.pointer(target), held)

    def set_standard(self, name: str, value: Register) -> None:
        if self.variables.has("standard_metadata", name):
            self.set_number(self.variables.standard(name), value)

    def set_mark(self, name: str, value: Register) -> None:
        self.set_number(self.variables.mark(name), value)

    def mark(self, name: str) -> Register:
        return self.expressions.emit(self.variables.mark(name), 64)

    def clock(self) -> Register:
        return self.out.value(f"call i64 {self.pointer(Context.CLOCK)}(ptr %c)")

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
        self.commit(Context.PENDING, Record.PENDING, argument, total)

    def reserve(self, word: Register | int, size: Register) -> Register:
        """Room for a record's bytes, or an error."""
        at = self.out.value(f"call ptr @reserve(ptr %c, i64 {word}, i64 {size})")
        self.fail(self.out, self.out.value(f"icmp eq ptr {at}, null"), NO_ROOM)
        return at

    def commit(self, word: int, kind: int, argument: Register, size: Register) -> None:
        self.out.line(f"call void @commit(ptr %c, i64 {int(word)}, i64 {int(kind)}, i64 {argument}, i64 {size})")


def write_ingress(module: Module) -> None:
    """``ingress``: a frame from the parser to its copies."""
    parameters = "ptr noalias %s, ptr noalias %c, ptr %frame, i64 %size, i64 %port, i64 %instance, i64 %list, ptr %kept"
    writer = PacketWriter(module, "ingress", parameters)
    out, lowered = writer.out, module.lowered
    _begin(writer, "%frame", "%size", "%port")
    writer.set_standard("packet_length", "%size")
    writer.set_standard("instance_type", "%instance")
    # Metadata of packets that start over is 0, unless kept.
    with out.when(out.compare("eq", 64, "%instance", NORMAL)):
        if lowered.variables.has("standard_metadata", "ingress_global_timestamp"):
            writer.set_standard("ingress_global_timestamp", writer.clock())
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


def _begin(writer: PacketWriter, frame: Register, size: Register, port: Register) -> None:
    """The state of a packet that comes in."""
    out, layout = writer.out, writer.module.layout
    out.clear(out.offset("%s", int(Head.END)), layout.narrow_end - Head.END)
    for group, (start, length) in layout.wide.items():
        flag = out.offset("%s", layout.flag(group))
        with out.when(out.compare("ne", 8, out.load(flag, 8), 0)):
            out.clear(out.offset("%s", start), length)
            out.store("0", flag, 8)
    out.line(f"store ptr {frame}, ptr %s, align 8")
    writer.set_head(Head.RECEIVED, size)
    writer.set_head(Head.AT, "0")
    writer.set_mark("length", size)
    writer.set_mark("truncated", str(WHOLE))
    writer.set_standard("ingress_port", port)


def _forward(writer: PacketWriter) -> None:
    """Multicast, drop or unicast."""
    out, lowered = writer.out, writer.lowered
    group = lowered.variables.standard("mcast_grp")
    if group.bits > 16:
        raise refuse(f"the program's multicast groups have {group.bits} bits")
    number = writer.expressions.emit(group, 64)
    with out.when(out.compare("ne", 64, number, 0)):
        writer.set_mark("truncated", str(WHOLE))  # BMv2 makes whole copies
        replicas, count = _replicas(writer, Context.GROUPS, number)
        writer.call("copies", "ptr %s", "ptr %c", f"ptr {replicas}", f"i64 {count}", f"i64 {REPLICATION}")
        out.give("i32 0")
    with out.when(writer.dropped()):
        out.give("i32 0")
    port = writer.expressions.emit(lowered.variables.standard("egress_spec"), 64)
    writer.call("egress", "ptr %s", "ptr %c", f"i64 {port}", "i64 0", f"i64 {NORMAL}")


def _replicas(writer: PacketWriter, word: int, number: Register) -> tuple[Register, Register]:
    """(pointer to the replicas, how many) of a group or session; the number is one of 16 bits or fewer."""
    out = writer.out
    entry = out.offset(writer.pointer(word), out.op("shl", 64, number, 3))
    first, count = (out.resize(out.load(out.offset(entry, at), 32, 4), 32, 64) for at in (0, 4))
    return out.offset(writer.pointer(word + 1), out.op("shl", 64, first, 4)), count


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
    """Into the next state, %s, what comes of the one at hand, %o."""
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
    replicas, count = _replicas(writer, Context.SESSIONS, marks["clone_session"])
    with out.when(out.compare("eq", 64, count, 0)):
        out.give("i32 0")
    writer.by_list(
        marks["clone_list"],
        lambda each, at: out.copy(out.offset(space, at), out.offset("%o", layout.offsets[each]), storage(each.bits) // 8),
    )
    if instance == INGRESS_CLONE:
        size = out.load(out.offset("%o", int(Head.RECEIVED)), 64, 8)
        _begin(writer, out.load_pointer("%o"), size, "%port")
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


def write_egress(module: Module) -> None:
    """``egress``: one copy, to a record."""
    writer = PacketWriter(module, "egress", "ptr noalias %s, ptr noalias %c, i64 %port, i64 %rid, i64 %instance")
    out, lowered = writer.out, module.lowered
    spec = lowered.drop_port + 1 & (1 << lowered.variables.standard("egress_spec").bits) - 1
    values = {"egress_port": "%port", "egress_rid": "%rid", "instance_type": "%instance", "egress_spec": str(spec)}
    for name in EGRESS_FIELDS:  # there is no queue: what is not said is 0
        if not lowered.variables.has("standard_metadata", name):
            continue
        if name in ("egress_global_timestamp", "enq_timestamp"):
            writer.set_standard(name, writer.clock())
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
    out.line(f"store ptr {out.offset(room, kept)}, ptr {place}, align 8")
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
    out.line(f"store ptr {at}, ptr {place}, align 8")


def _write_fields(writer: PacketWriter, name: str, fields: list[Variable], at: Register) -> Register:
    """Fields end to end; a pointer behind them."""
    out, assembly = writer.out, writer.module.assembly
    end = 0
    for group in wire.groups([each.bits for each in fields], name):
        to, end = out.offset(at, group.at), group.at + group.size
        sources = [writer.expressions.pointer(each) for each in fields[group.first : group.first + len(group.widths)]]
        if wire.is_wide(group):
            wire.reverse_limbs(assembly, out, to, sources[0], group.size // 8)
            continue
        values = [
            out.load(source, storage(bits), min(storage(bits), 64) // 8)
            for source, bits in zip(sources, group.widths, strict=True)
        ]
        wire.store_big(assembly, out, wire.number_of(out, values, group), to, group.size)
    return out.offset(at, end)


def write_process(module: Module) -> None:
    """``process``: a frame, and whatever of it starts over."""
    out = module.assembly.function("process", "ptr noalias %c, ptr %frame, i64 %size, i64 %port", linkage="")
    word = {each: out.offset("%c", 8 * each) for each in Context}
    state = out.load_pointer(word[Context.STATES])
    out.store("0", out.offset(state, int(Head.DEPTH)), 64, 8)
    space, room = out.load(word[Context.PENDING_SPACE], 64, 8), out.load(word[Context.PENDING_SIZE], 64, 8)
    turn, passes, cursor = out.space(8), out.space(8), out.space(8)
    out.store("0", turn, 64, 8)
    out.store("0", passes, 64, 8)
    out.store(space, word[Context.PENDING], 64, 8)
    out.store(out.op("add", 64, space, room), word[Context.PENDING_END], 64, 8)
    error = out.value(f"call i32 @ingress(ptr {state}, ptr %c, ptr %frame, i64 %size, i64 %port, i64 0, i64 0, ptr null)")
    failed, generation, each, after = out.label(), out.label(), out.label(), out.label()
    out.branch(out.compare("ne", 32, error, 0), failed, generation)
    out.begin(failed)
    out.give(f"i32 {error}")

    out.begin(generation)  # what waits now; what it makes waits in the other space
    now = out.load(turn, 64, 8)
    start = out.op("add", 64, space, out.op("mul", 64, now, room))
    end = out.load(word[Context.PENDING], 64, 8)
    with out.when(out.compare("eq", 64, end, start)):
        out.give("i32 0")
    other = out.op("sub", 64, 1, now)
    out.store(other, turn, 64, 8)
    next_start = out.op("add", 64, space, out.op("mul", 64, other, room))
    out.store(next_start, word[Context.PENDING], 64, 8)
    out.store(out.op("add", 64, next_start, room), word[Context.PENDING_END], 64, 8)
    out.store(start, cursor, 64, 8)
    out.begin(each)
    at = out.load(cursor, 64, 8)
    out.branch(out.compare("ult", 64, at, end), after, generation)
    out.begin(after)
    count = out.op("add", 64, out.load(passes, 64, 8), 1)
    out.store(count, passes, 64, 8)
    with out.when(out.compare("ugt", 64, count, MAX_PASSES)):
        out.give(f"i32 {module.error(f'a packet started over {MAX_PASSES} times; dropped')}")
    record = out.value(f"inttoptr i64 {at} to ptr")
    argument, size = (out.load(out.offset(record, offset), 64, 8) for offset in (8, 16))
    whole = out.op("and", 64, out.op("add", 64, size, RECORD_BYTES + 7), -8)
    out.store(out.op("add", 64, at, whole), cursor, 64, 8)
    kept = out.offset(record, RECORD_BYTES)
    arguments = (
        f"ptr {state}", "ptr %c", f"ptr {out.offset(kept, kept_bytes(module))}", f"i64 {out.op('sub', 64, size, kept_bytes(module))}",
        "i64 0", f"i64 {out.op('and', 64, argument, 255)}", f"i64 {out.op('lshr', 64, argument, 8)}", f"ptr {kept}",
    )  # fmt: skip
    error = out.value(f"call i32 @ingress({', '.join(arguments)})")
    good = out.compare("eq", 32, error, 0)
    with out.when(out.op("xor", 1, good, "true")):
        out.give(f"i32 {error}")
    out.jump(each)


def kept_bytes(module: Module) -> int:
    """Bytes of the longest field list."""
    sizes = [sum(storage(each.bits) // 8 for each in fields) for fields in module.lowered.field_lists.values()]
    return (max(sizes, default=0) + 7) // 8 * 8
