# SPDX-License-Identifier: MIT
"""The ports' way out in machine code: frames are queued, and sent many at a time.

    void queue(ptr loop, ptr wire, ptr data, i64 size)
    void send_all(ptr loop)

What the kernel takes as one goes as one. On a UDP port, neighbors of one size are one message, which the kernel cuts up
(UDP_SEGMENT). On an interface, datagrams of one flow and one size are one frame, and so is a run of a TCP stream, with a struct
virtio_net_hdr that says so. A veth hands it over whole, and the receiver's kernel cuts up datagrams only if the receiver does not
read them whole (UDP_GRO). What leaves by a kernel socket is the payload of such a frame, as one message (UDP_SEGMENT), and other
peers' frames between them do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from errno import EACCES, EAGAIN, EHOSTUNREACH, EINTR, ENETDOWN, ENETUNREACH, ENOBUFS, ENODEV, ENXIO, EPERM
from socket import MSG_DONTWAIT, SOL_SOCKET

from netsum_switch.native import wide_integers as wire
from netsum_switch.native.io import (
    HEAD_SPACE,
    MESSAGE_BYTES,
    SEGMENT_CONTROL_BYTES,
    VECTOR_BYTES,
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
)
from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule, Register
from netsum_switch.native.offloads import pseudo_sum, put_pseudo
from netsum_switch.ports.base import FULL, SENT_BYTES_AT, SO_MEMINFO
from netsum_switch.ports.offloads import HEADER, NEEDS_CHECKSUM, TCP4, UDP

_LARGEST_MESSAGE = 65000  # bytes in one datagram before it is cut up
_GONE = (ENETDOWN, ENXIO, ENODEV)
_NO_WAY = (ENETUNREACH, EHOSTUNREACH, EACCES, EPERM)  # to one of a kernel socket's peers

_ETHERNET, _IPV4, _UDP, _TCP = 14, 20, 8, 20
_TCP_PROTOCOL, _UDP_PROTOCOL = 6, 17
_TRANSPORT = _ETHERNET + _IPV4
_HEADERS = _TRANSPORT + _UDP  # of UDP; TCP has more
_TCP_SEQUENCE, _TCP_WORDS, _TCP_FLAGS = _TRANSPORT + 4, _TRANSPORT + 12, _TRANSPORT + 13
_PSH, _ACK = 8, 16


def write_sending(assembly: LlvmModule) -> None:
    """``queue`` and ``send_all``, and what they call."""
    assembly.declare("sendmmsg", "i32 {}(i32, ptr, i32, i32)")
    assembly.declare("getsockopt", "i32 {}(i32, i32, i32, ptr, ptr)")
    _write_joinable(assembly, assembly.function("joinable", "ptr %frame, i64 %size", "i64"))
    parameters = "ptr %one, ptr %other, i64 %headers, i64 %ahead"
    _write_same_flow(assembly, assembly.function("same_flow", parameters, "i1"))
    parameters = "ptr %w, i64 %first, i64 %count, i64 %total, i64 %headers"
    _write_join(assembly, assembly.function("join", parameters, "void"))
    _write_run(assembly.function("run_length", "ptr %w, i64 %first, ptr %total, ptr %headers", "i64"))
    _write_place(assembly.function("place", "ptr %w, i64 %first, i64 %count", "void"))
    _write_gather(assembly.function("gather", "ptr %w, i64 %first", "i64"))
    _write_send(assembly.function("send_queued", "ptr %l, ptr %w", "void"))
    _write_send_all(assembly.function("send_all", "ptr %l", "void"))
    _write_queue(assembly.function("queue", "ptr %l, ptr %w, ptr %data, i64 %size", "void"))


def _write_joinable(assembly: LlvmModule, out: LlvmFunction) -> None:
    """Give the bytes of headers of a frame that others can follow in one large frame, else 0. It is whole, over IPv4 without
    options, its lengths and IP checksum are right, and it is never fragmented, so that its identification means nothing (RFC
    6864). A UDP checksum is not computed, a TCP checksum right, and TCP has payload and no flags but ACK and PSH."""
    with out.when(out.compare("ule", 64, "%size", _HEADERS)):
        out.give("i64 0")

    def big(at: int) -> Register:
        return out.resize(wire.load_big(assembly, out, out.offset("%frame", at), 2), 16, 64)

    def byte(at: int) -> Register:
        return out.resize(out.load(out.offset("%frame", at), 8), 8, 64)

    start = out.op("or", 64, out.op("shl", 64, big(12), 8), byte(14))
    right = [out.compare("eq", 64, start, 0x080045), out.compare("eq", 64, big(20), 0x4000)]
    right.append(out.compare("eq", 64, big(16), out.op("sub", 64, "%size", _ETHERNET)))
    total: Register = "0"
    for at in range(_ETHERNET, _TRANSPORT, 4):
        total = out.op("add", 64, total, out.resize(out.load(out.offset("%frame", at), 32), 32, 64))
    right.append(out.compare("eq", 64, out.value(f"call i64 @folded(i64 {total})"), 0xFFFF))
    _give_unless(out, right)
    behind = out.op("sub", 64, "%size", _TRANSPORT)
    with out.when(out.compare("eq", 64, byte(23), _UDP_PROTOCOL)):
        _give_unless(out, [out.compare("eq", 64, big(38), behind), out.compare("eq", 64, big(40), 0)])
        out.give(f"i64 {_HEADERS}")
    _give_unless(out, [out.compare("eq", 64, byte(23), _TCP_PROTOCOL), out.compare("uge", 64, behind, _TCP)])
    length = out.op("lshr", 64, byte(_TCP_WORDS), 2)  # of four bytes, in the upper half
    headers = out.op("add", 64, length, _TRANSPORT)
    right = [out.compare("eq", 64, out.op("and", 64, byte(_TCP_WORDS), 15), 0), out.compare("uge", 64, length, _TCP)]
    right.append(out.compare("ult", 64, headers, "%size"))
    right.append(out.compare("eq", 64, out.op("and", 64, byte(_TCP_FLAGS), 0xFF ^ _PSH), _ACK))
    _give_unless(out, right)
    total = out.value(f"call i64 @sum16(ptr {out.offset('%frame', _TRANSPORT)}, i64 {behind})")
    total = out.op("add", 64, total, pseudo_sum(assembly, out, out.offset("%frame", 26), 8, str(_TCP_PROTOCOL), behind))
    _give_unless(out, [out.compare("eq", 64, out.value(f"call i64 @folded(i64 {total})"), 0xFFFF)])
    out.give(f"i64 {headers}")


def _give_unless(out: LlvmFunction, right: Sequence[Register]) -> None:
    """Give 0 unless all of these hold."""
    every = right[0]
    for each in right[1:]:
        every = out.op("and", 1, every, each)
    with out.unless(every):
        out.give("i64 0")


def _write_same_flow(assembly: LlvmModule, out: LlvmFunction) -> None:
    """True if two joinable frames with so many bytes of headers differ in length, identification and payload alone, and the other
    one's TCP payload begins ``ahead`` bytes behind the beginning of this one's; it may have PSH."""
    different = out.number()

    def compare(at: int, bits: int, ignored: int = 0) -> None:
        one, other = (out.load(out.offset(each, at), bits) for each in ("%one", "%other"))
        found = out.op("and", bits, out.op("xor", bits, one, other), ~ignored)
        out.store(out.op("or", 64, out.load(different, 64, 8), out.resize(found, bits, 64)), different, 64, 8)

    # Of the bytes from 16 on, total length and identification; of those from 24 on, the checksum of the IP header.
    for at, bits, ignored in ((0, 64, 0), (8, 64, 0), (16, 64, 0xFFFFFFFF), (24, 64, 0xFFFF), (32, 32, 0), (36, 16, 0)):
        compare(at, bits, ignored)
    with out.when(out.compare("ne", 64, "%headers", _HEADERS)):
        compare(42, 64, _PSH << 8 * (_TCP_FLAGS - 42))  # from the acknowledgment up to the window
        compare(52, 16)  # the urgent pointer; options follow
        one, other = (wire.load_big(assembly, out, out.offset(each, _TCP_SEQUENCE), 4) for each in ("%one", "%other"))
        expected = out.op("add", 32, one, out.resize("%ahead", 64, 32))
        found = out.resize(out.op("xor", 32, expected, other), 32, 64)
        out.store(out.op("or", 64, out.load(different, 64, 8), found), different, 64, 8)
        options = out.op("lshr", 64, out.op("sub", 64, "%headers", _TRANSPORT + _TCP), 2)
        with out.each(options) as index:
            place = out.op("add", 64, out.op("shl", 64, index, 2), _TRANSPORT + _TCP)
            one, other = (out.load(out.offset(each, place), 32) for each in ("%one", "%other"))
            found = out.resize(out.op("xor", 32, one, other), 32, 64)
            out.store(out.op("or", 64, out.load(different, 64, 8), found), different, 64, 8)
    out.give(f"i1 {out.compare('eq', 64, out.load(different, 64, 8), 0)}")


def _write_join(assembly: LlvmModule, out: LlvmFunction) -> None:
    """Make one frame of ``count`` queued ones, with ``total`` bytes of payload: the headers of the first with other lengths, then
    the payloads."""
    frames, vectors = pointer(out, "%w", Wire.FRAMES), pointer(out, "%w", Wire.VECTORS)
    head = item(out, pointer(out, "%w", Wire.HEADS), "%first", HEAD_SPACE)
    first = item(out, frames, "%first", VECTOR_BYTES)
    tcp = out.compare("ne", 64, "%headers", _HEADERS)
    protocol = out.choose(tcp, 64, _TCP_PROTOCOL, _UDP_PROTOCOL)
    checksum = out.choose(tcp, 64, 16, 6)
    size = out.op("sub", 64, get(out, first, 1), "%headers")
    offload = out.op("shl", 64, size, 32)
    kind = out.choose(tcp, 64, NEEDS_CHECKSUM | TCP4 << 8, NEEDS_CHECKSUM | UDP << 8)
    for part in (kind, out.op("shl", 64, "%headers", 16), str(_TRANSPORT << 48)):
        offload = out.op("or", 64, offload, part)
    out.store(offload, head, 64)
    out.store(out.resize(checksum, 64, 16), out.offset(head, 8), 16)
    frame = out.offset(head, HEADER.size)
    out.copy(frame, out.load_pointer(first), "%headers")
    whole = out.op("add", 64, "%total", "%headers")
    behind = out.op("sub", 64, whole, _TRANSPORT)
    ip = out.op("or", 64, out.op("shl", 64, protocol, 24), _ETHERNET | 4 << 16)  # as `find_ip` gives it
    out.line(f"call void @set_lengths(ptr {frame}, i64 {whole}, i64 {ip}, i64 0)")
    with out.when(tcp):
        last = item(out, frames, out.op("sub", 64, out.op("add", 64, "%first", "%count"), 1), VECTOR_BYTES)
        flags = out.load(out.offset(out.load_pointer(last), _TCP_FLAGS), 8)
        out.store(flags, out.offset(frame, _TCP_FLAGS), 8)
    with out.unless(tcp):
        wire.store_big(assembly, out, out.resize(behind, 64, 16), out.offset(frame, 38), 2)
    place = out.offset(out.offset(frame, _TRANSPORT), checksum)
    put_pseudo(assembly, out, place, out.offset(frame, 26), 8, protocol, behind)
    with out.each("%count") as index:
        number = out.op("add", 64, "%first", index)
        frame, vector = item(out, frames, number, VECTOR_BYTES), item(out, vectors, number, 2 * VECTOR_BYTES)
        is_first = out.compare("eq", 64, index, 0)
        out.store_pointer(head, vector)
        put(out, vector, 1, out.choose(is_first, 64, out.op("add", 64, "%headers", HEADER.size), 0))
        out.store_pointer(out.offset(out.load_pointer(frame), "%headers"), out.offset(vector, VECTOR_BYTES))
        put(out, vector, 3, out.op("sub", 64, get(out, frame, 1), "%headers"))
    out.give("void")


def _write_run(out: LlvmFunction) -> None:
    """Give how many frames from the first one on go as one, and store their bytes behind ``headers`` bytes each, which are 0 in a
    message of many frames. They are as long as the first; only the last may be shorter."""
    queue = pointer(out, "%w", Wire.FRAMES)
    flows = out.compare("uge", 64, get(out, "%w", Wire.KIND), WireKind.PACKET)  # or SOCKET: neighbors may be of other flows
    count, grow, other, flow, more, done = out.number("1"), *(out.label() for _ in range(5))
    first = item(out, queue, "%first", VECTOR_BYTES)
    data, size = out.load_pointer(first), get(out, first, 1)
    most = out.number(out.choose(out.compare("eq", 64, size, 0), 64, 1, get(out, "%w", Wire.SEGMENTS)))
    out.store("0", "%headers", 64, 8)
    with out.when(flows):
        found = out.value(f"call i64 @joinable(ptr {data}, i64 {size})")
        out.store(found, "%headers", 64, 8)
        with out.when(out.compare("ugt", 64, found, _HEADERS)):
            out.store(get(out, "%w", Wire.TCP_SEGMENTS), most, 64, 8)
        alone = out.op("or", 1, out.compare("eq", 64, found, 0), out.compare("ugt", 64, size, get(out, "%w", Wire.MTU)))
        alone = out.op("or", 1, alone, out.compare("ult", 64, "%first", get(out, "%w", Wire.ALONE)))
        with out.when(out.op("or", 1, alone, _is_pushed(out, data, found))):
            out.store("1", most, 64, 8)
    headers = out.load("%headers", 64, 8)
    out.store(out.op("sub", 64, size, headers), "%total", 64, 8)
    out.begin(grow)
    length, total = out.load(count, 64, 8), out.load("%total", 64, 8)
    following = out.op("add", 64, "%first", length)
    inside = out.compare("ult", 64, following, get(out, "%w", Wire.QUEUED))
    out.branch(out.op("and", 1, out.compare("ult", 64, length, out.load(most, 64, 8)), inside), other, done)
    out.begin(other)
    frame = item(out, queue, following, VECTOR_BYTES)
    own = get(out, frame, 1)
    with_it = out.op("sub", 64, out.op("add", 64, total, own), headers)
    fits = out.op("and", 1, out.compare("ule", 64, own, size), out.compare("ugt", 64, own, headers))
    out.branch(out.op("and", 1, fits, out.compare("ule", 64, with_it, _LARGEST_MESSAGE)), flow, done)
    out.begin(flow)
    pointed = out.load_pointer(frame)
    with out.when(flows):
        found = out.value(f"call i64 @joinable(ptr {pointed}, i64 {own})")
        with out.unless(out.compare("eq", 64, found, headers)):
            out.jump(done)
        alike = out.value(f"call i1 @same_flow(ptr {data}, ptr {pointed}, i64 {headers}, i64 {total})")
        out.branch(alike, more, done)
    out.begin(more)
    out.increment(count)
    out.store(with_it, "%total", 64, 8)
    with out.when(out.op("or", 1, out.compare("ult", 64, own, size), _is_pushed(out, pointed, headers))):
        out.jump(done)
    out.jump(grow)
    out.begin(done)
    out.give(f"i64 {out.load(count, 64, 8)}")


def _is_pushed(out: LlvmFunction, frame: Register, headers: Register) -> Register:
    """True if a joinable frame is one of TCP with PSH, which the last one of a large frame alone may have."""
    tcp = out.compare("ugt", 64, headers, _HEADERS)
    flags = out.load(out.offset(frame, out.choose(tcp, 64, _TCP_FLAGS, 0)), 8)
    return out.op("and", 1, tcp, out.compare("ne", 8, out.op("and", 8, flags, _PSH), 0))


def _is_packet(out: LlvmFunction) -> Register:
    return _is(out, WireKind.PACKET)


def _is(out: LlvmFunction, kind: WireKind) -> Register:
    """True if %w is a wire of this kind."""
    return out.compare("eq", 64, get(out, "%w", Wire.KIND), kind)


def _write_place(out: LlvmFunction) -> None:
    """Point to the frames of a message, of which only the first has anything in front."""
    head = item(out, pointer(out, "%w", Wire.HEADS), "%first", HEAD_SPACE)
    out.clear(head, HEADER.size)
    before = out.choose(_is_packet(out), 64, HEADER.size, 0)
    with out.each("%count") as index:
        number = out.op("add", 64, "%first", index)
        frame = item(out, pointer(out, "%w", Wire.FRAMES), number, VECTOR_BYTES)
        vector = item(out, pointer(out, "%w", Wire.VECTORS), number, 2 * VECTOR_BYTES)
        out.store_pointer(head, vector)
        put(out, vector, 1, before)
        out.copy(out.offset(vector, VECTOR_BYTES), frame, VECTOR_BYTES)
    out.give("void")


def _write_gather(out: LlvmFunction) -> None:
    """Make messages of a queue's frames from the first one on. Gives their number."""
    count, place, total, headers = out.number(), out.number("%first"), out.number(), out.number()
    head, some, after = (out.label() for _ in range(3))
    out.begin(head)
    begin = out.load(place, 64, 8)
    out.branch(out.compare("ult", 64, begin, get(out, "%w", Wire.QUEUED)), some, after)
    out.begin(some)
    length = out.value(f"call i64 @run_length(ptr %w, i64 {begin}, ptr {total}, ptr {headers})")
    number = out.load(count, 64, 8)
    message = item(out, pointer(out, "%w", Wire.MESSAGES), number, MESSAGE_BYTES)
    vector = item(out, pointer(out, "%w", Wire.VECTORS), begin, 2 * VECTOR_BYTES)
    out.store_pointer(vector, out.offset(message, MessageOffset.VECTOR))
    out.store(out.op("shl", 64, length, 1), out.offset(message, MessageOffset.VECTORS), 64, 8)
    out.store("0", out.offset(message, MessageOffset.CONTROL_LENGTH), 64, 8)
    several, packet = out.compare("ugt", 64, length, 1), _is_packet(out)
    joined = out.op("and", 1, several, packet)
    with out.when(joined):
        sizes = f"i64 {out.load(total, 64, 8)}, i64 {out.load(headers, 64, 8)}"
        out.line(f"call void @join(ptr %w, i64 {begin}, i64 {length}, {sizes})")
    with out.unless(joined):
        out.line(f"call void @place(ptr %w, i64 {begin}, i64 {length})")
        with out.when(several):
            control = out.load_pointer(out.offset(message, MessageOffset.CONTROL))
            size = get(out, item(out, pointer(out, "%w", Wire.FRAMES), begin, VECTOR_BYTES), 1)
            out.store(out.resize(size, 64, 16), out.offset(control, 16), 16, 2)
            out.store(str(SEGMENT_CONTROL_BYTES), out.offset(message, MessageOffset.CONTROL_LENGTH), 64, 8)
    with out.when(_is(out, WireKind.SOCKET)):
        out.line(f"call void @address(ptr %w, ptr {message}, i64 {begin}, i64 {length})")
    out.store(out.op("add", 64, number, 1), count, 64, 8)
    out.store(out.op("add", 64, begin, length), place, 64, 8)
    out.jump(head)
    out.begin(after)
    out.give(f"i64 {out.load(count, 64, 8)}")


