"""The packet loop in machine code: frames from the ports through the program to the ports, with nothing of Python in between.

    i64 run(ptr context, ptr loop)

serves the ports in turn, a batch of frames each, until Python has something to do: a thread wants the data plane's lock, a port
is one that only Python can serve, or there are records that Python reads. It gives the number of the port that waits for Python,
counted from 1, or 0. Records that are done with have the kind 0, and what is sent is read from them, so nothing is copied for it.

All memory is prepared by `wires`, to Linux's 64-bit layout of pollfd, mmsghdr, iovec and cmsghdr.
"""

from __future__ import annotations

from enum import IntEnum

from netsum_switch.native.assembly import Function, Register
from netsum_switch.native.layout import RECORD_BYTES, Context, Record
from netsum_switch.native.module import Module

BATCH = 32  # frames of a port's turn
QUEUE = 64  # frames that wait to be sent at a port
HEADROOM = 64  # before a received frame: room for a VLAN tag
CONTROL_BYTES = 64  # of a received frame's ancillary data
ADDRESS_BYTES = 16  # struct sockaddr_in
MESSAGE_BYTES, VECTOR_BYTES, POLL_BYTES = 64, 16, 8
PORT_NUMBERS = 512
HEAD_BYTES = 64  # of a frame that the program failed on, for the log
NEWS = 1 << 32  # in `Wire.LOST`: not said yet
SEND_AT = 256 << 10  # bytes of records at which what is queued is sent: they should not leave the cache


class Loop(IntEnum):
    """Words of the loop's memory."""

    POLL = 0  # struct pollfd[], one for each wire
    WIRES = 1  # `Wire`[]
    COUNT = 2
    NEXT = 3  # the next wire in this round
    BY_NUMBER = 4  # pointers to wires, or null, by port number
    MESSAGES = 5  # struct mmsghdr[BATCH], to receive
    AT = 6  # the next message of the batch in hand
    GOT = 7
    WIRE = 8  # the wire that it came from
    WANTED = 9  # a pointer to a number: not 0 if a thread waits for the lock
    LEFT = 10  # what is left to Python
    CPU_PORT = 11
    OUT_START = 12
    END = 13


class Wire(IntEnum):
    """Words of a port."""

    DESCRIPTOR = 0
    NUMBER = 1
    KIND = 2
    COUNTERS = 3  # a pointer to `PortCounters`
    PEER = 4  # a pointer to the address that a UDP port sends to; its first byte is 0 if nobody is known yet
    MESSAGES = 5  # struct mmsghdr[QUEUE], to send
    QUEUED = 6
    LOST = 7  # the error that the interface is down or gone by
    END = 8


class Kind(IntEnum):
    """Of wires."""

    PYTHON = 0
    UDP = 1
    LEARNING = 2  # UDP, to whoever sent the last datagram
    PACKET = 3


class Counter(IntEnum):
    """Words of `PortCounters`."""

    RX_PACKETS = 0
    RX_BYTES = 1
    RX_ERRORS = 2
    TX_PACKETS = 3
    TX_BYTES = 4
    TX_DROPPED = 5


class _Message(IntEnum):
    """Byte offsets in struct mmsghdr."""

    NAME_LENGTH = 8
    VECTOR = 16
    CONTROL = 32
    CONTROL_LENGTH = 40
    FLAGS = 48
    LENGTH = 56


_DONT_WAIT, _TRUNCATED = 0x40, 0x20  # MSG_*
_EINTR, _ENXIO, _EAGAIN, _ENODEV, _ENETDOWN = 4, 6, 11, 19, 100


