"""All conversations of one member: messages to and from each other member, reliable and in order. No socket, no thread; the clock
is passed in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from netsum.block import Payload
from netsum.peers.conversation import NUMBER, Conversation, Head
from netsum.peers.wire import RANK, SEAL, SEGMENT, Flag
from netsum.stats import Stats

ASK_FIRST: Final = 0.05
"""Seconds of waiting for somebody after which everybody is asked how far they are; then after twice as long, again and again."""
ASK_AFTER: Final = 0.25
"""The longest of these times."""

Datagram = tuple[Payload, ...]
"""A datagram as parts; its first byte is the rank at the other end."""


class Mailer:
    """``at``: id of the first block that this member has not begun; told in every datagram."""

    def __init__(self, peers: Iterable[int], algorithm: int, segment_bytes: int, at: int, stats: Stats) -> None:
        """``peers``: ranks of the others. ``algorithm``: its number, told in every datagram. ``segment_bytes``: of a message in
        one datagram."""
        self.at = at
        self.stats = stats
        self.others_at: dict[int, int] = {}
        """The same of each of the others, as far as heard."""
        self.algorithms: dict[int, int] = {}
        """Theirs, as far as heard."""
        self.differing: dict[int, int] = {}
        """Ranks whose call differs: the first block that they do not go on with."""
        self.gone: set[int] = set()
        """Ranks that have left."""
        self.unanswered = dict.fromkeys(peers, 0)
        """How often each was asked since something has come from it. (A member that was stopped itself has not asked.)"""
        self._ends = {rank: Conversation(algorithm, segment_bytes, stats) for rank in self.unanswered}
        self._flags = 0
        self._ask_at: float | None = None
        self._pause = ASK_FIRST

    @property
    def settled(self) -> bool:
        """The others have all that was posted."""
        return all(end.settled for end in self._ends.values())

    def heard(self, rank: int) -> float | None:
        """When something came from this rank last."""
        return self._ends[rank].heard

    def post(self, rank: int, message: bytes) -> None:
        """Send the message (not empty) to a rank."""
        if rank not in self.gone:
            self._ends[rank].post(message)

    def poll(self, now: float, *, waiting: bool) -> list[Datagram]:
        """What is to be sent now. ``waiting``: this member waits for others."""
        ask = self._asks(now, waiting)
        packets: list[Datagram] = []
        for rank, end in self._ends.items():
            for head, piece in end.poll(now, self._flags | Flag.ANSWER * ask, self.at):
                packets.append((RANK.pack(rank) + head, piece) if piece else (RANK.pack(rank) + head,))
        self._count(packets)
        return packets

    def _asks(self, now: float, waiting: bool) -> bool:
        if not waiting:
            self._ask_at = None
        elif self._ask_at is None:
            self._ask_at, self._pause = now + ASK_FIRST, ASK_FIRST
        elif now >= self._ask_at:
            self._pause = min(2 * self._pause, ASK_AFTER)
            self._ask_at = now + self._pause
            for rank in self.unanswered:
                self.unanswered[rank] += 1
            return True
        return False

    def _count(self, packets: list[Datagram]) -> None:
        self.stats.packets_sent += len(packets)
        self.stats.bytes_sent += sum(SEAL.size + sum(map(len, packet)) for packet in packets)

    def next_deadline(self) -> float | None:
        """When :meth:`poll` may have something to send although nothing arrives."""
        deadlines = [deadline for end in self._ends.values() if (deadline := end.next_deadline()) is not None]
        return min(deadlines, default=None)

    def say(self, flag: Flag, at: int) -> list[Datagram]:
        """Tell everyone, in a datagram each, and in all later ones: BYE, or DIFFER with the first block not gone on with."""
        self._flags |= flag
        if flag is Flag.DIFFER:
            self.at = at
        packets: list[Datagram] = [
            (RANK.pack(rank) + end.head(self._flags, self.at),) for rank, end in self._ends.items()
        ]
        self._count(packets)
        return packets

    def receive(self, datagram: memoryview, now: float) -> tuple[int, list[bytes]]:
        """Take a datagram, its first byte the sender's rank: the rank, and its messages that are whole now."""
        stats = self.stats
        stats.packets_received += 1
        stats.bytes_received += SEAL.size + len(datagram)
        rank = datagram[0] if len(datagram) else -1
        if len(datagram) < RANK.size + SEGMENT.size or rank not in self._ends:
            stats.malformed += 1
            return rank, []
        head = Head._make(SEGMENT.unpack_from(datagram, RANK.size))
        end = self._ends[rank]
        messages = end.receive(head, datagram[RANK.size + SEGMENT.size :], now)
        self.unanswered[rank] = 0
        self.algorithms[rank] = head.algorithm
        if head.flags & Flag.DIFFER:
            self.differing.setdefault(rank, head.at)
        if (head.at - self.others_at.get(rank, head.at)) & NUMBER < 1 << 31:  # not of a datagram that was overtaken
            self.others_at[rank] = head.at
        if head.flags & Flag.BYE:
            self.gone.add(rank)
            end.forget()
        return rank, messages