def _write_send(out: LlvmFunction) -> None:
    """Send what is queued at a port. What cannot be sent now is dropped. Frames that the kernel does not take as one go one by
    one: all from now on, or these alone if others have other peers."""
    counters, messages, queue = (pointer(out, "%w", word) for word in (Wire.COUNTERS, Wire.MESSAGES, Wire.FRAMES))
    done, has_peers = out.number(), _is(out, WireKind.SOCKET)
    head, some, sent, failed, after = (out.label() for _ in range(5))
    with out.when(has_peers):
        out.line("call void @group(ptr %w)")
    out.begin(head)
    first = out.load(done, 64, 8)
    out.branch(out.compare("ult", 64, first, get(out, "%w", Wire.QUEUED)), some, after)
    out.begin(some)
    count = out.resize(out.value(f"call i64 @gather(ptr %w, i64 {first})"), 64, 32)
    result = out.value(f"call i32 @sendmmsg(i32 {descriptor(out)}, ptr {messages}, i32 {count}, i32 {int(MSG_DONTWAIT)})")
    out.branch(out.compare("sgt", 32, result, 0), sent, failed)
    out.begin(sent)
    with out.each(out.resize(result, 32, 64)) as index, out.each(_frames_of(out, item(out, messages, index, MESSAGE_BYTES))):
        at = out.load(done, 64, 8)
        add(out, counters, Counter.TX_PACKETS)
        add(out, counters, Counter.TX_BYTES, get(out, item(out, queue, at, VECTOR_BYTES), 1))
        out.store(out.op("add", 64, at, 1), done, 64, 8)
    put(out, "%w", Wire.LOST, 0)
    out.jump(head)
    out.begin(failed)
    error = error_number(out)
    with out.when(out.compare("eq", 64, error, EINTR)):
        out.jump(head)
    frames = _frames_of(out, messages)
    cut = out.compare("ugt", 64, frames, 1)
    with out.when(out.op("and", 1, cut, out.negation(_is_passing(out, error, has_peers)))):  # on this way they cannot be cut up
        with out.when(has_peers):
            put(out, "%w", Wire.ALONE, out.op("add", 64, first, frames))
            out.jump(head)
        put(out, "%w", Wire.SEGMENTS, 1)
        put(out, "%w", Wire.TCP_SEGMENTS, 1)
        put(out, "%w", Wire.REFUSED, error)
        add(out, "%l", Loop.LEFT)
        out.jump(head)
    add(out, counters, Counter.TX_DROPPED, frames)
    out.store(out.op("add", 64, first, frames), done, 64, 8)
    for gone in _GONE:
        with out.when(out.compare("eq", 64, error, gone)):
            lose(out, error)
    out.jump(head)
    out.begin(after)
    put(out, "%w", Wire.QUEUED, 0)
    put(out, "%w", Wire.ALONE, 0)
    waits = pointer(out, "%w", Wire.WAITS)
    with out.unless(is_null(out, waits)):
        _mark_full(out, waits)
    out.give("void")