def write_loop(module: Module) -> None:
    """``run``, and what it calls."""
    assembly = module.assembly
    assembly.declare("poll", "i32 {}(ptr, i64, i32)")
    assembly.declare("recvmmsg", "i32 {}(i32, ptr, i32, i32, ptr)")
    assembly.declare("sendmmsg", "i32 {}(i32, ptr, i32, i32)")
    assembly.declare("__errno_location", "ptr {}()")
    _write_send(assembly.function("send_queued", "ptr %l, ptr %w", "void"))
    _write_flush(assembly.function("send_all", "ptr %l", "void"))
    _write_queue(assembly.function("queue", "ptr %l, ptr %w, ptr %data, i64 %size", "void"))
    _write_sort(assembly.function("sort", "ptr %c, ptr %l, i64 %start, i32 %error", "void"))
    _write_take(assembly.function("take", "ptr %c, ptr %l, ptr %frame, i64 %size, i64 %port", "void"))
    _write_fetch(assembly.function("fetch", "ptr %l, ptr %w", "void"))
    _write_tag(assembly.function("put_tag", "ptr %message, ptr %frame", "i64"))
    _write_next(assembly.function("take_next", "ptr %c, ptr %l", "void"))
    _write_run(assembly.function("run", "ptr %c, ptr %l", "i64", linkage=""))


def _get(out: Function, base: Register, word: int) -> Register:
    return out.load(out.offset(base, 8 * word), 64, 8)


def _pointer(out: Function, base: Register, word: int) -> Register:
    return out.load_pointer(out.offset(base, 8 * word))


def _set(out: Function, base: Register, word: int, value: Register | int) -> None:
    out.store(str(value), out.offset(base, 8 * word), 64, 8)


def _add(out: Function, base: Register, word: int, more: Register | int = 1) -> None:
    _set(out, base, word, out.op("add", 64, _get(out, base, word), more))


def _at(out: Function, base: Register, index: Register, size: int) -> Register:
    return out.offset(base, out.op("mul", 64, index, size))


def _error(out: Function) -> Register:
    return out.resize(out.load(out.value("call ptr @__errno_location()"), 32, 4), 32, 64)


def _descriptor(out: Function) -> Register:
    return out.resize(_get(out, "%w", Wire.DESCRIPTOR), 64, 32)


def _vector(out: Function, message: Register) -> Register:
    """The only struct iovec of a message."""
    return out.load_pointer(out.offset(message, _Message.VECTOR))


def _lose(out: Function, error: Register) -> None:
    """The interface is down or gone: Python says so, once."""
    with out.when(out.compare("eq", 64, _get(out, "%w", Wire.LOST), 0)):
        _set(out, "%w", Wire.LOST, out.op("or", 64, error, NEWS))
        _add(out, "%l", Loop.LEFT)


def _write_send(out: Function) -> None:
    """Send what is queued at a port. What cannot be sent now is dropped."""
    counters, messages = _pointer(out, "%w", Wire.COUNTERS), _pointer(out, "%w", Wire.MESSAGES)
    done = out.space(8)
    out.store("0", done, 64, 8)
    head, some, sent, failed, after = (out.label() for _ in range(5))
    out.begin(head)
    at, queued = out.load(done, 64, 8), _get(out, "%w", Wire.QUEUED)
    out.branch(out.compare("ult", 64, at, queued), some, after)
    out.begin(some)
    count = out.resize(out.op("sub", 64, queued, at), 64, 32)
    first = _at(out, messages, at, MESSAGE_BYTES)
    result = out.value(f"call i32 @sendmmsg(i32 {_descriptor(out)}, ptr {first}, i32 {count}, i32 {_DONT_WAIT})")
    out.branch(out.compare("sgt", 32, result, 0), sent, failed)
    out.begin(sent)
    number = out.resize(result, 32, 64)
    with out.each(number) as index:
        length = _get(out, _vector(out, _at(out, first, index, MESSAGE_BYTES)), 1)
        _add(out, counters, Counter.TX_BYTES, length)
    _add(out, counters, Counter.TX_PACKETS, number)
    _set(out, "%w", Wire.LOST, 0)
    out.store(out.op("add", 64, at, number), done, 64, 8)
    out.jump(head)
    out.begin(failed)
    error = _error(out)
    with out.when(out.compare("eq", 64, error, _EINTR)):
        out.jump(head)
    _add(out, counters, Counter.TX_DROPPED)
    out.store(out.op("add", 64, at, 1), done, 64, 8)
    for gone in (_ENETDOWN, _ENXIO, _ENODEV):
        with out.when(out.compare("eq", 64, error, gone)):
            _lose(out, error)
    out.jump(head)
    out.begin(after)
    _set(out, "%w", Wire.QUEUED, 0)
    out.give("void")


