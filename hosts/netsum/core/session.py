# SPDX-License-Identifier: MIT
"""A member's session in a job, over epochs that resume each other: its endpoint, the transport under it, and its recovery."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from netsum.core.blocks import Block, BlockRejected, CallMismatch, id_distance
from netsum.core.endpoint import GOODBYE_REPEATS, BlockedOn, CallMemory, Endpoint
from netsum.core.endpoint_factory import resume_endpoint
from netsum.core.progress import CallProgress, Work
from netsum.core.recovery import REPLY_TIMEOUT, InactivityTimer, Recovery, TimeoutDiagnosis
from netsum.errors import (
    CallTimeoutError,
    DesynchronizedError,
    MismatchError,
    NetsumError,
    RejectedError,
)
from netsum.telemetry import MemberLog
from netsum.text import counted
from netsum.transports.base import Transport
from netsum.transports.sockets import packets_held
from netsum.wire.schema import Outcome, Status

SINGLE_PACKETS: Final = 128
"""Most packets in flight where each goes through the kernel by itself: more of them only fill queues."""
_BATCHES: Final = 256
"""Most batches received between calls: more than a socket's buffer holds, and a bound if a sender floods it."""
_LOST_ROUNDS: Final = 8
"""Rounds without a packet by IP multicast after which results come by unicast."""
_FEW: Final = 4
"""A round in which less than one in this many results had to be fetched does not count: the others came by unicast."""


class _Unreached:
    """Counts rounds in which nothing came by IP multicast: all blocks that were in flight at the start of one got their results,
    and many of these had to be fetched. If all that is in flight is lost at once, that is one round, however large the window."""

    def __init__(self) -> None:
        self.lost = 0
        self._rounds = self._begin = self._end = self._fetched = 0
        self._came = -1

    def note(self, endpoint: Endpoint) -> bool:
        """True after the last of the rounds."""
        stats, base = endpoint.stats, endpoint.base
        if stats.multicast != self._came:
            self.lost = self._rounds = 0
        elif base == self._begin:
            self._end = endpoint.next_serial
            return False
        elif self._begin < base < self._end:
            return False
        elif _FEW * (fetched := stats.multicast_lost - self._fetched) >= max(1, base - self._begin):
            self.lost += fetched
            self._rounds += 1
        self._came, self._fetched = stats.multicast, stats.multicast_lost
        self._begin, self._end = base, endpoint.next_serial
        return self._rounds >= _LOST_ROUNDS


