# SPDX-License-Identifier: MIT
"""The ports' side of the packet loop: the memory that `loop` works on, and what it leaves to Python."""

from __future__ import annotations

import ctypes
import logging
import os
import select
import socket
import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from netsum_switch.native.layout import PORT_NUMBERS
from netsum_switch.native.llvm_builder import LlvmFunction, Register
from netsum_switch.native.memory import Memory
from netsum_switch.ports import offloads
from netsum_switch.ports.base import MAX_FRAME, Port
from netsum_switch.ports.kernel_socket import LARGEST_FRAME, SocketPort
from netsum_switch.ports.packet import PacketPort
from netsum_switch.ports.udp import UdpPort

log = logging.getLogger("netsum_switch.ports")

MESSAGE_BYTES, VECTOR_BYTES, POLL_BYTES = 64, 16, 8
SEGMENT_CONTROL_BYTES = 24  # struct cmsghdr, the size of a segment
BATCH = 32  # messages of a port's turn


LARGE_BATCH = 4  # the same if one is many frames, so that ports with large frames get no more than the others


LARGE = 1 << 14  # bytes of a message that is many frames: more than a link's MTU


QUEUE = 64  # frames that wait to be sent at a port


SOCKET_QUEUE = 256  # the same at a kernel socket, whose frames are of many flows: so that there are some to join of each


SEGMENTS = 64  # datagrams that the kernel makes of one (UDP_SEGMENT, or a frame with VIRTIO_NET_HDR_GSO_UDP_L4)


HEADROOM = 64  # before a received frame: room for a VLAN tag, or for the headers of a datagram


CONTROL_BYTES = 64  # of a frame's ancillary data


ADDRESS_BYTES = 16  # struct sockaddr_in


HEAD_BYTES = 64  # of a frame that the program failed on, for the log


NEWS = 1 << 32  # in `Wire.LOST`: not said yet


HEAD_SPACE = 128  # for a struct virtio_net_hdr, and the headers of several packets in one frame


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
    DUE = 13  # when Python has something to do, in the context's microseconds; 0: it waits for nothing
    SERVED = 14  # not 0 if a port had its turn in this run
    END = 15


class Wire(IntEnum):
    """Words of a port."""

    DESCRIPTOR = 0
    NUMBER = 1
    KIND = 2
    COUNTERS = 3  # a pointer to `PortCounters`
    PEER = 4  # a pointer to the address that a UDP port sends to; its first byte is 0 if no peer is known yet
    FRAMES = 5  # pointer and size of each frame that waits to be sent
    MESSAGES = 6  # struct mmsghdr[CAPACITY], made of them when they are sent
    QUEUED = 7
    SEGMENTS = 8  # frames of one size that the kernel takes as one message
    LOST = 9  # the error that the interface is down or gone by
    VECTORS = 10  # struct iovec[2 * CAPACITY], for each frame one for what goes before it
    HEADS = 11  # what goes before each frame
    MTU = 12  # largest frame of the link
    REFUSED = 13  # the error by which the kernel does not take several datagrams as one frame
    TURN = 14  # messages of its next turn
    TCP_SEGMENTS = 15  # frames of a TCP stream that the kernel takes as one
    WAITS = 16  # a pointer to the byte that says that packets wait for the interface; 0 if the program has no queues
    OWN = 17  # a pointer to `SocketPort.headers`
    ALONE = 18  # number of the first queued frame that may be joined with others again
    CAPACITY = 19  # frames that may wait to be sent
    END = 20


class WireKind(IntEnum):
    """Kinds of wires."""

    PYTHON = 0
    UDP = 1
    LEARNING = 2  # UDP, to the sender of the last datagram
    PACKET = 3
    SOCKET = 4


class Counter(IntEnum):
    """Words of `PortCounters`."""

    RX_PACKETS = 0
    RX_BYTES = 1
    RX_ERRORS = 2
    TX_PACKETS = 3
    TX_BYTES = 4
    TX_DROPPED = 5


class MessageOffset(IntEnum):
    """Byte offsets in struct mmsghdr."""

    NAME_LENGTH = 8
    VECTOR = 16
    VECTORS = 24
    CONTROL = 32
    CONTROL_LENGTH = 40
    FLAGS = 48
    LENGTH = 56


def get(out: LlvmFunction, base: Register, word: int) -> Register:
    return out.load(out.offset(base, 8 * word), 64, 8)


def pointer(out: LlvmFunction, base: Register, word: int) -> Register:
    return out.load_pointer(out.offset(base, 8 * word))


def put(out: LlvmFunction, base: Register, word: int, value: Register | int) -> None:
    out.store(str(value), out.offset(base, 8 * word), 64, 8)


def put_pointer(out: LlvmFunction, base: Register, word: int, value: Register) -> None:
    out.store_pointer(value, out.offset(base, 8 * word))