def _write_flush(out: Function) -> None:
    """Send what is queued at all ports."""
    wires = _pointer(out, "%l", Loop.WIRES)
    with out.each(_get(out, "%l", Loop.COUNT)) as index:
        wire = _at(out, wires, index, 8 * Wire.END)
        with out.when(out.compare("ne", 64, _get(out, wire, Wire.QUEUED), 0)):
            out.line(f"call void @send_queued(ptr %l, ptr {wire})")
    out.give("void")


def _write_queue(out: Function) -> None:
    """Queue a frame at a port."""
    with out.when(out.compare("eq", 64, _get(out, "%w", Wire.KIND), Kind.LEARNING)):
        family = out.load(_pointer(out, "%w", Wire.PEER), 16, 1)
        with out.when(out.compare("eq", 16, family, 0)):  # nothing has come in yet, so there is no wire
            _add(out, _pointer(out, "%w", Wire.COUNTERS), Counter.TX_DROPPED)
            out.give("void")
    with out.when(out.compare("uge", 64, _get(out, "%w", Wire.QUEUED), QUEUE)):
        out.line("call void @send_queued(ptr %l, ptr %w)")
    message = _at(out, _pointer(out, "%w", Wire.MESSAGES), _get(out, "%w", Wire.QUEUED), MESSAGE_BYTES)
    vector = _vector(out, message)
    out.line(f"store ptr %data, ptr {vector}, align 8")
    _set(out, vector, 1, "%size")
    _add(out, "%w", Wire.QUEUED)
    out.give("void")


def _write_sort(out: Function) -> None:
    """Queue what comes out of a packet at the ports, and count what is for Python. Of a packet that failed nothing is sent."""
    place = out.space(8)
    out.store("%start", place, 64, 8)
    head, some, send, drop, leave, after = (out.label() for _ in range(6))
    out.begin(head)
    at = out.load(place, 64, 8)
    out.branch(out.compare("ult", 64, at, _get(out, "%c", Context.OUT)), some, after)
    out.begin(some)
    record = out.value(f"inttoptr i64 {at} to ptr")
    kind, port, size = (_get(out, record, word) for word in range(3))
    whole = out.op("and", 64, out.op("add", 64, size, RECORD_BYTES + 7), -8)
    out.store(out.op("add", 64, at, whole), place, 64, 8)
    with out.when(out.compare("ne", 64, kind, Record.SENT)):
        out.jump(leave)
    with out.when(out.compare("ne", 32, "%error", 0)):
        out.jump(drop)
    is_cpu = out.compare("eq", 64, port, _get(out, "%l", Loop.CPU_PORT))
    with out.when(out.op("and", 1, is_cpu, out.compare("ne", 64, port, 0))):
        out.jump(leave)
    with out.when(out.compare("uge", 64, port, PORT_NUMBERS)):
        out.jump(drop)
    wire = out.load_pointer(_at(out, _pointer(out, "%l", Loop.BY_NUMBER), port, 8))
    out.branch(out.value(f"icmp eq ptr {wire}, null"), drop, send)
    out.begin(send)
    with out.when(out.compare("eq", 64, _get(out, wire, Wire.KIND), Kind.PYTHON)):
        out.jump(leave)
    data = out.offset(record, RECORD_BYTES)
    out.line(f"call void @queue(ptr %l, ptr {wire}, ptr {data}, i64 {size})")
    out.begin(drop)
    _set(out, record, 0, 0)
    out.jump(head)
    out.begin(leave)
    _add(out, "%l", Loop.LEFT)
    out.jump(head)
    out.begin(after)
    out.give("void")


