"""The two ends of a connection between members. It carries frames one way, from the member that made it.

Whoever has something to say connects, so two members never wait for each other to do it. A connection may break at any time, also
by a stranger's hand; it is made again, and what was lost is sent again (:mod:`netsum.peers.conversation`).
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Collection
from typing import Final

from netsum.home import stays_home
from netsum.peers.seal import Identity, Seal
from netsum.peers.wire import FRAME, GREETING, HELLO
from netsum.transports.base import Packet
from netsum.transports.only_from import Address

PATIENCE: Final = 2.0
"""Seconds until both ends must have proven themselves, and until something that was sent must have been acknowledged by TCP."""
RETRY: Final = 0.01
"""Seconds after which a connection that broke is made again; then after twice as long, again and again, ..."""
MAX_RETRY: Final = 0.25
"""... at most."""
READ_BYTES: Final = 1 << 18
"""Read from a connection at once, at most."""

_LINUX: Final = (
    (getattr(socket, "TCP_USER_TIMEOUT", 18), int(PATIENCE * 1000)),  # else TCP tries for minutes, less and less often
    # Microseconds, in newer kernels. Else TCP waits for 200 ms at least until it sends a lone message again: where 2 in 100
    # packets are lost, an average round trip then takes ten times as long. Acknowledgements must come earlier than that, too.
    (45, 10_000),  # TCP_RTO_MIN_US
    (46, 8_000),  # TCP_DELACK_MAX_US
)

Selector = selectors.BaseSelector


class BrokenError(OSError):
    """The connection cannot go on: it was closed, or the other end is nobody that we know."""


def prepare(sock: socket.socket) -> socket.socket:
    """Settings of all connections."""
    stays_home(sock)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _LINUX if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # an older kernel
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock


class Outgoing:
    """What goes to one other member. It connects when there is something to send, and again when the connection breaks: then an
    empty frame goes first, since earlier ones may be lost."""

    def __init__(self, identity: Identity, rank: int, host: str, address: Address, room: int) -> None:
        """``host``: our own address. ``room``: bytes that may wait to be sent; what is beyond that is lost."""
        self.last_error: str | None = None
        self._identity = identity
        self._rank = rank
        self._host = host
        self._address = address
        self._room = room
        self._waiting: deque[Packet] = deque()
        self._waiting_bytes = 0
        self._sock: socket.socket | None = None
        self._greeting = b""
        self._seal: Seal | None = None
        self._rest = memoryview(b"")  # of the frame that is being sent
        self._began = 0.0
        self._next = 0.0  # when to connect
        self._pause = RETRY

    def send(self, body: Packet, selector: Selector) -> None:
        """Send the frame after all earlier ones, as soon as it can be."""
        if self._waiting_bytes > self._room:
            return
        self._waiting.append(body)
        self._waiting_bytes += sum(map(len, body))
        if self._sock is None:
            self.look_after(time.monotonic(), selector)
        elif self._seal is not None and not self._rest:
            self.go_on(selector, selectors.EVENT_WRITE)

    def look_after(self, now: float, selector: Selector) -> None:
        """Connect if that is due; give a connection up that comes to nothing."""
        if self._sock is None:
            if self._waiting and now >= self._next:
                self._connect(now, selector)
        elif self._seal is None and now - self._began > PATIENCE:
            self._break("the connection is not answered", selector)

    def _connect(self, now: float, selector: Selector) -> None:
        self._began = now
        self._sock = prepare(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        selector.register(self._sock, selectors.EVENT_READ, self.go_on)
        try:
            self._sock.bind((self._host, 0))  # the address that the others know us by
            self._sock.connect(self._address)
        except BlockingIOError:
            pass
        except OSError as error:
            self._break(error.strerror or str(error), selector)

    def go_on(self, selector: Selector, events: int) -> None:
        """The socket can be read from or written to."""
        assert self._sock is not None
        try:
            if events & selectors.EVENT_READ:
                self._read(self._sock)
            if self._seal is not None:
                self._write(self._sock, self._seal, selector)
        except OSError as error:
            self._break(error.strerror or str(error), selector)

    def _read(self, sock: socket.socket) -> None:
        """The greeting; behind it nothing comes."""
        try:
            data = sock.recv(GREETING.size - len(self._greeting) or 1)
        except BlockingIOError:
            return
        self._greeting += data
        if not data or len(self._greeting) > GREETING.size:
            raise BrokenError("a member has closed the connection")
        if len(self._greeting) == GREETING.size:
            answer = self._identity.answer(self._greeting, self._rank)
            if answer is None:
                raise BrokenError("another process than the member's answers")
            hello, self._seal = answer
            self._rest = memoryview(hello)

    def _write(self, sock: socket.socket, seal: Seal, selector: Selector) -> None:
        try:
            while self._rest or self._waiting:
                if not self._rest:
                    body = self._waiting.popleft()
                    size = sum(map(len, body))
                    self._waiting_bytes -= size
                    self._rest = memoryview(b"".join((FRAME.pack(size, seal.tag(body)), *body)))
                self._rest = self._rest[sock.send(self._rest) :]
            wanted = selectors.EVENT_READ
        except BlockingIOError:
            wanted = selectors.EVENT_READ | selectors.EVENT_WRITE
        if selector.get_key(sock).events != wanted:
            selector.modify(sock, wanted, self.go_on)

    def _break(self, why: str, selector: Selector) -> None:
        """Close the connection; what was sent on it may be lost."""
        self.last_error = why
        now = time.monotonic()
        self._pause = RETRY if now - self._began > PATIENCE else min(2 * self._pause, MAX_RETRY)
        self._next = now + self._pause
        if self._seal is not None:
            self._waiting = deque([()])
            self._waiting_bytes = 0
        self.close(selector)

    def close(self, selector: Selector) -> None:
        """End the connection, if there is one."""
        if self._sock is not None:
            selector.unregister(self._sock)
            self._sock.close()
        self._sock, self._seal, self._greeting, self._rest = None, None, b"", memoryview(b"")


class Incoming:
    """A connection that was accepted. ``rank``: of the member at its other end, when it has proven itself."""

    def __init__(self, identity: Identity, sock: socket.socket, ranks: Collection[int], largest: int) -> None:
        """``ranks``: that may be at the other end. ``largest``: bytes of a frame's body. OSError: it is broken already."""
        self.rank: int | None = None
        self.began = time.monotonic()
        self._identity = identity
        self._sock = prepare(sock)
        self._ranks = ranks
        self._largest = largest
        self._come = bytearray()
        self._seal: Seal | None = None
        self._greeting = identity.greet()
        self._sock.send(self._greeting)

    def fileno(self) -> int:
        """The socket's; -1: it is closed."""
        return self._sock.fileno()

    def read(self) -> list[bytes]:
        """The bodies of the frames that have come. Raises OSError when the connection cannot go on: :class:`BrokenError` if its
        other end is no member's process, or somebody has changed what it sent."""
        try:
            data = self._sock.recv(HELLO.size - len(self._come) if self._seal is None else READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError
        self._come += data
        if self._seal is None:
            return self._meet()
        return self._frames(self._seal)

    def _meet(self) -> list[bytes]:
        if len(self._come) == HELLO.size:
            met = self._identity.meet(self._greeting, bytes(self._come)) if self._come[0] in self._ranks else None
            if met is None:
                raise BrokenError
            self.rank, self._seal = met
            self._come.clear()
        return []

    def _frames(self, seal: Seal) -> list[bytes]:
        bodies = []
        start, end = 0, len(self._come)
        while end - start >= FRAME.size:
            size, tag = FRAME.unpack_from(self._come, start)
            if size > self._largest:
                raise BrokenError
            if end - start < FRAME.size + size:
                break
            start += FRAME.size
            body = bytes(memoryview(self._come)[start : start + size])
            start += size
            if not seal.holds(tag, (body,)):
                raise BrokenError
            bodies.append(body)
        del self._come[:start]
        return bodies

    def close(self) -> None:
        """End the connection."""
        self._sock.close()
