# SPDX-License-Identifier: MIT
"""A port on a kernel socket in machine code: see `netsum_switch.ports.kernel_socket`, which does the same in Python.

    void arrive_payloads(ptr context, ptr loop, ptr wire, ptr message, ptr data, i64 size)
    i64 leaving(ptr wire, ptr frame, i64 size)
    void group(ptr wire)
    void address(ptr wire, ptr message, i64 first, i64 count)

`arrive_payloads` runs the datagrams of a message through the program, as frames with headers. `leaving` gives the size of a frame
that may leave, without padding, else 0. `group` groups queued frames by peer. `address` makes a message of queued frames one of
their payloads, to their peer.
"""

from __future__ import annotations

from socket import IP_TOS, IPPROTO_IP

from netsum_switch.native import wide_integers as wire
from netsum_switch.native.io import (
    SEGMENT_CONTROL_BYTES,
    VECTOR_BYTES,
    MessageOffset,
    Wire,
    get,
    is_null,
    item,
    pointer,
    put,
    put_pointer,
)
from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule, Register
from netsum_switch.native.offloads import each_datagram
from netsum_switch.ports.kernel_socket import HEADERS
from netsum_switch.ports.udp import SOL_UDP, UDP_GRO, UDP_SEGMENT

_ETHERNET, _IPV4, _UDP = 14, 20, 8
_TRANSPORT = _ETHERNET + _IPV4
_IP = 17 << 24 | 4 << 16 | _ETHERNET  # as `find_ip` gives it: UDP over IPv4
_CONTROL_HEAD = 16  # struct cmsghdr

# Offsets in a frame.
_SOURCE_MAC_HOST = 8  # the four bytes of a MAC address that are those of an IPv4 address
_ETHERTYPE, _TOS, _LENGTH, _FRAGMENT, _PROTOCOL = 12, 15, 16, 20, 23
_SOURCE, _TARGET = 26, 30
_SOURCE_PORT, _TARGET_PORT, _UDP_LENGTH = 34, 36, 38


def write_socket_ports(assembly: LlvmModule) -> None:
    """``arrive_payloads``, ``leaving``, ``group`` and ``address``, and what they call."""
    _write_lengths(assembly, assembly.function("set_payload", "ptr %frame, i64 %size", "void"))
    parameters = "ptr %c, ptr %l, ptr %w, ptr %message, ptr %data, i64 %size"
    _write_arrive(assembly.function("arrive_payloads", parameters, "void"))
    _write_leaving(assembly, assembly.function("leaving", "ptr %w, ptr %frame, i64 %size", "i64"))
    _write_group(assembly.function("group", "ptr %w", "void"))
    _write_address(assembly.function("address", "ptr %w, ptr %message, i64 %first, i64 %count", "void"))


def _write_lengths(assembly: LlvmModule, out: LlvmFunction) -> None:
    """Set what the headers say of a payload of so many bytes: the lengths and the checksum of the IPv4 header."""
    whole = out.op("add", 64, "%size", HEADERS.size)
    out.line(f"call void @set_lengths(ptr %frame, i64 {whole}, i64 {_IP}, i64 0)")
    length = out.resize(out.op("add", 64, "%size", _UDP), 64, 16)
    wire.store_big(assembly, out, length, out.offset("%frame", _UDP_LENGTH), 2)
    out.give("void")


def _write_arrive(out: LlvmFunction) -> None:
    """The headers of a datagram are written in front of it, over the end of the one before, which the program is done with."""
    size, tos = _ancillary(out)
    headers, name = out.space(HEADERS.size), out.load_pointer("%message")
    out.copy(headers, pointer(out, "%w", Wire.OWN), HEADERS.size)
    port, host = out.load(out.offset(name, 2), 16), out.load(out.offset(name, 4), 32)
    for at in (_SOURCE_MAC_HOST, _SOURCE):
        out.store(host, out.offset(headers, at), 32)
    out.store(port, out.offset(headers, _SOURCE_PORT), 16)
    out.store(tos, out.offset(headers, _TOS), 8)
    out.line(f"call void @set_payload(ptr {headers}, i64 {size})")
    with each_datagram(out, size) as (start, own):
        frame = out.offset("%data", out.op("sub", 64, start, HEADERS.size))
        out.copy(frame, headers, HEADERS.size)
        with out.when(out.compare("ne", 64, own, size)):
            out.line(f"call void @set_payload(ptr {frame}, i64 {own})")
        whole = out.op("add", 64, own, HEADERS.size)
        out.line(f"call void @arrive_one(ptr %c, ptr %l, ptr %w, ptr {frame}, i64 {whole})")
    out.give("void")