def _write_take(out: Function) -> None:
    """Run a frame through the program and sort what comes out."""
    start = _get(out, "%c", Context.OUT)
    error = out.value("call i32 @process(ptr %c, ptr %frame, i64 %size, i64 %port)")
    out.line(f"call void @sort(ptr %c, ptr %l, i64 {start}, i32 {error})")
    with out.when(out.compare("ne", 32, error, 0)):
        head = out.choose(out.compare("ult", 64, "%size", HEAD_BYTES), 64, "%size", HEAD_BYTES)
        total = out.op("add", 64, head, 16)
        room = out.value(f"call ptr @reserve(ptr %c, i64 {int(Context.OUT)}, i64 {total})")
        with out.when(out.value(f"icmp ne ptr {room}, null")):
            _set(out, room, 0, "%port")
            _set(out, room, 1, "%size")
            out.copy(out.offset(room, 16), "%frame", head)
            number = out.resize(error, 32, 64)
            commit = f"i64 {int(Context.OUT)}, i64 {int(Record.FAILED)}, i64 {number}, i64 {total}"
            out.line(f"call void @commit(ptr %c, {commit})")
            _add(out, "%l", Loop.LEFT)
    used = out.op("sub", 64, _get(out, "%c", Context.OUT), _get(out, "%l", Loop.OUT_START))
    with out.when(out.compare("ugt", 64, used, SEND_AT)):
        out.line("call void @send_all(ptr %l)")
        with out.when(out.compare("eq", 64, _get(out, "%l", Loop.LEFT), 0)):
            _set(out, "%c", Context.OUT, _get(out, "%l", Loop.OUT_START))
    out.give("void")


def _write_fetch(out: Function) -> None:
    """Receive a batch from a port."""
    messages = _pointer(out, "%l", Loop.MESSAGES)
    learning = out.compare("eq", 64, _get(out, "%w", Wire.KIND), Kind.LEARNING)
    name = out.choose(learning, 32, ADDRESS_BYTES, 0)
    with out.each(str(BATCH)) as index:  # the kernel has written over these
        message = _at(out, messages, index, MESSAGE_BYTES)
        out.store(name, out.offset(message, _Message.NAME_LENGTH), 32, 4)
        out.store(str(CONTROL_BYTES), out.offset(message, _Message.CONTROL_LENGTH), 64, 8)
    _set(out, "%l", Loop.AT, 0)
    _set(out, "%l", Loop.GOT, 0)
    out.line(f"store ptr %w, ptr {out.offset('%l', 8 * Loop.WIRE)}, align 8")
    got = out.value(
        f"call i32 @recvmmsg(i32 {_descriptor(out)}, ptr {messages}, i32 {BATCH}, i32 {_DONT_WAIT}, ptr null)"
    )
    with out.when(out.compare("sgt", 32, got, 0)):
        _set(out, "%l", Loop.GOT, out.resize(got, 32, 64))
        out.give("void")
    error = _error(out)
    for nothing in (_EAGAIN, _EINTR):
        with out.when(out.compare("eq", 64, error, nothing)):
            out.give("void")
    with out.when(out.compare("eq", 64, _get(out, "%w", Wire.KIND), Kind.PACKET)):
        _lose(out, error)
        out.give("void")
    _add(out, _pointer(out, "%w", Wire.COUNTERS), Counter.RX_ERRORS)  # of an earlier datagram; the port stays open
    out.give("void")


def _write_tag(out: Function) -> None:
    """Put back an outer VLAN tag, which the kernel strips and reports separately. Gives the bytes that this takes."""
    control = out.load_pointer(out.offset("%message", _Message.CONTROL))
    length = out.load(out.offset("%message", _Message.CONTROL_LENGTH), 64, 8)
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


