# SPDX-License-Identifier: MIT
"""All conversations of one member: messages to and from every other member, and how far the others are. No socket and no thread;
the clock is passed in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from netsum.core.blocks import Payload
from netsum.peers.connections import Head, PeerSession
from netsum.peers.wire import FRAME, HEAD, RANK, Flag, rank_of
from netsum.stats import Stats

QUERY_FIRST: Final = 0.05
"""Seconds of waiting before every member is queried for its progress; each further query waits twice as long, ..."""
QUERY_AFTER: Final = 0.25
"""... up to this."""
_IDS: Final = 1 << 32

Frame = tuple[Payload, ...]
"""A frame's body in parts; its first byte is the rank at the other end."""


class Messenger:
    """``at`` is the id of the first block that this member has not begun; every frame tells it."""

    def __init__(self, peers: Iterable[int], algorithm: int, at: int, stats: Stats) -> None:
        """``peers`` are the other ranks; ``algorithm`` is its number, which every frame tells."""
        self.at = at
        self.stats = stats
        self.others_at: dict[int, int] = {}
        """Each rank's ``at``, as last received."""
        self.algorithms: dict[int, int] = {}
        """Each rank's algorithm, as last received."""
        self.differing: dict[int, int] = {}
        """Ranks whose call differs, each with the first block that it will not finish."""
        self.gone: set[int] = set()
        """Ranks that have left."""
        self.unanswered = dict.fromkeys(peers, 0)
        """The number of queries that each rank has left unanswered. (While this process was stopped, it asked none.)"""
        self._ends = {rank: PeerSession(algorithm, stats) for rank in self.unanswered}
        self._flags = 0
        self._query_at: float | None = None
        self._pause = QUERY_FIRST

    @property
    def settled(self) -> bool:
        """True if the others have everything that was posted."""
        return all(end.settled for end in self._ends.values())

    def kept(self, rank: int) -> int:
        """The number of messages to this rank that it is not known to have."""
        return self._ends[rank].kept

    def last_received(self, rank: int) -> float | None:
        """The time when something last arrived from this rank."""
        return self._ends[rank].last_received

    def post(self, rank: int, message: bytes) -> None:
        if rank not in self.gone:
            self._ends[rank].post(message)

    def poll(self, now: float, *, waiting: bool) -> list[Frame]:
        """The frames to send now; the members that get least come first, since one link carries them all one after the other.
        ``waiting``: this member waits for others."""
        flags = self._flags | Flag.ANSWER * self._queries(now, waiting)
        to_each = [
            [(RANK.pack(rank) + head, *message) for head, *message in end.poll(now, flags, self.at)]
            for rank, end in self._ends.items()
        ]
        to_each.sort(key=lambda frames: sum(len(part) for frame in frames for part in frame))
        return self._counted(frame for frames in to_each for frame in frames)

    def _queries(self, now: float, waiting: bool) -> bool:
        if not waiting:
            self._query_at = None
        elif self._query_at is None:
            self._query_at, self._pause = now + QUERY_FIRST, QUERY_FIRST
        elif now >= self._query_at:
            self._pause = min(2 * self._pause, QUERY_AFTER)
            self._query_at = now + self._pause
            for rank in self.unanswered:
                self.unanswered[rank] += 1
            return True
        return False

    def _counted(self, frames: Iterable[Frame]) -> list[Frame]:
        counted = list(frames)
        self.stats.packets_sent += len(counted)
        self.stats.bytes_sent += sum(FRAME.size + sum(map(len, frame)) - RANK.size for frame in counted)
        return counted

    def say(self, flag: Flag, at: int) -> list[Frame]:
        """Tell everyone, each in a frame of its own. Later frames repeat BYE, and DIFFER with the first block that this member
        will not finish, but not ANSWER."""
        if flag is Flag.DIFFER:
            self.at = at
        if flag is not Flag.ANSWER:
            self._flags |= flag
        return self._counted((RANK.pack(rank) + end.head(self._flags | flag, self.at),) for rank, end in self._ends.items())

    def receive(self, frame: memoryview, now: float) -> tuple[int, list[bytes]]:
        """Take a frame, which begins with the sender's rank; returns the rank and the messages that are now in order."""
        stats = self.stats
        stats.packets_received += 1
        stats.bytes_received += FRAME.size + len(frame) - RANK.size
        rank = rank_of(frame) if len(frame) >= RANK.size else -1
        if rank not in self._ends or RANK.size < len(frame) < RANK.size + HEAD.size:
            stats.malformed += 1
            return rank, []
        end = self._ends[rank]
        if len(frame) == RANK.size:
            end.lost()
            return rank, []
        head = Head._make(HEAD.unpack_from(frame, RANK.size))
        messages = end.receive(head, frame[RANK.size + HEAD.size :], now)
        self.unanswered[rank] = 0
        self.algorithms[rank] = head.algorithm
        if head.flags & Flag.DIFFER:
            self.differing.setdefault(rank, head.at)
        if (head.at - self.others_at.get(rank, head.at)) % _IDS < _IDS // 2:  # unless a later frame overtook this one
            self.others_at[rank] = head.at
        if head.flags & Flag.BYE:
            self.gone.add(rank)
            end.forget()
        return rank, messages
