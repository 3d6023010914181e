# SPDX-License-Identifier: MIT
"""The packet loop in machine code: frames from the ports through the program to the ports, with nothing of Python in between.

    i64 run(ptr context, ptr loop)

serves the ports in turn, a batch of frames each, until Python has something to do: a thread waits for the data plane's lock, a
port is one that only Python can serve, or there are records that Python reads. It gives the number of the port that waits for
Python, counted from 1, or 0. Records that are done with have the kind 0, and what is sent is read from them, so nothing is copied
for it.

`loop_layout` says where all of it lies, `sending` is the way out.
"""

from __future__ import annotations

from errno import EAGAIN, EINTR
from socket import MSG_DONTWAIT, MSG_TRUNC

from netsum_switch.native.io import (
    ADDRESS_BYTES,
    BATCH,
    CONTROL_BYTES,
    HEAD_BYTES,
    LARGE,
    LARGE_BATCH,
    MESSAGE_BYTES,
    POLL_BYTES,
    SEND_AT,
    Counter,
    Loop,
    MessageOffset,
    Wire,
    WireKind,
    add,
    descriptor,
    error_number,
    get,
    is_null,
    item,
    lose,
    pointer,
    put,
    put_pointer,
)
from netsum_switch.native.kernel_socket import write_socket_ports
from netsum_switch.native.layout import PORT_NUMBERS, RECORD_BYTES, Context, OutputKind
from netsum_switch.native.llvm_builder import LlvmFunction, Register
from netsum_switch.native.module import Module
from netsum_switch.native.offloads import write_arrivals
from netsum_switch.native.sending import write_sending
from netsum_switch.ports import offloads

_LONGEST_WAIT = 1000  # milliseconds


def write_loop(module: Module) -> None:
    """``run``, and what it calls."""
    assembly = module.assembly
    assembly.declare("poll", "i32 {}(ptr, i64, i32)")
    assembly.declare("recvmmsg", "i32 {}(i32, ptr, i32, i32, ptr)")
    assembly.declare("__errno_location", "ptr {}()")
    write_sending(assembly)
    write_arrivals(assembly)
    write_socket_ports(assembly)
    _write_sort(assembly.function("sort", "ptr %c, ptr %l, i64 %start, i32 %error", "void"))
    _write_take(assembly.function("take", "ptr %c, ptr %l, ptr %frame, i64 %size, i64 %port", "void"))
    _write_fetch(assembly.function("fetch", "ptr %l, ptr %w", "void"))
    _write_tag(assembly.function("put_tag", "ptr %message, ptr %frame", "i64"))
    _write_next(assembly.function("take_next", "ptr %c, ptr %l", "void"))
    _write_run(assembly.function("run", "ptr %c, ptr %l", "i64", linkage=""))


def _write_sort(out: LlvmFunction) -> None:
    """Queue what comes out of a packet at the ports, and count what is for Python. Of a packet that failed nothing is sent."""
    place = out.number("%start")
    head, some, send, drop, leave, after = (out.label() for _ in range(6))
    out.begin(head)
    at = out.load(place, 64, 8)
    out.branch(out.compare("ult", 64, at, get(out, "%c", Context.OUT)), some, after)
    out.begin(some)
    record = out.pointer_to(at)
    kind, port, size = (get(out, record, word) for word in range(3))
    whole = out.op("and", 64, out.op("add", 64, size, RECORD_BYTES + 7), -8)
    out.store(out.op("add", 64, at, whole), place, 64, 8)
    with out.when(out.compare("ne", 64, kind, OutputKind.SENT)):
        out.jump(leave)
    with out.when(out.compare("ne", 32, "%error", 0)):
        out.jump(drop)
    is_cpu = out.compare("eq", 64, port, get(out, "%l", Loop.CPU_PORT))
    with out.when(out.op("and", 1, is_cpu, out.compare("ne", 64, port, 0))):
        out.jump(leave)
    with out.when(out.compare("uge", 64, port, PORT_NUMBERS)):
        out.jump(drop)
    wire = out.load_pointer(item(out, pointer(out, "%l", Loop.BY_NUMBER), port, 8))
    out.branch(is_null(out, wire), drop, send)
    out.begin(send)
    with out.when(out.compare("eq", 64, get(out, wire, Wire.KIND), WireKind.PYTHON)):
        out.jump(leave)
    data = out.offset(record, RECORD_BYTES)
    out.line(f"call void @queue(ptr %l, ptr {wire}, ptr {data}, i64 {size})")
    out.begin(drop)
    put(out, record, 0, 0)
    out.jump(head)
    out.begin(leave)
    add(out, "%l", Loop.LEFT)
    out.jump(head)
    out.begin(after)
    out.give("void")


