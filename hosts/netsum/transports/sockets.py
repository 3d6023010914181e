# SPDX-License-Identifier: MIT
"""Sending and receiving in batches on one datagram socket: what the socket transports share."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import struct
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netsum.errors import CommunicatorError
from netsum.fork_guard import fork_guarded
from netsum.frames import CE, FrameFormat, is_congested
from netsum.packet_batch import Packet, ReceiveBatch, Rows, SendBatch
from netsum.transports import mmsg, segmentation
from netsum.transports.mmsg import MessageArray
from netsum.transports.peer_filter import Address, accept_only

BATCH = 256
"""Most messages that one :meth:`SocketBatch.recv` takes; each is a packet, or many."""

BUFFER_BYTES = 8 << 20
"""Size of the socket buffers to ask for: more than a window of the largest blocks, so that the kernel drops none."""

_SLOT_BYTES = 8704  # the largest packet, one of memory in the network, and its headers, rounded up
LARGE_SLOT_BYTES = (1 << 16) + 256  # several packets at a time; not a multiple of a page, for the cache
_ADDED_BYTES = 512  # at most, by headers and the kernel, to a packet, before it rounds up to a power of two
_APART_BYTES = 256  # that the kernel keeps about a packet elsewhere
_LARGEST_DATAGRAM = 1 << 16
_CONTROL_BYTES = 64  # the second byte of the IPv4 header, and the size of packets that came together
_SEND_PATIENCE_MS = 100
LOST = frozenset(
    {
        *(errno.ENOBUFS, errno.ENETDOWN, errno.EPERM, errno.EACCES),
        # Linux turns ICMP messages into these, except for "fragmentation needed". Any sender can send them.
        *(errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EHOSTDOWN),
        *(errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EPROTO, getattr(errno, "ENONET", errno.EHOSTDOWN)),
    }
)
"""Errors that count as the loss of a datagram: it is repeated, and a timeout tells the caller."""
_WAITS = frozenset({errno.EAGAIN, errno.EINTR})
_IP_RECVTOS = 13
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33


log = logging.getLogger("netsum.transports")


class SocketBatch:
    """A non-blocking datagram socket with a pool of receive buffers. Owns the socket.

    Attributes:
        carries_segments: whether many packets of one size go through the kernel at a time.
    """

    def __init__(self, sock: socket.socket, remote: Address | None = None, *, slot_bytes: int = _SLOT_BYTES) -> None:
        """``remote`` is where to send if the socket is not connected; ``slot_bytes`` is room for what comes at a time."""
        self.sock = sock
        self._remote = remote
        fork_guarded(sock)
        sock.setblocking(False)
        enlarge_buffers(sock)
        pool = np.zeros((BATCH, slot_bytes), np.uint8)
        self._incoming = MessageArray(pool)
        self._outgoing = MessageArray(pool, remote)
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)
        self.last_error: str | None = None
        self.carries_segments = False
        self._segmented: _SegmentReceiver | None = None

    def carry_segments(self) -> None:
        """Send and receive many packets of one size at a time. Raises OSError if the kernel cannot."""
        self.sock.setsockopt(socket.IPPROTO_UDP, segmentation.UDP_GRO, 1)
        self._segmented = _SegmentReceiver(self.sock)
        self.carries_segments = True

    def read_marks(self) -> None:
        """Read the marks of congested links."""
        if sys.platform == "linux":
            self.sock.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
        self._incoming.request_tos()

    def carry_singly(self) -> None:
        """Send packets one by one from now on."""
        self.carries_segments = False

    def send(self, packets: Sequence[Packet], framed: FrameFormat | None = None, lead: bytes = b"") -> None:
        """Send the packets, if ``framed`` each in a frame, with ``lead`` in front of it."""
        for part in packets.parts if isinstance(packets, SendBatch) else packets:
            if isinstance(part, np.ndarray):
                self._send_rows(part, b"" if framed is None else lead + framed.prefix(part.shape[1]))
            else:
                self._send_patiently(part if framed is None else (lead + framed.prefix(sum(map(len, part))), *part))

    def _send_rows(self, rows: Rows, head: bytes) -> None:
        rows = rows[self._send_segments(rows, head) if self.carries_segments and len(rows) > 1 else 0 :]
        messages = self._outgoing
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            messages.set_rows(some, head)
            done = 0
            while done < len(some):
                try:
                    done += messages.send(self.sock, done, len(some) - done)
                except OSError:
                    self._send_patiently((head, some[done].data))
                    done += 1

    def _send_segments(self, rows: Rows, head: bytes) -> int:
        """Send packets of one size many at a time; returns how many of them the kernel has taken so."""
        width = rows.shape[1]
        size = len(head) + width
        most = min(segmentation.MOST, segmentation.LARGEST // size)
        if most < 2:
            return 0
        flat = np.ascontiguousarray(rows).data.cast("B")
        for start in range(0, len(rows), most):
            message, control = self._together(flat[start * width : (start + most) * width], width, head)
            for last in (False, True):
                try:
                    self._send_one(message, self._remote, control)
                    break
                except OSError as error:
                    if error.errno not in LOST | _WAITS:
                        self.carry_singly()
                        log.info("the kernel does not take several packets at a time (%s): they go one by one", error.strerror)
                        return start
                    if last or error.errno in LOST:  # perhaps that of packets before
                        self.last_error = error.strerror
                    self._writable.poll(_SEND_PATIENCE_MS)
        return len(rows)

    def _together(self, packets: memoryview, width: int, head: bytes) -> tuple[Packet, Sequence[tuple[int, int, bytes]]]:
        """Packets of ``width`` bytes, each behind ``head``, as one message and its ancillary data."""
        control = ((socket.IPPROTO_UDP, segmentation.UDP_SEGMENT, struct.pack("=H", len(head) + width)),)
        if not head:
            return (packets,), control
        return [part for at in range(0, len(packets), width) for part in (head, packets[at : at + width])], control

    def send_to(self, packet: Packet, remote: Address) -> None:
        """Send one packet to this address."""
        self._send_patiently(packet, remote)

    def _send_patiently(self, packet: Packet, remote: Address | None = None) -> None:
        """Send one packet, if need be when there is room."""
        for last in (False, True):
            try:
                self._send_one(packet, remote or self._remote)
            except BlockingIOError:
                if last:
                    self.last_error = "the socket's send buffer stays full"
                else:
                    self._writable.poll(_SEND_PATIENCE_MS)
            except OSError as error:
                self._lose(error, packet)
                return
            else:
                return

    def _send_one(self, packet: Packet, remote: Address | None, control: Sequence[tuple[int, int, bytes]] = ()) -> None:
        if remote is not None:
            self.sock.sendmsg(packet, control, 0, remote)
        elif len(packet) == 1 and not control:
            self.sock.send(packet[0])
        else:
            self.sock.sendmsg(packet, control)

    def _lose(self, error: OSError, packet: Packet) -> None:
        if error.errno == errno.EMSGSIZE:
            size = sum(len(part) for part in packet)
            raise CommunicatorError(
                f"a packet of {size} bytes is too big for the path to the switch: raise the MTU, or lower a job's `chunks` or a "
                "memory region's `block`; memory without blocks is cut to the MTU as it was when the region was opened"
            ) from error
        if error.errno not in LOST:
            raise error
        self.last_error = error.strerror

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        """The waiting packets, of at most :data:`BATCH` messages; see :meth:`netsum.transports.base.Transport.recv`."""
        messages = self._incoming
        if timeout != 0:
            # Rounded up: a timeout of less than a millisecond must not become a busy loop.
            self._readable.poll(None if timeout is None else int(timeout * 1000) + 1)
        for _ in range(BATCH + 1):  # errors count too, so that a sender that causes them cannot keep this thread here
            try:
                if self._segmented is not None:
                    return self._segmented.receive()
                number = messages.receive(self.sock)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno not in LOST:
                    raise
                self.last_error = error.strerror
            else:
                congested = int(np.count_nonzero(_marks(messages, number)))
                return ReceiveBatch(messages.rows[:number], messages.lengths[:number].astype(np.int64), congested)
        return []

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()


def _marks(messages: MessageArray, number: int) -> NDArray[np.bool_]:
    """Which of the first rows a congested link has marked."""
    if messages.tos is None:
        return np.zeros(number, np.bool_)
    marks: NDArray[np.bool_] = (messages.tos[:number] & CE) == CE
    return marks


class _SegmentReceiver:
    """Receives packets of which many come at a time, one after the other into one buffer: packets of one size are its rows."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = np.zeros(BATCH * _SLOT_BYTES, np.uint8)
        self._error: OSError | None = None  # that came after packets

    def receive(self) -> ReceiveBatch:
        """The waiting packets, as many as the buffer has room for. Raises OSError."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        buffer = self._buffer.data
        found: list[tuple[int, int, int]] = []  # where each message is, its bytes, and those of each of its packets
        short: list[tuple[int, int]] = []  # rows that are not full, and their bytes
        place = size = rows = congested = 0
        alike = True
        while place <= len(buffer) - _LARGEST_DATAGRAM and len(found) < BATCH:
            try:
                length, control, _, _ = self._sock.recvmsg_into((buffer[place:],), _CONTROL_BYTES)
            except OSError as error:
                if not found:
                    raise
                if error.errno not in _WAITS:
                    self._error = error
                break
            each, mark = length or 1, False  # an empty packet is one, too
            for level, _, value in control:
                if level == socket.IPPROTO_UDP:
                    each = int.from_bytes(value, sys.byteorder)
                else:
                    mark = is_congested(value[0])
            number = -(-length // each) or 1
            size = size or each
            alike = alike and (each == size or (number == 1 and each < size))
            found.append((place, length, each))
            rows += number
            if length != number * size:
                short.append((rows - 1, length - (number - 1) * size))
            congested += number * mark
            place += number * max(each, size)
        if not alike:
            packets = [
                buffer[at : min(at + each, start + length)]
                for start, length, each in found
                for at in range(start, start + max(length, 1), each)
            ]
            return ReceiveBatch.of(packets, congested)
        sizes = np.full(rows, size, np.int64)
        for row, length in short:
            sizes[row] = length
        return ReceiveBatch(self._buffer[: rows * size].reshape(rows, size), sizes, congested)


class Datagrams(SocketBatch):
    """A UDP socket bound to ``local`` that receives only from ``remote`` and ``others``."""

    def __init__(self, local: Address, remote: Address, *, others: Sequence[Address] = (), tos: bool = False) -> None:
        """``others`` are IPv4 addresses. ``tos``: marks of congested links are read. Raises OSError if the port is taken or the
        address not ours."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.prepare(sock)
            remote = socket.gethostbyname(remote[0]), remote[1]
            accept_only(sock, [remote, *others])
            sock.bind(local)
            connects = sys.platform != "linux" and not others
            if connects:
                sock.connect(remote)
            super().__init__(sock, None if connects else remote)
            if tos:
                self.read_marks()
            if mmsg.AVAILABLE and segmentation.is_carried(sock, remote):
                self.carry_segments()
        except BaseException:
            sock.close()
            raise

    def prepare(self, sock: socket.socket) -> None:
        """Set options before the socket is bound."""


def enlarge_buffers(sock: socket.socket) -> None:
    """Ask for as much as possible: root may exceed the system's limit."""
    if sys.platform == "linux":
        for force, option in ((_SO_SNDBUFFORCE, socket.SO_SNDBUF), (_SO_RCVBUFFORCE, socket.SO_RCVBUF)):
            try:
                sock.setsockopt(socket.SOL_SOCKET, force, BUFFER_BYTES)
            except PermissionError:
                sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)


def packets_held(descriptor: int, size: int) -> int:
    """The number of packets of ``size`` bytes that wait in a socket's receive buffer before it loses one, 1 at least. The
    kernel counts the memory that a packet takes, and what has been received it may count on, up to a quarter of the buffer
    (udp_rmem_release)."""
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        buffer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    taken = (1 << (size + _ADDED_BYTES - 1).bit_length()) + _APART_BYTES
    return max(1, buffer * 3 // 4 // taken)


def parse_address(text: str) -> Address:
    """``HOST:PORT`` as a tuple; ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    if ":" in host:
        raise ValueError(f"{text!r} is an address of IPv6, and netsum is IPv4 only")
    if not colon or not port.isdigit():
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)