def _ancillary(out: LlvmFunction) -> tuple[Register, Register]:
    """The size of a message's datagrams and their type of service, as the kernel says it."""
    control = out.load_pointer(out.offset("%message", MessageOffset.CONTROL))
    length = out.load(out.offset("%message", MessageOffset.CONTROL_LENGTH), 64, 8)
    place, size, tos = out.number(), out.number("%size"), out.number()
    with out.each("2"):
        at = out.load(place, 64, 8)
        with out.when(out.compare("ult", 64, out.op("add", 64, at, _CONTROL_HEAD), length)):
            head = out.offset(control, at)
            kind, value = out.load(out.offset(head, 8), 64, 8), out.offset(head, _CONTROL_HEAD)
            with out.when(out.compare("eq", 64, kind, UDP_GRO << 32 | SOL_UDP)):
                out.store(out.resize(out.load(value, 32, 4), 32, 64), size, 64, 8)
            with out.when(out.compare("eq", 64, kind, IP_TOS << 32 | IPPROTO_IP)):
                out.store(out.resize(out.load(value, 8), 8, 64), tos, 64, 8)
            own = out.op("and", 64, out.op("add", 64, out.load(head, 64, 8), 7), -8)
            out.store(out.op("add", 64, at, own), place, 64, 8)
    return out.load(size, 64, 8), out.resize(out.load(tos, 64, 8), 64, 8)


def _write_leaving(assembly: LlvmModule, out: LlvmFunction) -> None:
    """See `SocketPort.outgoing`."""
    with out.when(out.compare("ult", 64, "%size", HEADERS.size)):
        out.give("i64 0")

    def big(at: int) -> Register:
        return out.resize(wire.load_big(assembly, out, out.offset("%frame", at), 2), 16, 64)

    def number(base: Register, at: int, bits: int) -> Register:
        return out.load(out.offset(base, at), bits)

    own, length = pointer(out, "%w", Wire.OWN), big(_LENGTH)
    start = out.op("or", 64, out.op("shl", 64, big(_ETHERTYPE), 8), out.resize(number("%frame", _ETHERNET, 8), 8, 64))
    padded = out.op("sub", 64, "%size", _ETHERNET)
    total: Register = "0"
    for at in range(_ETHERNET, _TRANSPORT, 4):
        total = out.op("add", 64, total, out.resize(number("%frame", at, 32), 32, 64))
    right = [
        out.compare("eq", 64, start, 0x080045),
        out.compare("eq", 8, number("%frame", _PROTOCOL, 8), 17),
        out.compare("eq", 64, out.op("and", 64, big(_FRAGMENT), 0x3FFF), 0),
        out.compare("uge", 64, length, _IPV4 + _UDP),
        out.compare("ule", 64, length, padded),
        out.compare("eq", 64, big(_UDP_LENGTH), out.op("sub", 64, length, _IPV4)),
        out.compare("eq", 64, out.value(f"call i64 @folded(i64 {total})"), 0xFFFF),
        out.compare("eq", 32, number("%frame", _SOURCE, 32), number(own, _TARGET, 32)),
        out.compare("eq", 16, number("%frame", _SOURCE_PORT, 16), number(own, _TARGET_PORT, 16)),
    ]
    is_host = out.compare("eq", 8, out.op("and", 8, number("%frame", 0, 8), 1), 0)
    is_host = out.op("and", 1, is_host, out.compare("ne", 32, number("%frame", _TARGET, 32), 0))
    is_group = out.compare("eq", 8, out.op("and", 8, number("%frame", _TARGET, 8), 0xF0), 0xE0)
    every = out.op("or", 1, is_host, is_group)
    for each in right:
        every = out.op("and", 1, every, each)
    size = out.op("add", 64, length, _ETHERNET)
    out.give(f"i64 {out.choose(every, 64, size, 0)}")