def _write_take(out: LlvmFunction) -> None:
    """Run a frame through the program and sort what comes out."""
    start = get(out, "%c", Context.OUT)
    error = out.value("call i32 @process(ptr %c, ptr %frame, i64 %size, i64 %port)")
    out.line(f"call void @sort(ptr %c, ptr %l, i64 {start}, i32 {error})")
    with out.when(out.compare("ne", 32, error, 0)):
        head = out.choose(out.compare("ult", 64, "%size", HEAD_BYTES), 64, "%size", HEAD_BYTES)
        total = out.op("add", 64, head, 16)
        room = out.value(f"call ptr @reserve(ptr %c, i64 {int(Context.OUT)}, i64 {total})")
        with out.when(out.value(f"icmp ne ptr {room}, null")):
            put(out, room, 0, "%port")
            put(out, room, 1, "%size")
            out.copy(out.offset(room, 16), "%frame", head)
            number = out.resize(error, 32, 64)
            commit = f"i64 {int(Context.OUT)}, i64 {int(OutputKind.FAILED)}, i64 {number}, i64 {total}"
            out.line(f"call void @commit(ptr %c, {commit})")
            add(out, "%l", Loop.LEFT)
    with out.when(out.compare("ugt", 64, _used(out), SEND_AT)):
        out.line("call void @send_all(ptr %l)")
        with out.when(out.compare("eq", 64, get(out, "%l", Loop.LEFT), 0)):
            put(out, "%c", Context.OUT, get(out, "%l", Loop.OUT_START))
    out.give("void")


def _now(out: LlvmFunction) -> Register:
    """The time by the context's clock, in microseconds."""
    return out.value(f"call i64 {pointer(out, '%c', Context.CLOCK)}(ptr %c)")


def _used(out: LlvmFunction) -> Register:
    """Bytes of the records since the last ones were sent."""
    return out.op("sub", 64, get(out, "%c", Context.OUT), get(out, "%l", Loop.OUT_START))


def _write_fetch(out: LlvmFunction) -> None:
    """Receive a batch from a port."""
    messages = pointer(out, "%l", Loop.MESSAGES)
    kind = get(out, "%w", Wire.KIND)
    named = out.op("or", 1, *(out.compare("eq", 64, kind, each) for each in (WireKind.LEARNING, WireKind.SOCKET)))
    name = out.choose(named, 32, ADDRESS_BYTES, 0)
    with out.each(str(BATCH)) as index:  # the kernel has written over these
        message = item(out, messages, index, MESSAGE_BYTES)
        out.store(name, out.offset(message, MessageOffset.NAME_LENGTH), 32, 4)
        out.store(str(CONTROL_BYTES), out.offset(message, MessageOffset.CONTROL_LENGTH), 64, 8)
    put(out, "%l", Loop.AT, 0)
    put(out, "%l", Loop.GOT, 0)
    put_pointer(out, "%l", Loop.WIRE, "%w")
    most = out.resize(get(out, "%w", Wire.TURN), 64, 32)
    got = out.value(f"call i32 @recvmmsg(i32 {descriptor(out)}, ptr {messages}, i32 {most}, i32 {int(MSG_DONTWAIT)}, ptr null)")
    with out.when(out.compare("sgt", 32, got, 0)):
        put(out, "%l", Loop.GOT, out.resize(got, 32, 64))
        with out.when(out.compare("eq", 32, got, most)):  # unless one of these is many frames
            put(out, "%w", Wire.TURN, BATCH)
        out.give("void")
    error = error_number(out)
    for nothing in (EAGAIN, EINTR):
        with out.when(out.compare("eq", 64, error, nothing)):
            out.give("void")
    with out.when(out.compare("eq", 64, get(out, "%w", Wire.KIND), WireKind.PACKET)):
        lose(out, error)
        out.give("void")
    add(out, pointer(out, "%w", Wire.COUNTERS), Counter.RX_ERRORS)  # of an earlier datagram; the port stays open
    out.give("void")


