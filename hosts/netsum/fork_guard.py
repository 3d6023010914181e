# SPDX-License-Identifier: MIT
"""A communicator belongs to the process that made it.

A forked child has a copy of everything, including sockets and block ids. What it sent would pass for its parent's, and what it
received would be lost to its parent. So it may use none of it, and whatever it does (make a call, leave a ``with`` block, exit),
its parent and the other ranks notice nothing.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable
from typing import Final

from netsum.errors import ClosedError


class ForkGuard:
    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def here(self) -> bool:
        """True if this is that process. Check it before taking any lock: a thread that the child lacks may hold it."""
        return os.getpid() == self._process

    def check(self) -> None:
        if os.getpid() != self._process:
            raise ClosedError(
                f"the communicator belongs to process {self._process}, which joined; this is process {os.getpid()}, "
                "forked from it: make the calls there, or join here with a rank of its own"
            )


_sockets: Final[weakref.WeakSet[socket.socket]] = weakref.WeakSet()


def fork_guarded(sock: socket.socket) -> None:
    """Close this socket in forked children, which would steal its packets and keep its port when the parent is gone."""
    _sockets.add(sock)


def in_child(callback: Callable[[], object]) -> None:
    """Call this in every forked child, on systems that can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


def _leave_sockets() -> None:
    for sock in list(_sockets):
        sock.close()


in_child(_leave_sockets)
