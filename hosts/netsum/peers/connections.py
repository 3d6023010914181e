# SPDX-License-Identifier: MIT
"""Connections between members."""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
from collections import deque
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final, NamedTuple

from netsum.core.retransmit import RttEstimator
from netsum.fork_guard import fork_guarded
from netsum.peers.wire import (
    GREETING,
    HEAD,
    HELLO,
    BrokenError,
    Flag,
    FrameAuth,
    FrameReader,
    Identity,
    framed,
    rank_of,
)
from netsum.stats import Stats
from netsum.transports.base import Packet
from netsum.transports.peer_filter import Address

# One member's end of a conversation with another: every message once and in order, although connections may break.
#
# A connection carries what is sent on it in order, but when it breaks it is not known how much arrived. So messages are
# numbered, and kept until the other end acknowledges them (``ack``). An end that lacks some asks for them (AGAIN) and
# gets everything from ``ack`` on once more. It knows that it lacks some when it is told that frames may be lost, when
# the other end is ahead of it, or when later messages have arrived. Without loss nothing is sent twice, and one message
# in :data:`ACK_EVERY` is acknowledged by a frame of its own, the others by frames that are sent anyway. No socket and
# no thread; the clock is passed in.


ACK_EVERY: Final = 8
EARLY: Final = 64
"""Most messages kept that have overtaken another. (Connections keep the order; a test's network need not.)"""
REORDERING: Final = 3
"""The number of messages that must overtake one before it counts as lost."""


class Head(NamedTuple):
    flags: int
    algorithm: int
    at: int
    number: int
    ack: int


class PeerSession:
    """A conversation with one other member. ``last_received`` is when something last arrived."""

    def __init__(self, algorithm: int, stats: Stats) -> None:
        self.last_received: float | None = None
        self._algorithm = algorithm
        self._stats = stats
        self._kept: deque[bytes] = deque()  # messages that the other end is not known to have
        self._first = 0  # number of the first of these
        self._sent = 0  # how many of them are sent
        self._rtt = RttEstimator()
        self._timed: tuple[int, float] | None = None  # the acknowledgment awaited, and since when
        self._expected = 0  # number of the next message to arrive
        self._early: dict[int, bytes] = {}
        self._owed = 0  # messages that have arrived since the last frame was sent
        self._answer_due = False  # the other end wants an answer from us
        self._lacks = False  # the other end is to repeat
        self._lacked = -1  # the last message asked for because later ones had arrived

    @property
    def settled(self) -> bool:
        """True if the other end has everything."""
        return not self._kept

    @property
    def kept(self) -> int:
        """The number of messages that the other end is not known to have."""
        return len(self._kept)

    def forget(self) -> None:
        """Drop what is kept: the other end needs nothing more."""
        self._first += self._sent
        self._sent = 0
        self._kept.clear()

    def post(self, message: bytes) -> None:
        self._kept.append(message)

    def poll(self, now: float, flags: int, at: int) -> list[tuple[bytes, ...]]:
        """The frames to send now, each a head and a message; a head alone if only an answer or an acknowledgment is due."""
        wanted = self._lacks or self._answer_due or self._owed >= ACK_EVERY or flags & Flag.ANSWER
        if self._sent == len(self._kept):
            return [(self.head(flags, at),)] if wanted else []
        frames: list[tuple[bytes, ...]] = []
        for message in islice(self._kept, self._sent, None):
            frames.append((self.head(flags | Flag.DATA, at), message))
            self._sent += 1
            flags &= ~Flag.ANSWER  # said once
        self._timed = self._timed or (self._first + self._sent, now)
        return frames

    def head(self, flags: int, at: int) -> bytes:
        flags |= Flag.AGAIN * self._lacks
        self._owed, self._answer_due, self._lacks = 0, False, False
        return HEAD.pack(flags, self._algorithm, at, self._first + self._sent, self._expected)

    def lost(self) -> None:
        """Note that what the other end has sent so far may be lost."""
        self._lacks = True

    def receive(self, head: Head, message: memoryview, now: float) -> list[bytes]:
        """Take a frame from the other end; returns the messages that are now in order."""
        self.last_received = now
        while self._sent and self._first < head.ack:
            self._kept.popleft()
            self._first += 1
            self._sent -= 1
        if self._timed is not None and self._first >= self._timed[0]:
            self._rtt.learn(now - self._timed[1])
            self._stats.rtt = self._rtt.srtt or 0.0
            self._timed = None
        if head.flags & Flag.AGAIN:
            self._stats.retransmissions += self._sent
            self._sent = 0
            self._timed = None
        if head.flags & Flag.ANSWER:
            self._answer_due = True
        if not head.flags & Flag.DATA:
            self._lacks = self._lacks or head.number > self._expected
            return []
        return self._take(head.number, message)

    def _take(self, number: int, message: memoryview) -> list[bytes]:
        if number < self._expected or number in self._early:
            self._stats.duplicates += 1
        elif number < self._expected + EARLY:
            self._early[number] = bytes(message)
        messages = []
        while self._expected in self._early:
            messages.append(self._early.pop(self._expected))
            self._expected += 1
        self._owed += len(messages)
        if len(self._early) >= REORDERING and self._lacked != self._expected:
            self._lacks, self._lacked = True, self._expected
        return messages