def _write_tag(out: LlvmFunction) -> None:
    """Put back an outer VLAN tag, which the kernel strips and reports separately. Gives the bytes that this takes."""
    control = out.load_pointer(out.offset("%message", MessageOffset.CONTROL))
    length = out.load(out.offset("%message", MessageOffset.CONTROL_LENGTH), 64, 8)
    with out.when(out.compare("ult", 64, length, 36)):  # struct cmsghdr, struct tpacket_auxdata
        out.give("i64 0")
    level_and_type = out.load(out.offset(control, 8), 64, 8)
    with out.when(out.compare("ne", 64, level_and_type, 8 << 32 | 263)):  # SOL_PACKET, PACKET_AUXDATA
        out.give("i64 0")
    status = out.load(out.offset(control, 16), 32, 4)
    with out.when(out.compare("eq", 32, out.op("and", 32, status, 1 << 4), 0)):  # TP_STATUS_VLAN_VALID
        out.give("i64 0")
    tag, given = (out.load(out.offset(control, at), 16, 2) for at in (32, 34))
    has_type = out.compare("ne", 32, out.op("and", 32, status, 1 << 6), 0)  # TP_STATUS_VLAN_TPID_VALID
    kind = out.choose(has_type, 16, given, 0x8100)
    out.copy(out.offset("%frame", -4), "%frame", 12)
    for at, value in ((8, kind), (10, tag)):
        high, low = out.op("shl", 16, value, 8), out.op("lshr", 16, value, 8)
        out.store(out.op("or", 16, high, low), out.offset("%frame", at), 16, 1)
    out.give("i64 4")


def _write_next(out: LlvmFunction) -> None:
    """Take the next message of the batch in hand."""
    index, wire = get(out, "%l", Loop.AT), pointer(out, "%l", Loop.WIRE)
    put(out, "%l", Loop.AT, out.op("add", 64, index, 1))
    message = item(out, pointer(out, "%l", Loop.MESSAGES), index, MESSAGE_BYTES)
    counters, kind = pointer(out, wire, Wire.COUNTERS), get(out, wire, Wire.KIND)
    flags = out.load(out.offset(message, MessageOffset.FLAGS), 32, 4)
    with out.when(out.compare("ne", 32, out.op("and", 32, flags, int(MSG_TRUNC)), 0)):
        add(out, counters, Counter.RX_ERRORS)
        out.give("void")
    with out.when(out.compare("eq", 64, kind, WireKind.LEARNING)):
        out.copy(pointer(out, wire, Wire.PEER), out.load_pointer(message), ADDRESS_BYTES)
    received = out.load_pointer(out.load_pointer(out.offset(message, MessageOffset.VECTOR)))
    length = out.resize(out.load(out.offset(message, MessageOffset.LENGTH), 32, 4), 32, 64)
    with out.when(out.compare("ugt", 64, length, LARGE)):
        put(out, wire, Wire.TURN, LARGE_BATCH)
    with out.when(out.compare("ne", 64, kind, WireKind.PACKET)):
        with out.when(out.compare("eq", 64, kind, WireKind.SOCKET)):
            out.line(f"call void @arrive_payloads(ptr %c, ptr %l, ptr {wire}, ptr {message}, ptr {received}, i64 {length})")
            out.give("void")
        out.line(f"call void @arrive_datagram(ptr %c, ptr %l, ptr {wire}, ptr {message}, ptr {received}, i64 {length})")
        out.give("void")
    offload, offset = out.load(received, 64, 8), out.resize(out.load(out.offset(received, 8), 16, 2), 16, 64)
    behind = out.offset(received, offloads.HEADER.size)
    tag = out.value(f"call i64 @put_tag(ptr {message}, ptr {behind})")
    frame = out.offset(behind, out.op("sub", 64, 0, tag))
    size = out.op("add", 64, out.op("sub", 64, length, offloads.HEADER.size), tag)
    arguments = f"ptr {wire}, ptr {frame}, i64 {size}, i64 {offload}, i64 {offset}, i64 {tag}"
    out.line(f"call void @arrive(ptr %c, ptr %l, {arguments})")
    out.give("void")


