"""The packet loop's memory: where things lie, and how its code reads and writes them. `wires` prepares it, to Linux's 64-bit
layout of pollfd, mmsghdr, iovec and cmsghdr."""

from __future__ import annotations

from enum import IntEnum

from netsum_switch.native.llvm_builder import LlvmFunction, Register

BATCH = 32  # frames of a port's turn
QUEUE = 64  # frames that wait to be sent at a port
SEGMENTS = 64  # datagrams that the kernel makes of one (UDP_SEGMENT)
HEADROOM = 64  # before a received frame: room for a VLAN tag
CONTROL_BYTES = 64  # of a frame's ancillary data
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
    VECTORS = 5  # struct iovec[QUEUE], one for each frame that waits to be sent
    MESSAGES = 6  # struct mmsghdr[QUEUE], made of them when they are sent
    QUEUED = 7
    SEGMENTS = 8  # frames of one size that the kernel takes as one message
    LOST = 9  # the error that the interface is down or gone by
    END = 10


class Kind(IntEnum):
    """Kinds of wires."""

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


class Message(IntEnum):
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