# The two ends of a connection between members. It carries frames one way, from the member that opened it.
#
# A member that has something to send connects, so two members never wait for each other to do it. A connection may break at
# any time, even through an untrusted sender. It is then opened again, and what was lost is repeated.


PATIENCE: Final = 2.0
"""Seconds within which both ends must prove who they are, and TCP must acknowledge what was sent."""
RETRY: Final = 0.01
"""Seconds before a broken connection is opened again; each further attempt waits twice as long, ..."""
MAX_RETRY: Final = 0.25
"""... up to this."""
READ_BYTES: Final = 1 << 18
"""Most bytes of one read from a connection."""

_LINUX: Final = (
    (getattr(socket, "TCP_USER_TIMEOUT", 18), int(PATIENCE * 1000)),  # otherwise TCP keeps trying for minutes
    # Microseconds, in newer kernels. Otherwise TCP waits at least 200 ms before it repeats a lone message: with 2 % of packets
    # lost, that makes the average round trip ten times as long. Acknowledgments must come sooner than the repeats.
    (45, 10_000),  # TCP_RTO_MIN_US
    (46, 8_000),  # TCP_DELACK_MAX_US
)

Selector = selectors.BaseSelector
Clock = Callable[[], float]


def prepare(sock: socket.socket) -> socket.socket:
    fork_guarded(sock)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _LINUX if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # an older kernel
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock


class Outgoing:
    """The connection to one other member. It is opened when there is something to send, and again when it breaks: an empty
    frame then goes first, because earlier ones may be lost."""

    def __init__(self, identity: Identity, rank: int, host: str, address: Address, room: int, clock: Clock) -> None:
        """``host`` is our own address; ``room`` is how many bytes may wait to be sent, the rest is dropped."""
        self.last_error: str | None = None
        self._identity = identity
        self._rank = rank
        self._host = host
        self._address = address
        self._room = room
        self._clock = clock
        self._waiting: deque[Packet] = deque()
        self._waiting_bytes = 0
        self._sock: socket.socket | None = None
        self._greeting = b""
        self._auth: FrameAuth | None = None
        self._rest = memoryview(b"")  # of the frame that is being sent
        self._began = 0.0
        self._next = 0.0  # when to connect
        self._pause = RETRY

    def send(self, body: Packet, selector: Selector) -> None:
        """Send the frame after all earlier ones, as soon as possible."""
        if self._waiting_bytes > self._room:
            return
        self._waiting.append(body)
        self._waiting_bytes += sum(map(len, body))
        if self._sock is None:
            self.look_after(self._clock(), selector)
        elif self._auth is not None and not self._rest:
            self.go_on(selector, selectors.EVENT_WRITE)

    def look_after(self, now: float, selector: Selector) -> None:
        """Connect if that is due; abandon an attempt that is not answered."""
        if self._sock is None:
            if self._waiting and now >= self._next:
                self._connect(now, selector)
        elif self._auth is None and now - self._began > PATIENCE:
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
        """The selector says that the socket is ready."""
        assert self._sock is not None
        try:
            if events & selectors.EVENT_READ:
                self._read(self._sock)
            if self._auth is not None:
                self._write(self._sock, self._auth, selector)
        except OSError as error:
            self._break(error.strerror or str(error), selector)

    def _read(self, sock: socket.socket) -> None:
        """Read the greeting, the only thing that comes this way."""
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
                raise BrokenError("a process answers that is not the member's")
            hello, self._auth = answer
            self._rest = memoryview(hello)

    def _write(self, sock: socket.socket, auth: FrameAuth, selector: Selector) -> None:
        try:
            while self._rest or self._waiting:
                if not self._rest:
                    body = self._waiting.popleft()
                    self._waiting_bytes -= sum(map(len, body))
                    self._rest = memoryview(framed(auth, body))
                self._rest = self._rest[sock.send(self._rest) :]
            wanted = selectors.EVENT_READ
        except BlockingIOError:
            wanted = selectors.EVENT_READ | selectors.EVENT_WRITE
        if selector.get_key(sock).events != wanted:
            selector.modify(sock, wanted, self.go_on)

    def _break(self, why: str, selector: Selector) -> None:
        """Close the connection; what was sent on it may be lost."""
        self.last_error = why
        now = self._clock()
        self._pause = RETRY if now - self._began > PATIENCE else min(2 * self._pause, MAX_RETRY)
        self._next = now + self._pause
        if self._auth is not None:
            self._waiting = deque([()])
            self._waiting_bytes = 0
        self.close(selector)

    def close(self, selector: Selector) -> None:
        if self._sock is not None:
            selector.unregister(self._sock)
            self._sock.close()
        self._sock, self._auth, self._greeting, self._rest = None, None, b"", memoryview(b"")


class Incoming:
    """A connection that was accepted. ``rank`` is that of the member at the other end, once it has proven who it is."""

    def __init__(self, identity: Identity, sock: socket.socket, ranks: Collection[int], largest: int, now: float) -> None:
        """``ranks`` are those that may be at the other end; ``largest`` is the most bytes of a frame's body. Raises OSError if
        the connection is already broken."""
        self.rank: int | None = None
        self.began = now
        self._identity = identity
        self._sock = prepare(sock)
        self._ranks = ranks
        self._largest = largest
        self._hello = b""
        self._reader: FrameReader | None = None
        self._greeting = identity.greet()
        self._sock.send(self._greeting)

    def fileno(self) -> int:
        """The socket's file descriptor; -1 once it is closed."""
        return self._sock.fileno()

    def read(self, now: float) -> list[bytes]:
        """The bodies of the frames that have arrived. Raises OSError when the connection is unusable: :class:`BrokenError` if
        the other end is not a member's process, or what it sent was altered."""
        try:
            data = self._sock.recv(HELLO.size - len(self._hello) if self._reader is None else READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError
        if self._reader is not None:
            return self._reader.take(data, now)
        self._hello += data
        if len(self._hello) == HELLO.size:
            self._reader = self._meet(self._hello)
        return []

    def _meet(self, hello: bytes) -> FrameReader:
        met = self._identity.meet(self._greeting, hello) if rank_of(hello) in self._ranks else None
        if met is None:
            raise BrokenError("a process connects that is not a member's")
        self.rank, auth = met
        return FrameReader(auth, self._largest)

    def stalled(self, now: float) -> bool:
        """True if half a frame has come, and nothing more for too long."""
        return self._reader is not None and self._reader.stalled(now)

    def close(self) -> None:
        self._sock.close()