class JobSession:
    """A :class:`netsum.core.progress.Session`, to which the flows of calls submit their blocks.

    Attributes:
        endpoint: of the current epoch.
    """

    name = "communicator"

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport,
        explain: Callable[[int], BlockedOn] | None = None,
        recovery: Recovery | None = None,
        log: MemberLog | None = None,
    ) -> None:
        """``explain(block_id)`` queries the controller for whom a block waits: a sentence and the ranks. ``recovery`` queries it
        for what has become of the job when the switch refuses this rank."""
        self.endpoint = endpoint
        self._transport = endpoint.attach(transport)
        self._recovery = recovery
        self._log = log or MemberLog(None, None)
        self._diagnosis = TimeoutDiagnosis(explain)
        self._inactivity = InactivityTimer(endpoint.active_size)
        self._calls: deque[CallProgress] = deque()  # in the order of their blocks
        self._unreached = _Unreached()
        self._limit_to_buffer()

    @property
    def _link(self) -> Transport:
        """The link itself, if there is a transport around it."""
        link: Transport = getattr(self._transport, "link", self._transport)
        return link

    def _limit_to_buffer(self) -> None:
        number = getattr(self._link, "sock", self._link).fileno()
        if number is None:
            return
        most = SINGLE_PACKETS if not getattr(self._link, "carries_segments", False) else sys.maxsize
        self.endpoint.limit_to_buffer(lambda size: min(packets_held(number, size), most))

    # What flows need.

    def submit(self, block: Block) -> None:
        self.endpoint.submit_all((block,))

    def submit_all(self, blocks: Sequence[Block]) -> None:
        self.endpoint.submit_all(blocks)

    @property
    def queued(self) -> int:
        return self.endpoint.queued

    @property
    def group(self) -> int:
        return self.endpoint.group

    @property
    def combiner(self) -> str:
        return self.endpoint.combiner

    @property
    def by_chain(self) -> bool:
        return self.endpoint.by_chain

    @property
    def call_memory(self) -> CallMemory | None:
        return self.endpoint.call_memory

    def send_mismatch(self) -> None:
        """Tell the others through the blocks that they wait for: the switch takes MISMATCH whatever the fingerprint."""
        for _ in range(GOODBYE_REPEATS):
            self._transport.send(self.endpoint.abort_outstanding(Status.MISMATCH))

    # What the engine needs.

    def begin(self, call: CallProgress) -> None:
        endpoint, calls = self.endpoint, self._calls
        base = endpoint.block_id(endpoint.base)
        while len(calls) > 1 and id_distance(base, calls[1].first or 0) >= 0:  # every result of the first one is held
            calls.popleft()
        call.first = endpoint.block_id(endpoint.submitted)
        calls.append(call)

    @property
    def rtt(self) -> float:
        return self.endpoint.stats.rtt

    @property
    def awaited(self) -> int:
        return 0 if self.endpoint.by_chain else self.endpoint.next_serial - self.endpoint.base

    @property
    def needs_background_progress(self) -> bool:
        return self.endpoint.needs_background_progress

    def fileno(self) -> int | None:
        return self._transport.fileno()

    def next_deadline(self) -> float | None:
        return self.endpoint.next_deadline()

    def recover(self) -> bool:
        """If the switch refuses this rank or is silent, query the controller, and move to the epoch that resumes this one."""
        recovery, now = self._recovery, time.monotonic()
        if recovery is None or not recovery.due(now):
            return False
        endpoint = self.endpoint
        descriptor = recovery.request(endpoint.block_id(endpoint.prefix), now, endpoint.waits())
        if descriptor is None:
            return False
        following = resume_endpoint(endpoint, descriptor)
        if following is None:
            raise DesynchronizedError(f"block {descriptor.first_block_id} is needed again and its contribution is gone")
        self._transport.close()
        self._transport = following.attach(recovery.resumed(descriptor))
        self.endpoint = following
        self._unreached = _Unreached()
        self._log.resumed(descriptor)
        self._limit_to_buffer()
        return True

    def send(self, now: float) -> None:
        # A rank that has stopped begins nothing: what it told the controller stays true, and the others wait and query it too.
        stopped = self._recovery is not None and self._recovery.stopped
        try:
            packets = self.endpoint.outgoing(now) if stopped else self.endpoint.poll(now)
        except (BlockRejected, CallMismatch) as rejection:
            self._rejected(rejection)
            return
        if packets:
            self._transport.send(packets)

    def receive(self, timeout: float) -> int:
        packets = self._transport.recv(timeout)
        try:
            self.endpoint.receive(packets, time.monotonic())
        except (BlockRejected, CallMismatch) as rejection:
            self._rejected(rejection)
        self._check_multicast()
        return len(packets)

    def _check_multicast(self) -> None:
        """Have results come by unicast if the IP multicast group does not reach this rank."""
        if self._recovery is not None and self._unreached.note(self.endpoint):
            self._recovery.leave_group()
            self._log.multicast_lost(self._unreached.lost)
            self._unreached = _Unreached()

    def listen(self) -> None:
        """Receive what has arrived since the last call, and send nothing."""
        for _ in range(_BATCHES):
            packets = self._transport.recv(0.0)
            if not packets:
                return
            try:
                self.endpoint.receive(packets, time.monotonic())
            except BlockRejected:
                return  # the next call will meet it

    def progress(self) -> None:
        self.endpoint.progress(self._transport)

    def overdue(self, works: Sequence[Work[Any]], now: float) -> Iterable[tuple[Work[Any], CallTimeoutError]]:
        if not works and not self.endpoint.polls_controller:
            return  # nothing is waited for
        endpoint, recovery = self.endpoint, self._recovery
        late = self._inactivity.expired(endpoint.base, now, waiting=endpoint.base < endpoint.next_serial)
        if recovery is not None and (late or (endpoint.polls_controller and self._inactivity.poll_due(now))):
            recovery.note_inactivity()
        if works and (left := self._diagnosis.left_behind(endpoint, now, recovery)) is not None:
            left.add(works[0].progress.describe(endpoint.block_id(endpoint.base)))
            yield works[0], left
        for work in works:
            if work.over or work.deadline is None or now < work.deadline - REPLY_TIMEOUT:
                continue
            self._diagnosis.query_early(work, endpoint, self._inactivity, now)
            if now >= work.deadline:
                error = self._diagnosis.error(work, endpoint, self._inactivity, now)
                for reason in self._reasons():
                    error.add(reason)
                yield work, error

    def _reasons(self) -> list[str]:
        """What else is known of a call that gets no result; some may be empty."""
        error = getattr(self._link, "last_error", None)
        return [self._recovery.reason if self._recovery is not None else "", f"the link's last error: {error}" if error else ""]

    def status(self, works: Sequence[Work[Any]], now: float) -> Callable[[], str]:
        member = self._log.member
        if not works:
            return lambda: f"{member}: no call is in progress"
        oldest, *later = works
        sentence = self._diagnosis.status(oldest, self.endpoint, self._inactivity, now)
        reasons = [*self._reasons(), f"{counted(len(later), 'call')} after it" if later else ""]
        return lambda: f"{member}: {'; '.join(filter(None, [sentence(), *reasons]))}"

    def _rejected(self, rejection: BlockRejected | CallMismatch) -> None:
        """Begin recovery if a new epoch may explain it; else raise the error of all calls."""
        block = self.endpoint.block_id(rejection.serial)
        if isinstance(rejection, CallMismatch):
            raise MismatchError(
                f"block {block}: another rank made a different call, or failed in this one; {self._own_call(block)}"
            ) from None
        if self._recovery is not None and self._recovery.note_refusal(rejection):
            self._log.requests(block, str(rejection))
            return
        reason = rejection.reason
        if reason is Outcome.FINGERPRINT_MISMATCH:
            self.send_mismatch()
            raise MismatchError(
                f"block {block}: the other ranks made a different call (operation, type or size); {self._own_call(block)}"
            ) from None
        if reason in (Outcome.WRONG_PORT, Outcome.BAD_KEY, Outcome.STALE):
            known = "" if self._recovery is not None else ", with new descriptors: these may have been used before"
            raise DesynchronizedError(f"block {block}: a new epoch of the job has begun; join again{known}") from None
        name = reason.name if reason is not None else "unknown"
        raise RejectedError(f"the switch refused block {block}: {name.lower().replace('_', ' ')}", name) from None

    def _own_call(self, block: int) -> str:
        """The call of this rank that a block belongs to, in words."""
        begun = [call.text for call in self._calls if call.text and id_distance(block, call.first or 0) >= 0]
        return f"this rank's is {begun[-1]}" if begun else "this rank has not begun one"

    def abort(self) -> None:
        with contextlib.suppress(NetsumError, OSError):
            self.send_mismatch()

    def failed(self, error: BaseException) -> None:
        self._log.failed(error)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.endpoint.leave(self._transport)
        with contextlib.suppress(OSError):
            self._transport.close()