def _write_group(out: LlvmFunction) -> None:
    """Group the queue by peer, so that the frames of a flow are neighbors. All frames to a peer keep their order, whatever their
    flows. Pointers and sizes move, the frames do not. The cost is a pass over the queue for each peer."""
    frames, rest, queued = pointer(out, "%w", Wire.FRAMES), pointer(out, "%w", Wire.VECTORS), get(out, "%w", Wire.QUEUED)
    out.copy(rest, frames, out.op("mul", 64, queued, VECTOR_BYTES))  # vectors are written later
    done = out.number()
    with out.each(queued) as start:
        first = out.load_pointer(item(out, rest, start, VECTOR_BYTES))
        with out.unless(is_null(out, first)):
            peer = _peer(out, first)
            with out.each(out.op("sub", 64, queued, start)) as index:
                frame = item(out, rest, out.op("add", 64, start, index), VECTOR_BYTES)
                data = out.load_pointer(frame)
                with out.unless(is_null(out, data)), out.when(out.compare("eq", 64, _peer(out, data), peer)):
                    out.copy(item(out, frames, out.load(done, 64, 8), VECTOR_BYTES), frame, VECTOR_BYTES)
                    put_pointer(out, frame, 0, "null")
                    out.increment(done)
            with out.when(out.compare("eq", 64, out.load(done, 64, 8), queued)):
                out.give("void")
    out.give("void")


def _peer(out: LlvmFunction, frame: Register) -> Register:
    """The address and the UDP port that a frame goes to, and the port's own UDP port between them."""
    return out.load(out.offset(frame, _TARGET), 64)


def _write_address(out: LlvmFunction) -> None:
    """The message's address and ancillary data follow from its first frame: all have the same."""
    frames, vectors = pointer(out, "%w", Wire.FRAMES), pointer(out, "%w", Wire.VECTORS)
    with out.each("%count") as index:
        number = out.op("add", 64, "%first", index)
        frame = item(out, frames, number, VECTOR_BYTES)
        vector = out.offset(item(out, vectors, number, 2 * VECTOR_BYTES), VECTOR_BYTES)
        out.store_pointer(out.offset(out.load_pointer(frame), HEADERS.size), vector)
        put(out, vector, 1, out.op("sub", 64, get(out, frame, 1), HEADERS.size))
    first = item(out, frames, "%first", VECTOR_BYTES)
    frame, name = out.load_pointer(first), out.load_pointer("%message")
    out.store(out.load(out.offset(frame, _TARGET_PORT), 16), out.offset(name, 2), 16)
    out.store(out.load(out.offset(frame, _TARGET), 32), out.offset(name, 4), 32)
    control, length = out.load_pointer(out.offset("%message", MessageOffset.CONTROL)), out.number()
    with out.when(out.compare("ugt", 64, "%count", 1)):
        size = out.op("sub", 64, get(out, first, 1), HEADERS.size)
        _put_control(out, control, 2, UDP_SEGMENT << 32 | SOL_UDP, size)
        out.store(str(SEGMENT_CONTROL_BYTES), length, 64, 8)
    tos = out.resize(out.load(out.offset(frame, _TOS), 8), 8, 64)
    with out.when(out.compare("ne", 64, tos, 0)):
        used = out.load(length, 64, 8)
        _put_control(out, out.offset(control, used), 4, IP_TOS << 32 | IPPROTO_IP, tos)
        out.store(out.op("add", 64, used, SEGMENT_CONTROL_BYTES), length, 64, 8)
    out.store(out.load(length, 64, 8), out.offset("%message", MessageOffset.CONTROL_LENGTH), 64, 8)
    out.give("void")


def _put_control(out: LlvmFunction, head: Register, size: int, kind: int, value: Register) -> None:
    """Write ancillary data: a struct cmsghdr, and a value of so many bytes."""
    put(out, head, 0, _CONTROL_HEAD + size)
    put(out, head, 1, kind)
    put(out, head, 2, value)