def _write_run(out: LlvmFunction) -> None:
    batch, one, done, scan, request, each, ready, fetch = (out.label() for _ in range(8))
    put(out, "%l", Loop.SERVED, 0)
    out.begin(batch)
    remaining = out.compare("ult", 64, get(out, "%l", Loop.AT), get(out, "%l", Loop.GOT))
    out.branch(remaining, one, done)
    out.begin(one)
    put(out, "%l", Loop.SERVED, 1)
    out.line("call void @take_next(ptr %c, ptr %l)")
    out.branch(out.compare("ult", 64, _used(out), SEND_AT), batch, done)  # else Python reads before there is more
    out.begin(done)
    out.line("call void @send_all(ptr %l)")
    with out.when(out.compare("ne", 64, get(out, "%l", Loop.LEFT), 0)):
        out.give("i64 0")
    put(out, "%c", Context.OUT, get(out, "%l", Loop.OUT_START))
    out.begin(scan)
    wanted = out.value(f"load atomic i64, ptr {pointer(out, '%l', Loop.WANTED)} monotonic, align 8")
    with out.when(out.compare("ne", 64, wanted, 0)):
        out.give("i64 0")
    due = get(out, "%l", Loop.DUE)
    has_served = out.compare("ne", 64, get(out, "%l", Loop.SERVED), 0)
    may_end = out.op("and", 1, has_served, out.compare("ne", 64, due, 0))
    with out.when(may_end), out.when(out.compare("uge", 64, _now(out), due)):
        out.give("i64 0")
    count, polled = get(out, "%l", Loop.COUNT), pointer(out, "%l", Loop.POLL)
    out.branch(out.compare("uge", 64, get(out, "%l", Loop.NEXT), count), request, each)
    out.begin(request)
    timeout = out.space(4)
    out.store("-1", timeout, 32, 4)
    with out.when(out.compare("ne", 64, due, 0)):
        now = _now(out)
        left = out.op("udiv", 64, out.op("add", 64, out.op("sub", 64, due, now), 999), 1000)
        left = out.choose(out.compare("ugt", 64, due, now), 64, left, 0)
        left = out.choose(out.compare("ult", 64, left, _LONGEST_WAIT), 64, left, _LONGEST_WAIT)
        out.store(out.resize(left, 64, 32), timeout, 32, 4)
    found = out.value(f"call i32 @poll(ptr {polled}, i64 {count}, i32 {out.load(timeout, 32, 4)})")
    with out.when(out.compare("sle", 32, found, 0)):
        out.give("i64 0")
    put(out, "%l", Loop.NEXT, 0)
    out.begin(each)
    index = get(out, "%l", Loop.NEXT)
    add(out, "%l", Loop.NEXT)
    events = out.load(out.offset(item(out, polled, index, POLL_BYTES), 6), 16, 2)
    out.branch(out.compare("eq", 16, events, 0), scan, ready)
    out.begin(ready)
    wire = item(out, pointer(out, "%l", Loop.WIRES), index, 8 * Wire.END)
    with out.when(out.compare("eq", 64, get(out, wire, Wire.KIND), WireKind.PYTHON)):
        out.give(f"i64 {out.op('add', 64, index, 1)}")
    out.begin(fetch)
    out.line(f"call void @fetch(ptr %l, ptr {wire})")
    out.jump(batch)
