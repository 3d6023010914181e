# SPDX-License-Identifier: MIT
"""What a virtual link leaves undone, in machine code: see `netsum_switch.ports.offloads`, which does the same in Python.

    void arrive(ptr context, ptr loop, ptr wire, ptr frame, i64 size, i64 offload, i64 offset, i64 tag)
    void arrive_datagram(ptr context, ptr loop, ptr wire, ptr message, ptr frame, i64 size)

runs a frame through the program, or the several frames that it is on a wire. `offload` has the first eight bytes of its struct
virtio_net_hdr, `offset` the last two; `tag` is the number of bytes by which a VLAN tag has moved the rest of the frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from netsum_switch.native import wide_integers as wire
from netsum_switch.native.io import Counter, MessageOffset, Wire, add, get, pointer
from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule, Register
from netsum_switch.ports.offloads import LARGEST_HEADERS, NEEDS_CHECKSUM, TCP4, TCP6, UDP
from netsum_switch.ports.udp import SOL_UDP, UDP_GRO

_TCP, _UDP = 6, 17


def write_arrivals(assembly: LlvmModule) -> None:
    """``arrive``, and what it calls."""
    _write_sum16(assembly.function("sum16", "ptr %data, i64 %size", "i64", attributes="noinline"))
    _write_folded(assembly.function("folded", "i64 %total", "i64"))
    _write_ip(assembly, assembly.function("find_ip", "ptr %frame, i64 %size, i64 %transport", "i64"))
    parameters = "ptr %frame, i64 %size, i64 %ip, i64 %transport, i64 %offset"
    _write_checked(assembly.function("complete", parameters, "void"))
    _write_lengths(assembly, assembly.function("set_lengths", "ptr %frame, i64 %size, i64 %ip, i64 %number", "void"))
    parameters = "ptr %c, ptr %l, ptr %w, ptr %frame, i64 %size"
    _write_one(assembly.function("arrive_one", parameters, "void"))
    datagram = "ptr %c, ptr %l, ptr %w, ptr %message, ptr %frame, i64 %size"
    _write_datagram(assembly.function("arrive_datagram", datagram, "void"))
    parameters += ", i64 %offload, i64 %offset, i64 %tag"
    _write_arrive(assembly, assembly.function("arrive", parameters, "void"))


def _write_sum16(out: LlvmFunction) -> None:
    """The ones' complement sum of 16-bit words (RFC 1071), in this machine's byte order."""
    total = out.number()
    words = out.op("lshr", 64, "%size", 2)
    with out.each(words) as index:
        word = out.load(out.value(f"getelementptr i32, ptr %data, i64 {index}"), 32)
        out.store(out.op("add", 64, out.load(total, 64, 8), out.resize(word, 32, 64)), total, 64, 8)
    rest = out.offset("%data", out.op("shl", 64, words, 2))
    with out.each(out.op("and", 64, "%size", 3)) as index:
        byte = out.resize(out.load(out.offset(rest, index), 8), 8, 64)
        place = out.op("shl", 64, out.op("and", 64, index, 1), 3)
        out.store(out.op("add", 64, out.load(total, 64, 8), out.op("shl", 64, byte, place)), total, 64, 8)
    out.give(f"i64 {_folded(out, out.load(total, 64, 8))}")


def _write_folded(out: LlvmFunction) -> None:
    value: Register = "%total"
    for bits in (32, 32, 16, 16, 16):
        low, high = out.op("and", 64, value, (1 << bits) - 1), out.op("lshr", 64, value, bits)
        value = out.op("add", 64, low, high)
    out.give(f"i64 {value}")


def _sum16(out: LlvmFunction, data: Register, size: Register | int) -> Register:
    return out.value(f"call i64 @sum16(ptr {data}, i64 {size})")


def _folded(out: LlvmFunction, total: Register) -> Register:
    return out.value(f"call i64 @folded(i64 {total})")


def _byte(out: LlvmFunction, base: Register, at: Register | int) -> Register:
    return out.resize(out.load(out.offset(base, at), 8), 8, 64)


def _write_ip(assembly: LlvmModule, out: LlvmFunction) -> None:
    """Give where the frame's IP header begins, its version << 16, and its protocol << 24; without a version if there is none that
    ends at the transport header."""
    at = out.number("12")
    for _ in range(2):
        kind = wire.load_big(assembly, out, out.offset("%frame", out.load(at, 64, 8)), 2)
        tagged = out.op("or", 1, out.compare("eq", 16, kind, 0x8100), out.compare("eq", 16, kind, 0x88A8))
        out.store(out.op("add", 64, out.load(at, 64, 8), out.choose(tagged, 64, 4, 0)), at, 64, 8)
    place = out.load(at, 64, 8)
    kind, start = wire.load_big(assembly, out, out.offset("%frame", place), 2), out.op("add", 64, place, 2)
    head = out.offset("%frame", start)
    with out.when(out.compare("ult", 64, "%transport", "%size")):
        with out.when(out.compare("eq", 16, kind, 0x0800)):
            length = out.op("shl", 64, out.op("and", 64, _byte(out, head, 0), 15), 2)
            ends = out.compare("eq", 64, "%transport", out.op("add", 64, start, length))
            with out.when(out.op("and", 1, ends, out.compare("uge", 64, length, 20))):
                out.give(f"i64 {_found(out, start, 4, _byte(out, head, 9))}")
        ends = out.compare("eq", 64, "%transport", out.op("add", 64, start, 40))
        with out.when(out.op("and", 1, ends, out.compare("eq", 16, kind, 0x86DD))):
            out.give(f"i64 {_found(out, start, 6, _byte(out, head, 6))}")
    out.give("i64 0")


def _found(out: LlvmFunction, start: Register, version: int, protocol: Register) -> Register:
    return out.op("or", 64, out.op("or", 64, start, version << 16), out.op("shl", 64, protocol, 24))


def _ip_parts(out: LlvmFunction) -> tuple[Register, Register, Register]:
    """Start, version and protocol."""
    return (
        out.op("and", 64, "%ip", 0xFFFF),
        out.op("and", 64, out.op("lshr", 64, "%ip", 16), 0xFF),
        out.op("lshr", 64, "%ip", 24),
    )


def _write_checked(out: LlvmFunction) -> None:
    """Complete a checksum, whose field holds the sum over the pseudo header so far; of UDP over IPv4 make it 0."""
    _, version, protocol = _ip_parts(out)
    transport = out.offset("%frame", "%transport")
    place = out.offset(transport, "%offset")
    is_udp4 = out.op("and", 1, out.compare("eq", 64, version, 4), out.compare("eq", 64, protocol, _UDP))
    with out.when(out.op("and", 1, is_udp4, out.compare("eq", 64, "%offset", 6))):
        out.store("0", place, 16)
        out.give("void")
    total = _sum16(out, transport, out.op("sub", 64, "%size", "%transport"))
    checksum = out.op("xor", 64, total, 0xFFFF)
    zero_udp = out.op("and", 1, out.compare("eq", 64, "%offset", 6), out.compare("eq", 64, checksum, 0))
    out.store(out.resize(out.choose(zero_udp, 64, 0xFFFF, checksum), 64, 16), place, 16)
    out.give("void")


def _write_lengths(assembly: LlvmModule, out: LlvmFunction) -> None:
    """Set what the IP header says of a segment: its length and, in IPv4, its number and checksum."""
    start, version, _ = _ip_parts(out)
    head, length = out.offset("%frame", start), out.op("sub", 64, "%size", start)
    with out.when(out.compare("eq", 64, version, 6)):
        _put16(assembly, out, out.op("sub", 64, length, 40), out.offset(head, 4))
        out.give("void")
    _put16(assembly, out, length, out.offset(head, 2))
    identification = out.resize(wire.load_big(assembly, out, out.offset(head, 4), 2), 16, 64)
    _put16(assembly, out, out.op("add", 64, identification, "%number"), out.offset(head, 4))
    out.store("0", out.offset(head, 10), 16)
    size = out.op("shl", 64, out.op("and", 64, _byte(out, head, 0), 15), 2)
    out.store(out.resize(out.op("xor", 64, _sum16(out, head, size), 0xFFFF), 64, 16), out.offset(head, 10), 16)
    out.give("void")


def _put16(assembly: LlvmModule, out: LlvmFunction, value: Register, place: Register) -> None:
    wire.store_big(assembly, out, out.resize(value, 64, 16), place, 2)


def _write_one(out: LlvmFunction) -> None:
    """Count a frame and run it through the program."""
    counters = pointer(out, "%w", Wire.COUNTERS)
    add(out, counters, Counter.RX_PACKETS)
    add(out, counters, Counter.RX_BYTES, "%size")
    out.line(f"call void @take(ptr %c, ptr %l, ptr %frame, i64 %size, i64 {get(out, '%w', Wire.NUMBER)})")
    out.give("void")


def _write_datagram(out: LlvmFunction) -> None:
    """A datagram, or several that came together (UDP_GRO): each is a frame."""
    control = out.load_pointer(out.offset("%message", MessageOffset.CONTROL))
    length = out.load(out.offset("%message", MessageOffset.CONTROL_LENGTH), 64, 8)
    several = out.compare("uge", 64, length, 20)  # struct cmsghdr and an int
    each = out.number("%size")
    with out.when(several):
        is_size = out.compare("eq", 64, out.load(out.offset(control, 8), 64, 8), UDP_GRO << 32 | SOL_UDP)
        with out.when(is_size):
            out.store(out.resize(out.load(out.offset(control, 16), 32, 4), 32, 64), each, 64, 8)
    with each_datagram(out, out.load(each, 64, 8)) as (start, own):
        out.line(f"call void @arrive_one(ptr %c, ptr %l, ptr %w, ptr {out.offset('%frame', start)}, i64 {own})")
    out.give("void")


@contextmanager
def each_datagram(out: LlvmFunction, size: Register) -> Iterator[tuple[Register, Register]]:
    """A loop over the datagrams of a message of %size bytes, of which each but the last has ``size``; gives where one begins, and
    its bytes."""
    size = out.choose(out.compare("eq", 64, size, 0), 64, 1, size)
    last = out.op("sub", 64, out.op("add", 64, "%size", size), 1)
    count = out.op("udiv", 64, last, size)
    count = out.choose(out.compare("eq", 64, count, 0), 64, 1, count)  # a datagram of no bytes is a frame, too
    with out.each(count) as number:
        start = out.op("mul", 64, number, size)
        rest = out.op("sub", 64, "%size", start)
        yield start, out.choose(out.compare("ult", 64, rest, size), 64, rest, size)


def _write_arrive(assembly: LlvmModule, out: LlvmFunction) -> None:
    flags = out.op("and", 64, "%offload", 0xFF)
    kind = out.op("and", 64, out.op("lshr", 64, "%offload", 8), 0x7F)
    size = out.op("and", 64, out.op("lshr", 64, "%offload", 32), 0xFFFF)
    transport = out.op("add", 64, out.op("lshr", 64, "%offload", 48), "%tag")
    needs = out.op("and", 64, flags, NEEDS_CHECKSUM)
    with out.when(out.compare("eq", 64, out.op("or", 64, kind, needs), 0)):
        out.line("call void @arrive_one(ptr %c, ptr %l, ptr %w, ptr %frame, i64 %size)")
        out.give("void")
    ip = out.value(f"call i64 @find_ip(ptr %frame, i64 %size, i64 {transport})")
    with out.when(out.compare("eq", 64, kind, 0)):
        end = out.op("add", 64, out.op("add", 64, transport, "%offset"), 2)
        with _unless_wrong(out, out.compare("ugt", 64, end, "%size")):
            out.line(f"call void @complete(ptr %frame, i64 %size, i64 {ip}, i64 {transport}, i64 %offset)")
            out.line("call void @arrive_one(ptr %c, ptr %l, ptr %w, ptr %frame, i64 %size)")
    protocol = out.op("lshr", 64, ip, 24)
    is_udp = out.op("and", 1, out.compare("eq", 64, kind, UDP), out.compare("eq", 64, protocol, _UDP))
    tcp = out.op("or", 1, out.compare("eq", 64, kind, TCP4), out.compare("eq", 64, kind, TCP6))
    is_tcp = out.op("and", 1, tcp, out.compare("eq", 64, protocol, _TCP))
    known = out.op("and", 1, out.op("or", 1, is_udp, is_tcp), out.compare("ne", 64, size, 0))
    with _unless_wrong(out, out.negation(known)):
        _write_segments(assembly, out, ip, transport, size, is_udp)
    out.give("void")


@contextmanager
def _unless_wrong(out: LlvmFunction, wrong: Register) -> Iterator[None]:
    """Return after what is written inside; if the headers are wrong, instead of it, and count the frame."""
    with out.when(wrong):
        add(out, pointer(out, "%w", Wire.COUNTERS), Counter.RX_ERRORS)
        out.give("void")
    yield
    out.give("void")


def _write_segments(
    assembly: LlvmModule, out: LlvmFunction, ip: Register, transport: Register, size: Register, is_udp: Register
) -> None:
    """Run one segment after the other through the program: its headers are written in front of its payload, over the end of the
    one before, which the program is done with."""
    length = out.number("8")
    with out.unless(is_udp):
        place = out.op("add", 64, transport, 12)
        inside = out.compare("ult", 64, place, "%size")
        words = out.op("lshr", 64, _byte(out, "%frame", out.choose(inside, 64, place, 0)), 4)
        out.store(out.choose(inside, 64, out.op("shl", 64, words, 2), 0), length, 64, 8)
    header = out.load(length, 64, 8)
    end = out.op("add", 64, transport, header)
    largest = out.choose(out.compare("ult", 64, "%size", LARGEST_HEADERS), 64, "%size", LARGEST_HEADERS)
    short = out.op("or", 1, out.compare("ult", 64, header, 8), out.compare("ult", 64, header, out.op("add", 64, "%offset", 2)))
    with _unless_wrong(out, out.op("or", 1, short, out.compare("ugt", 64, end, largest))):
        headers = out.space(LARGEST_HEADERS)
        out.copy(headers, "%frame", end)
        payload = out.op("sub", 64, "%size", end)
        last = out.op("sub", 64, out.op("add", 64, payload, size), 1)
        count = out.op("udiv", 64, last, size)
        with out.each(count) as number:
            start = out.op("mul", 64, number, size)
            rest = out.op("sub", 64, payload, start)
            whole = out.op("add", 64, end, out.choose(out.compare("ult", 64, rest, size), 64, rest, size))
            segment = out.offset("%frame", start)
            out.copy(segment, headers, end)
            out.line(f"call void @set_lengths(ptr {segment}, i64 {whole}, i64 {ip}, i64 {number})")
            final = out.compare("eq", 64, out.op("add", 64, number, 1), count)
            _write_transport(
                assembly, out, out.offset(segment, transport), start, final, is_udp, out.op("sub", 64, whole, transport)
            )
            _write_pseudo(assembly, out, segment, ip, transport, out.op("sub", 64, whole, transport))
            out.line(f"call void @complete(ptr {segment}, i64 {whole}, i64 {ip}, i64 {transport}, i64 %offset)")
            out.line(f"call void @arrive_one(ptr %c, ptr %l, ptr %w, ptr {segment}, i64 {whole})")


def _write_transport(
    assembly: LlvmModule, out: LlvmFunction, head: Register, start: Register, final: Register, is_udp: Register, length: Register
) -> None:
    """A segment's UDP length, or its TCP sequence number and flags."""
    with out.when(is_udp):
        _put16(assembly, out, length, out.offset(head, 4))
    with out.unless(is_udp):
        place = out.offset(head, 4)
        sequence = out.op("add", 32, wire.load_big(assembly, out, place, 4), out.resize(start, 64, 32))
        wire.store_big(assembly, out, sequence, place, 4)
        first = out.compare("eq", 64, start, 0)
        keep = out.op("and", 8, out.choose(final, 8, 0xFF, 0xF6), out.choose(first, 8, 0xFF, 0x7F))  # FIN, PSH; CWR
        flags = out.offset(head, 13)
        out.store(out.op("and", 8, out.load(flags, 8), keep), flags, 8)