def _is_passing(out: LlvmFunction, error: Register, has_peers: Register) -> Register:
    """True if the kernel refused a message by an error that has nothing to do with its being of several frames."""
    passing = out.compare("eq", 64, error, EAGAIN)
    for each in (ENOBUFS, *_GONE):
        passing = out.op("or", 1, passing, out.compare("eq", 64, error, each))
    for each in _NO_WAY:
        passing = out.op("or", 1, passing, out.op("and", 1, has_peers, out.compare("eq", 64, error, each)))
    return passing


def _mark_full(out: LlvmFunction, waits: Register) -> None:
    """Make the packets of an interface wait once it has not sent as much as a socket of simple_switch holds."""
    info, size = out.space(64), out.space(4)
    out.store("0", out.offset(info, SENT_BYTES_AT), 32, 4)
    out.store("64", size, 32, 4)
    number = f"i32 {SOL_SOCKET}, i32 {SO_MEMINFO}"
    out.value(f"call i32 @getsockopt(i32 {descriptor(out)}, {number}, ptr {info}, ptr {size})")
    with out.when(out.compare("uge", 32, out.load(out.offset(info, SENT_BYTES_AT), 32, 4), FULL)):
        out.store("1", waits, 8)


def _frames_of(out: LlvmFunction, message: Register) -> Register:
    """The number of frames in a message."""
    return out.op("lshr", 64, out.load(out.offset(message, MessageOffset.VECTORS), 64, 8), 1)


