"""Many packets by one system call: sendmmsg(2) and recvmmsg(2), for which Python has nothing."""

from __future__ import annotations

import ctypes
import os
import socket

import numpy as np
from numpy.typing import NDArray

_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    """struct iovec"""

    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _Header(ctypes.Structure):
    """struct msghdr"""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class _Message(ctypes.Structure):
    """struct mmsghdr"""

    _fields_ = [("header", _Header), ("size", ctypes.c_uint)]


class MessageArray:
    """A packet for each row of ``rows``, or for its first ``size`` bytes; the rows may change between two calls."""

    def __init__(self, rows: NDArray[np.uint8], size: int | None = None) -> None:
        self.rows = np.ascontiguousarray(rows)
        count, room = self.rows.shape
        start = self.rows.ctypes.data
        self._vectors = (_Vector * count)(*((start + room * at, size or room) for at in range(count)))
        self._messages = (_Message * count)()
        for message, vector in zip(self._messages, self._vectors, strict=True):
            message.header.vectors, message.header.vector_count = ctypes.pointer(vector), 1

    def send(self, sock: socket.socket, count: int) -> None:
        """Send the first ``count`` packets; waits until there is room."""
        done = 0
        while done < count:
            size = ctypes.sizeof(_Message) * done
            done += _checked(_libc.sendmmsg(sock.fileno(), ctypes.byref(self._messages, size), count - done, 0))

    def receive(self, sock: socket.socket, flags: int) -> int:
        """Receive as many packets as are there; how many.

        Raises:
            BlockingIOError: there is none, in the socket's time.
        """
        return _checked(_libc.recvmmsg(sock.fileno(), self._messages, len(self._messages), flags, None))

    def size(self, at: int) -> int:
        """Bytes of a packet that was received."""
        size: int = self._messages[at].size
        return size

    def content(self, at: int) -> bytes:
        """A packet that was received."""
        content: bytes = self.rows[at, : self.size(at)].tobytes()
        return content


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