def _write_pseudo(
    assembly: LlvmModule, out: LlvmFunction, segment: Register, ip: Register, transport: Register, length: Register
) -> None:
    """Put the sum over the pseudo header into the checksum's field."""
    is_v4 = out.compare("eq", 64, out.op("and", 64, out.op("lshr", 64, ip, 16), 0xFF), 4)
    start, protocol = out.op("and", 64, ip, 0xFFFF), out.op("lshr", 64, ip, 24)
    addresses = out.offset(segment, out.op("add", 64, start, out.choose(is_v4, 64, 12, 8)))
    place = out.offset(out.offset(segment, transport), "%offset")
    put_pseudo(assembly, out, place, addresses, out.choose(is_v4, 64, 8, 32), protocol, length)


def put_pseudo(
    assembly: LlvmModule,
    out: LlvmFunction,
    place: Register,
    addresses: Register,
    size: Register | int,
    protocol: Register,
    length: Register,
) -> None:
    """Store the sum over a pseudo header, whose addresses have so many bytes."""
    total = _folded(out, pseudo_sum(assembly, out, addresses, size, protocol, length))
    out.store(out.resize(total, 64, 16), place, 16)


def pseudo_sum(
    assembly: LlvmModule, out: LlvmFunction, addresses: Register, size: Register | int, protocol: Register, length: Register
) -> Register:
    """The sum over a pseudo header, not folded yet."""
    total = _sum16(out, addresses, size)
    for number in (protocol, length):
        value = wire.swapped(assembly, out, out.resize(number, 64, 16), 16)
        total = out.op("add", 64, total, out.resize(value, 16, 64))
    return total
