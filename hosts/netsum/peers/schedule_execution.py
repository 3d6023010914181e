# SPDX-License-Identifier: MIT
"""One rank's execution of a plan, for one batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from netsum.peers.batch import BatchMessage, RankBatch
from netsum.peers.plan import Mode, PeerPlan, Receive

Post = Callable[[int, bytes], None]


class ScheduleMismatch(Exception):
    """Another rank sent something that this rank's plan does not expect: their calls differ."""


class ScheduleExecution:
    """``batch`` holds the results when :attr:`done`."""

    def __init__(self, first_id: int, batch: RankBatch, plan: PeerPlan, ranks: Sequence[int], post: Post) -> None:
        """``first_id``: the id of the batch's first block. ``ranks[number]`` is the rank that the plan calls ``number``.
        ``post(rank, message)`` sends."""
        self.batch = batch
        self._first_id = first_id
        self._plan = plan
        self._ranks = ranks
        self._post = post
        self._come: dict[int, deque[BatchMessage]] = {rank: deque() for rank in ranks}
        self._round = 0  # the next
        self._receives: deque[Receive] = deque()
        self._next_round()

    @property
    def done(self) -> bool:
        """True if the last round is over."""
        return self._round == len(self._plan.rounds) and not self._receives

    def take(self, rank: int, message: BatchMessage) -> None:
        """A message of this batch has come. Raises :class:`ScheduleMismatch`."""
        if rank not in self._come or message.total != len(self.batch):
            raise ScheduleMismatch
        self._come[rank].append(message)

    def advance(self) -> None:
        """Go on as far as the messages that have arrived allow. Raises :class:`ScheduleMismatch`."""
        while self._receives:
            receive = self._receives[0]
            come = self._come[self._ranks[receive.peer]]
            if not come:
                return
            message = come.popleft()
            if message.rows != receive.rows:
                raise ScheduleMismatch
            if receive.mode is Mode.COMBINE:
                self.batch.combine(message)
            else:
                self.batch.take(message)
            self._receives.popleft()
            if not self._receives:
                self._next_round()

    def _next_round(self) -> None:
        """Send what the next rounds send, up to the first round that waits for a message."""
        while not self._receives and self._round < len(self._plan.rounds):
            this = self._plan.rounds[self._round]
            self._round += 1
            for send in this.sends:
                self._post(self._ranks[send.peer], self.batch.pack(self._first_id, send.rows, send.bare))
            self._receives.extend(this.receives)