def _write_next(out: Function) -> None:
    """Take the next message of the batch in hand."""
    index, wire = _get(out, "%l", Loop.AT), _pointer(out, "%l", Loop.WIRE)
    _set(out, "%l", Loop.AT, out.op("add", 64, index, 1))
    message = _at(out, _pointer(out, "%l", Loop.MESSAGES), index, MESSAGE_BYTES)
    counters, kind = _pointer(out, wire, Wire.COUNTERS), _get(out, wire, Wire.KIND)
    flags = out.load(out.offset(message, _Message.FLAGS), 32, 4)
    with out.when(out.compare("ne", 32, out.op("and", 32, flags, _TRUNCATED), 0)):
        _add(out, counters, Counter.RX_ERRORS)
        out.give("void")
    with out.when(out.compare("eq", 64, kind, Kind.LEARNING)):
        out.copy(_pointer(out, wire, Wire.PEER), out.load_pointer(message), ADDRESS_BYTES)
    received = out.load_pointer(_vector(out, message))
    more = out.space(8)
    out.store("0", more, 64, 8)
    with out.when(out.compare("eq", 64, kind, Kind.PACKET)):
        out.store(out.value(f"call i64 @put_tag(ptr {message}, ptr {received})"), more, 64, 8)
    tag = out.load(more, 64, 8)
    frame = out.offset(received, out.op("sub", 64, 0, tag))
    size = out.op("add", 64, out.resize(out.load(out.offset(message, _Message.LENGTH), 32, 4), 32, 64), tag)
    _add(out, counters, Counter.RX_PACKETS)
    _add(out, counters, Counter.RX_BYTES, size)
    out.line(f"call void @take(ptr %c, ptr %l, ptr {frame}, i64 {size}, i64 {_get(out, wire, Wire.NUMBER)})")
    out.give("void")


def _write_run(out: Function) -> None:
    batch, one, done, scan, ask, each, ready, fetch = (out.label() for _ in range(8))
    out.begin(batch)
    remaining = out.compare("ult", 64, _get(out, "%l", Loop.AT), _get(out, "%l", Loop.GOT))
    out.branch(remaining, one, done)
    out.begin(one)
    out.line("call void @take_next(ptr %c, ptr %l)")
    used = out.op("sub", 64, _get(out, "%c", Context.OUT), _get(out, "%l", Loop.OUT_START))
    out.branch(out.compare("ult", 64, used, SEND_AT), batch, done)  # else Python reads before there is more
    out.begin(done)
    out.line("call void @send_all(ptr %l)")
    with out.when(out.compare("ne", 64, _get(out, "%l", Loop.LEFT), 0)):
        out.give("i64 0")
    _set(out, "%c", Context.OUT, _get(out, "%l", Loop.OUT_START))
    out.begin(scan)
    wanted = out.value(f"load atomic i64, ptr {_pointer(out, '%l', Loop.WANTED)} monotonic, align 8")
    with out.when(out.compare("ne", 64, wanted, 0)):
        out.give("i64 0")
    count, polled = _get(out, "%l", Loop.COUNT), _pointer(out, "%l", Loop.POLL)
    out.branch(out.compare("uge", 64, _get(out, "%l", Loop.NEXT), count), ask, each)
    out.begin(ask)
    found = out.value(f"call i32 @poll(ptr {polled}, i64 {count}, i32 -1)")
    with out.when(out.compare("sle", 32, found, 0)):
        out.give("i64 0")
    _set(out, "%l", Loop.NEXT, 0)
    out.begin(each)
    index = _get(out, "%l", Loop.NEXT)
    _add(out, "%l", Loop.NEXT)
    events = out.load(out.offset(_at(out, polled, index, POLL_BYTES), 6), 16, 2)
    out.branch(out.compare("eq", 16, events, 0), scan, ready)
    out.begin(ready)
    wire = _at(out, _pointer(out, "%l", Loop.WIRES), index, 8 * Wire.END)
    with out.when(out.compare("eq", 64, _get(out, wire, Wire.KIND), Kind.PYTHON)):
        out.give(f"i64 {out.op('add', 64, index, 1)}")
    out.begin(fetch)
    out.line(f"call void @fetch(ptr %l, ptr {wire})")
    out.jump(batch)
