"""Many packets by one system call: sendmmsg(2) and recvmmsg(2), for which Python has nothing. Where the system has neither, a
call a packet."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.transports.segmentation import MOST, UDP_SEGMENT

AVAILABLE: Final = sys.platform == "linux"
"""True if this system has the two calls, with the structures below."""
_libc: Any = ctypes.CDLL(None, use_errno=True) if AVAILABLE else None


class _Vector(ctypes.Structure):
    """struct iovec. Pointers are numbers here and below, so that numpy can write them."""

    _fields_ = [("base", ctypes.c_size_t), ("size", ctypes.c_size_t)]


class _Header(ctypes.Structure):
    """struct msghdr"""

    _fields_ = [
        ("name", ctypes.c_size_t),
        ("name_size", ctypes.c_uint),
        ("vectors", ctypes.c_size_t),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_size_t),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class _Message(ctypes.Structure):
    """struct mmsghdr"""

    _fields_ = [("header", _Header), ("length", ctypes.c_uint)]


_CONTROL: Final = np.dtype(
    {
        "names": ["size", "level", "type", "tos", "segment"],
        "formats": ["u8", "i4", "i4", "u1", "u4"],
        "offsets": [0, 8, 12, 16, 16],
        "itemsize": 24,
    }
)
"""struct cmsghdr, and what we ask for: the second byte of the IPv4 header, and the size of datagrams that came together."""
_SEGMENT_CONTROL_BYTES: Final = 18  # CMSG_LEN of its two bytes, when it is sent
_LARGEST_DATAGRAM: Final = 65507


class MessageArray:
    """A packet for each row of ``rows``, which may change between two calls.

    Attributes:
        rows: uint8[packets, bytes], each row contiguous.
        lengths: of the packets received last.
        tos: the second byte of their IPv4 headers, if :meth:`request_tos` was called.
        segments: bytes of each datagram in a row, if :meth:`request_segments` was called; 0: the row is one datagram.
    """

    def __init__(self, rows: NDArray[np.uint8], address: tuple[str, int] | None = None) -> None:
        """``address`` (IPv4, UDP port) is where to send if the socket is not connected."""
        count = len(rows)
        self._vectors: NDArray[Any] = np.zeros((count, 2), np.dtype(_Vector))  # what stands before each row, and the row
        self._messages: NDArray[Any] = np.zeros(count, np.dtype(_Message))
        self._start = self._messages.ctypes.data
        headers = self._messages["header"]
        headers["vectors"] = self._vectors.ctypes.data + np.arange(count) * self._vectors.strides[0]
        headers["vector_count"] = 2
        self._address = address
        if address is not None:
            there = struct.pack("=H2s4s8x", socket.AF_INET, struct.pack(">H", address[1]), socket.inet_aton(address[0]))
            self._there = np.frombuffer(there, np.uint8)
            headers["name"], headers["name_size"] = self._there.ctypes.data, len(there)
        self.lengths: NDArray[np.uint32] = self._messages["length"]
        self._control: NDArray[Any] = np.zeros((count, 2), _CONTROL)
        self.tos: NDArray[np.uint8] | None = None
        self.segments: NDArray[np.uint32] | None = None
        self._control_sizes: NDArray[Any] | None = None
        self._large: NDArray[Any] | None = None
        self.per = 1
        """Rows of a message that is received."""
        self._spread_size = 0
        self.show(rows)

    def request_tos(self) -> None:
        """Receive the second byte of each packet's IPv4 header, too, from a socket that has IP_RECVTOS."""
        if AVAILABLE:
            self.tos = self._control[:, 0]["tos"]
            self._request_control()

    def request_segments(self) -> None:
        """Receive rows of several datagrams, too, from a socket that has UDP_GRO."""
        self.segments = np.zeros(len(self._messages), np.uint32)
        self._request_control()

    def _request_control(self) -> None:
        headers, size = self._messages["header"], self._control.strides[0]
        headers["control"] = self._control.ctypes.data + np.arange(len(self._messages)) * size
        self._control_sizes = headers["control_size"]

    def show(self, rows: NDArray[np.uint8], head: bytes = b"") -> None:
        """Take these rows instead, at most as many as the first, with ``head`` before each."""
        self.rows, self._head = rows, np.frombuffer(head or b"\0", np.uint8)
        count, size = rows.shape
        vectors = self._vectors[:count]
        vectors["base"][:, 0], vectors["size"][:, 0] = self._head.ctypes.data, len(head)
        vectors["base"][:, 1] = rows.ctypes.data + np.arange(count) * rows.strides[0]
        vectors["size"][:, 1] = size

    def send(self, sock: socket.socket, first: int, count: int) -> int:
        """Send ``count`` packets from row ``first`` on, in this order; returns how many went. OSError if not even one did."""
        if not AVAILABLE:
            packet = (self._head.data[: int(self._vectors["size"][0, 0])], self.rows[first].data)
            sock.sendmsg(packet, *(((), 0, self._address) if self._address is not None else ()))
            return 1
        at = ctypes.c_void_p(self._start + first * self._messages.itemsize)
        return _checked(_libc.sendmmsg(sock.fileno(), at, count, 0))

    def send_segments(self, sock: socket.socket, first: int, count: int, most: int) -> int:
        """The same, up to ``most`` packets at a time (UDP_SEGMENT). ``first`` and what is returned are rows."""
        size = int(self._vectors[0]["size"].sum())
        if self._large is None:
            self._large = np.zeros(len(self._messages), np.dtype(_Message))
            control = np.zeros(1, _CONTROL)
            control["size"], control["level"], control["type"] = _SEGMENT_CONTROL_BYTES, socket.IPPROTO_UDP, UDP_SEGMENT
            self._segment = control
            headers = self._large["header"]
            headers["name"], headers["name_size"] = self._messages["header"]["name"], self._messages["header"]["name_size"]
            headers["control"], headers["control_size"] = control.ctypes.data, control.itemsize
        self._segment["segment"] = size
        starts = np.arange(first, first + count, most)
        headers = self._large["header"][: len(starts)]
        headers["vectors"] = self._vectors.ctypes.data + starts * self._vectors.strides[0]
        headers["vector_count"] = 2 * np.minimum(most, first + count - starts)
        sent = _checked(_libc.sendmmsg(sock.fileno(), ctypes.c_void_p(self._large.ctypes.data), len(starts), 0))
        return min(count, sent * most)

    def send_all(self, sock: socket.socket, count: int) -> None:
        """Send the first ``count`` packets on a blocking socket; waits until there is room."""
        done = 0
        while done < count:
            done += self.send(sock, done, count - done)

    def spread(self, size: int) -> None:
        """Receive packets of ``size`` bytes that come many at a time, each into a row of its own: row ``per * i`` and those after
        it are for the i-th message."""
        if size == self._spread_size:
            return
        self.per = max(1, min(len(self.rows), MOST, _LARGEST_DATAGRAM // size))
        count = len(self.rows) // self.per
        self._spread_size, self._rest = size, np.zeros((count, _LARGEST_DATAGRAM), np.uint8)
        vectors = self._spread_vectors = np.zeros((count, self.per + 1), np.dtype(_Vector))
        places = self.rows.ctypes.data + np.arange(count * self.per) * self.rows.strides[0]
        vectors["base"][:, :-1], vectors["size"][:, :-1] = places.reshape(count, self.per), size
        vectors["base"][:, -1] = self._rest.ctypes.data + np.arange(count) * self._rest.strides[0]
        vectors["size"][:, -1] = _LARGEST_DATAGRAM - self.per * size
        headers = self._messages["header"][:count]
        headers["vectors"] = vectors.ctypes.data + np.arange(count) * vectors.strides[0]
        headers["vector_count"] = self.per + 1

    def receive(self, sock: socket.socket, flags: int = 0) -> int:
        """Receive as many packets as are there; returns how many.

        Raises:
            BlockingIOError: there is none, in the socket's time.
        """
        if not AVAILABLE:
            self.lengths[0] = sock.recv_into(self.rows[0], 0, flags)
            return 1
        most = len(self.rows) // self.per
        sizes = self._control_sizes
        if sizes is not None:
            sizes[:most] = self._control.strides[0]  # which the kernel changes
        number = _checked(_libc.recvmmsg(sock.fileno(), ctypes.c_void_p(self._start), most, flags, None))
        if self.segments is not None and sizes is not None:
            control = self._control[:number]
            several = (sizes[:number] > 0) & (control[:, 0]["level"] == socket.IPPROTO_UDP)
            self.segments[:number] = np.where(several, control[:, 0]["segment"], 0)
            if self.tos is not None and several.any():  # then it comes second
                control[:, 0]["tos"] = np.where(several, control[:, 1]["tos"], control[:, 0]["tos"])
        return number

    def content(self, at: int) -> bytes:
        """A message that was received."""
        length = int(self.lengths[at])
        if not self._spread_size:
            return bytes(self.rows[at, :length].data)
        rows = self.rows[self.per * at : self.per * (at + 1), : self._spread_size]
        return (rows.tobytes() + bytes(self._rest[at].data))[:length]


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