def add(out: LlvmFunction, base: Register, word: int, more: Register | int = 1) -> None:
    put(out, base, word, out.op("add", 64, get(out, base, word), more))


def item(out: LlvmFunction, base: Register, index: Register, size: int) -> Register:
    return out.offset(base, out.op("mul", 64, index, size))


def is_null(out: LlvmFunction, pointed: Register) -> Register:
    return out.value(f"icmp eq ptr {pointed}, null")


def error_number(out: LlvmFunction) -> Register:
    return out.resize(out.load(out.value("call ptr @__errno_location()"), 32, 4), 32, 64)


def descriptor(out: LlvmFunction) -> Register:
    """The descriptor of the wire %w."""
    return out.resize(get(out, "%w", Wire.DESCRIPTOR), 64, 32)


def lose(out: LlvmFunction, error: Register) -> None:
    """The interface of %w is down or gone: Python says so, once."""
    with out.when(out.compare("eq", 64, get(out, "%w", Wire.LOST), 0)):
        put(out, "%w", Wire.LOST, out.op("or", 64, error, NEWS))
        add(out, "%l", Loop.LEFT)


_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_FRAME_SPACE = HEADROOM + MAX_FRAME + 4160
"""Not a multiple of a page, so that frames do not share their places in the cache."""

_SEGMENT_CONTROL = struct.pack("<QIIHxxxxxx", 18, 17, 103, 0)
"""struct cmsghdr, its length, SOL_UDP and UDP_SEGMENT, and the size of a segment."""

_MESSAGE = struct.Struct("<QI4xQQQQI4xI4x")
"""struct mmsghdr: the address and its length, the vector and that it is one, ancillary data and their length, flags, length."""


