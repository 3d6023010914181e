# SPDX-License-Identifier: MIT
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
    {"names": ["size", "level", "type", "tos"], "formats": ["u8", "i4", "i4", "u1"], "offsets": [0, 8, 12, 16], "itemsize": 24}
)
"""struct cmsghdr, and what we ask for: the second byte of the IPv4 header."""


class MessageArray:
    """A packet for each row of ``rows``, which may change between two calls.

    Attributes:
        rows: uint8[packets, bytes], each row contiguous.
        lengths: of the packets received last.
        tos: the second byte of their IPv4 headers, if :meth:`request_tos` was called.
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
        self._control: NDArray[Any] = np.zeros(count, _CONTROL)
        self.tos: NDArray[np.uint8] | None = None
        self._control_sizes: NDArray[Any] | None = None
        self.set_rows(rows)

    def request_tos(self) -> None:
        """Receive the second byte of each packet's IPv4 header, too, from a socket that has IP_RECVTOS."""
        if AVAILABLE:
            self.tos = self._control["tos"]
            headers, size = self._messages["header"], self._control.strides[0]
            headers["control"] = self._control.ctypes.data + np.arange(len(self._messages)) * size
            self._control_sizes = headers["control_size"]

    def set_rows(self, rows: NDArray[np.uint8], head: bytes = b"") -> None:
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

    def send_all(self, sock: socket.socket, count: int) -> None:
        """Send the first ``count`` packets on a blocking socket; waits until there is room."""
        done = 0
        while done < count:
            done += self.send(sock, done, count - done)

    def receive(self, sock: socket.socket, flags: int = 0) -> int:
        """Receive as many packets as are there; returns how many.

        Raises:
            BlockingIOError: there is none, in the socket's time.
        """
        if not AVAILABLE:
            self.lengths[0] = sock.recv_into(self.rows[0], 0, flags)
            return 1
        if self._control_sizes is not None:
            self._control_sizes[:] = self._control.strides[0]  # which the kernel changes
        return _checked(_libc.recvmmsg(sock.fileno(), ctypes.c_void_p(self._start), len(self.rows), flags, None))


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