def _write_send_all(out: LlvmFunction) -> None:
    """Send what is queued at all ports."""
    wires = pointer(out, "%l", Loop.WIRES)
    with out.each(get(out, "%l", Loop.COUNT)) as index:
        wire_ = item(out, wires, index, 8 * Wire.END)
        with out.when(out.compare("ne", 64, get(out, wire_, Wire.QUEUED), 0)):
            out.line(f"call void @send_queued(ptr %l, ptr {wire_})")
    out.give("void")


def _write_queue(out: LlvmFunction) -> None:
    """Queue a frame at a port."""
    length = out.number("%size")
    with out.when(_is(out, WireKind.SOCKET)):
        found = out.value("call i64 @leaving(ptr %w, ptr %data, i64 %size)")
        with out.when(out.compare("eq", 64, found, 0)):
            add(out, pointer(out, "%w", Wire.COUNTERS), Counter.TX_DROPPED)
            out.give("void")
        out.store(found, length, 64, 8)
    with out.when(_is(out, WireKind.LEARNING)):
        family = out.load(pointer(out, "%w", Wire.PEER), 16, 1)
        with out.when(out.compare("eq", 16, family, 0)):  # nothing has come in yet, so there is no wire
            add(out, pointer(out, "%w", Wire.COUNTERS), Counter.TX_DROPPED)
            out.give("void")
    with out.when(out.compare("uge", 64, get(out, "%w", Wire.QUEUED), get(out, "%w", Wire.CAPACITY))):
        out.line("call void @send_queued(ptr %l, ptr %w)")
    frame = item(out, pointer(out, "%w", Wire.FRAMES), get(out, "%w", Wire.QUEUED), VECTOR_BYTES)
    out.store_pointer("%data", frame)
    put(out, frame, 1, out.load(length, 64, 8))
    add(out, "%w", Wire.QUEUED)
    out.give("void")