class NativeIo:
    """The ports in memory. Descriptors and memory are the ports': they must not be closed before this is done with."""

    def __init__(self, run: int, context: Memory, out_start: int, ports: Iterable[Port], cpu_port: int, waiting: int = 0) -> None:
        """`run`: the compiled function's address. `waiting`: that of a byte by port number, which is set where an interface is
        full; 0 if the program has no queues."""
        self._run = _RUN(run)
        self._context = context
        self._held: list[Any] = []  # memory that only pointers in memory know of
        self._ports = list(ports)
        self._wires = self._new(8 * Wire.END * (len(self._ports) + 1))
        self._poll = self._new(POLL_BYTES * (len(self._ports) + 1))
        self._by_number = self._new(8 * PORT_NUMBERS)
        self._loop = Memory(8 * Loop.END)
        self._waiting = waiting
        self._set(Loop.POLL, self._poll.address)
        self._set(Loop.WIRES, self._wires.address)
        self._set(Loop.BY_NUMBER, self._by_number.address)
        self._set(Loop.MESSAGES, self._receiving().address)
        self._set(Loop.CPU_PORT, cpu_port)
        self._set(Loop.OUT_START, out_start)
        for index, port in enumerate(self._ports):
            self._add(index, port)

    def watch(self, wake: int, wanted: ctypes.c_uint64) -> None:
        """Come back when `wake` is readable, and while `wanted` is not 0."""
        self._hold(wanted)
        self._set(Loop.WANTED, ctypes.addressof(wanted))
        self._set(Loop.COUNT, len(self._ports) + 1)
        self._set(Loop.NEXT, len(self._ports) + 1)
        self._poll_for(len(self._ports), wake)

    def run(self, due: int = 0) -> int:
        """Serve the ports until there is something to do for Python, or until the context's clock says `due` microseconds, if
        this is not 0; one port that is ready has its turn in any case. The descriptor that is to be read, or -1."""
        self._set(Loop.DUE, due)
        ready: int = self._run(self._context.address, self._loop.address)
        return self._poll.number(POLL_BYTES * (ready - 1), 4) if ready else -1

    def take_left(self) -> bool:
        """True if records were left, which the caller reads now; an interface that is lost is reported."""
        if not self._loop.number(8 * Loop.LEFT):
            return False
        self._set(Loop.LEFT, 0)
        for index, port in enumerate(self._ports):
            at = 8 * (Wire.END * index + Wire.LOST)
            lost = self._wires.number(at)
            if lost & NEWS and isinstance(port, PacketPort):
                self._wires.set_number(at, lost ^ NEWS)
                port.down = False
                port.lost(OSError(lost ^ NEWS, os.strerror(lost ^ NEWS)))
            at = 8 * (Wire.END * index + Wire.REFUSED)
            if refused := self._wires.number(at):
                self._wires.set_number(at, 0)
                log.info("port %d: the kernel does not take several packets at a time (%s)", port.number, os.strerror(refused))
        return True

    def _add(self, index: int, port: Port) -> None:
        start = 8 * Wire.END * index
        wire = self._wires.address + start
        self._by_number.set_number(8 * port.number, wire)
        self._poll_for(index, port.fileno())
        kind, peer, segments, mtu = WireKind.PYTHON, 0, 1, 0
        if isinstance(port, UdpPort):
            kind = WireKind.LEARNING if port.learns else WireKind.UDP
            peer, segments = self._address_of(port.peer), SEGMENTS if port.segments else 1
        elif isinstance(port, PacketPort):
            kind, segments, mtu = WireKind.PACKET, SEGMENTS if port.joins else 1, port.largest
        elif isinstance(port, SocketPort):
            kind, segments, mtu = WireKind.SOCKET, SEGMENTS if port.segments else 1, LARGEST_FRAME
        words = {Wire.DESCRIPTOR: port.fileno(), Wire.NUMBER: port.number, Wire.KIND: kind, Wire.PEER: peer}
        if kind != WireKind.PYTHON:
            self._hold(port.counters)
            words[Wire.COUNTERS] = ctypes.addressof(port.counters)
            words[Wire.SEGMENTS], words[Wire.MTU], words[Wire.TURN] = segments, mtu, BATCH
            words[Wire.WAITS] = self._waiting + port.number if self._waiting and kind in (WireKind.PACKET, WireKind.SOCKET) else 0
            words[Wire.TCP_SEGMENTS] = SEGMENTS if isinstance(port, PacketPort) and port.joins_tcp else 1
            words[Wire.CAPACITY] = capacity = SOCKET_QUEUE if kind == WireKind.SOCKET else QUEUE
            words[Wire.FRAMES] = self._new(capacity * VECTOR_BYTES).address
            words[Wire.VECTORS] = self._new(2 * capacity * VECTOR_BYTES).address
            words[Wire.HEADS] = self._new(capacity * HEAD_SPACE).address
            if isinstance(port, SocketPort):
                words[Wire.OWN] = self._address_of(port.headers)
                words[Wire.MESSAGES] = self._sending(capacity, self._names(capacity)).address
            else:
                words[Wire.MESSAGES] = self._sending(capacity, lambda _: (peer, ADDRESS_BYTES if peer else 0)).address
        for word, value in words.items():
            self._wires.set_number(start + 8 * word, value)

    def _poll_for(self, index: int, descriptor: int) -> None:
        struct.pack_into("<iHH", self._poll.data, POLL_BYTES * index, descriptor, select.POLLIN, 0)

    def _receiving(self) -> Memory:
        frames = self._new(BATCH * _FRAME_SPACE).address + HEADROOM
        vectors, names = self._new(BATCH * VECTOR_BYTES), self._new(BATCH * ADDRESS_BYTES)
        controls = self._new(BATCH * CONTROL_BYTES)
        for at in range(BATCH):
            size = offloads.HEADER.size + MAX_FRAME
            struct.pack_into("<QQ", vectors.data, VECTOR_BYTES * at, frames + _FRAME_SPACE * at, size)
        return self._messages(BATCH, vectors.address, lambda at: (names.address + ADDRESS_BYTES * at, 0), controls.address)

    def _names(self, count: int) -> Callable[[int], tuple[int, int]]:
        """An address for each message to be sent."""
        names = self._new(count * ADDRESS_BYTES)
        for at in range(count):
            struct.pack_into("<H", names.data, ADDRESS_BYTES * at, socket.AF_INET)
        return lambda at: (names.address + ADDRESS_BYTES * at, ADDRESS_BYTES)

    def _sending(self, count: int, name: Callable[[int], tuple[int, int]]) -> Memory:
        controls = self._new(count * CONTROL_BYTES)
        for at in range(count):
            controls.data[CONTROL_BYTES * at : CONTROL_BYTES * at + SEGMENT_CONTROL_BYTES] = _SEGMENT_CONTROL
        return self._messages(count, 0, name, controls.address)

    def _messages(self, count: int, vectors: int, name: Callable[[int], tuple[int, int]], controls: int) -> Memory:
        messages = self._new(count * MESSAGE_BYTES)
        for at in range(count):
            control, vector = controls + CONTROL_BYTES * at, vectors + VECTOR_BYTES * at
            _MESSAGE.pack_into(messages.data, MESSAGE_BYTES * at, *name(at), vector, 1, control, 0, 0, 0)
        return messages

    def _address_of(self, data: bytearray) -> int:
        view = (ctypes.c_char * len(data)).from_buffer(data)
        self._hold(view)
        return ctypes.addressof(view)

    def _new(self, size: int) -> Memory:
        memory = Memory(size)
        self._hold(memory)
        return memory

    def _hold(self, what: object) -> None:
        self._held.append(what)

    def _set(self, word: Loop, value: int) -> None:
        self._loop.set_number(8 * word, value)
