# SPDX-License-Identifier: MIT
"""One rank of a soak: it makes the round's calls, reports their outcomes, and recovers from errors.

It runs in a thread or as a process (:mod:`~tests.system.soak.workers`); either way it reports through ``send`` and takes orders
through :meth:`Worker.command`.
"""

from __future__ import annotations

import queue
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

import netsum
import numpy as np
from netsum import errors
from netsum.communicator import Communicator
from netsum.report import Report
from netsum.stats import Stats
from netsum.transports.base import Transport
from netsum.transports.impairment import ImpairedTransport, Impairment, ImpairmentCounts
from netsum_testbed.verify.cells import groups_of
from netsum_testbed.verify.data import Array, start

from tests.system.soak import messages
from tests.system.soak.cases import RoundCall
from tests.system.soak.messages import contribution

STATE: Final = 300
"""Elements of the state that a rank takes over in a resync."""
_USABLE: Final = (errors.DegradedError, errors.SumOverflowError, errors.AbortedError, errors.NotFiniteError)
"""Errors after which the call is over on every rank, and the next one may be made."""
_JOINS: Final = 3
"""Attempts to join; together they last longer than any event of a scenario."""
_PATIENCE: Final = 3
"""Attempts at a call before its timeout is doubled, since a faulty link may be too slow for it."""


def state_after(progress: int) -> Array:
    """A rank's state after so many calls."""
    return np.arange(STATE, dtype=np.float64) * (progress + 1)


class Worker:
    """One rank."""

    def __init__(self, setup: messages.WorkerSetup, send: Callable[[messages.WorkerMessage], None]) -> None:
        self._setup = setup
        self._plan = setup.plan
        self._rank = setup.rank
        self._send = send
        self._orders: queue.Queue[str] = queue.Queue()
        self._counts = ImpairmentCounts()
        self._transport: ImpairedTransport | None = None
        self._cut = False
        self._opened = 0
        self._stalls: list[tuple[float, float]] = []  # when, for how many seconds
        self._since = 0
        self._failures = 0
        self._retransmissions = 0
        self._resumes = 0
        self._noted: Stats | None = None
        self._comm: Communicator | None = None

    def command(self, order: str, seconds: float = 0.0) -> None:
        """Take an order from another thread: ``cut`` and ``heal`` the link, ``stall`` for so many seconds; ``go`` when all have
        joined; ``resync`` or ``close`` after the last call, ``admitted`` after an eviction; ``stop`` at once."""
        transport = self._transport
        if order in ("cut", "heal"):
            self._cut = order == "cut"
            if transport is not None:
                transport.cut = self._cut
        elif order == "stall":
            self._stalls.append((time.monotonic(), seconds))
            if transport is not None:
                transport.stall(seconds)
        elif order == "stop":
            self._orders.put("close")
            if self._comm is not None:
                self._comm.close()
        else:
            self._orders.put(order)

    def run(self) -> None:
        """Work until told to close. Never raises; errors are reported."""
        try:
            self._run()
        except BaseException:
            self._send(messages.Crashed(self._rank, traceback.format_exc()))

    def _run(self) -> None:
        comm = self._comm = self._join()
        if comm is None:
            self._send(messages.Left(self._rank, self._counts, 0, 0))
            return
        try:
            self._send(messages.Joined(self._rank))
            at = self._wait_for_all() if self._setup.first else self._resync(comm, 0)
            while at is not None:
                at = self._calls(comm, at)
        finally:
            comm.close()
            self._note(comm)
            self._send(messages.Left(self._rank, self._counts, self._retransmissions, self._resumes))

    def _note(self, comm: Communicator) -> None:
        """Add up the communicator's counts since it last started over. A failed resync may leave the old counts, which are
        added only once."""
        if comm.stats is self._noted:
            return
        self._noted = comm.stats
        self._retransmissions += comm.stats.retransmissions
        self._resumes += comm.stats.resumes

    def _wait_for_all(self) -> int | None:
        """Wait until all ranks have joined; returns where to begin. A rank that gave up before that and rejoined would meet
        latecomers in their first call."""
        return 0 if self._orders.get() == "go" else None

    def _join(self) -> Communicator | None:
        """Join the job; None if told to close instead. If the controller does not answer, because it is away or gets no
        processor, the rank asks again, as after any error."""
        setup, refusals = self._setup, 0
        while True:
            begun = time.monotonic()
            try:
                comm = netsum.join(
                    setup.job,
                    setup.rank,
                    token=setup.token,
                    controller=setup.controller,
                    transport=setup.opening.open,
                    wrap=self._spoil,
                    timeout=messages.JOIN_TIMEOUT,
                    call_timeout=self._plan.timeout,
                )
            except errors.NotReadyError as error:
                self._send(messages.NotJoined(self._rank, failure_of(error), begun))
                refusals += 1
                if self._closing():
                    return None
                if refusals == _JOINS:
                    raise
            else:
                self._since = comm.descriptor.epoch
                return comm

    def _spoil(self, inner: Transport) -> Transport:
        """Wrap the transport of every new epoch, to a switch or to the other members, so that the link keeps its faults."""
        self._opened += 1
        link = self._plan.scenario.link(self._rank) if self._setup.spoil else None
        up, down = (Impairment(), Impairment()) if link is None else (link.up.faults(), link.down.faults())
        seed = (self._plan.scenario.seed << 16) + (self._rank << 8) + self._opened
        made = ImpairedTransport(inner, up, seed, receiving=down, counts=self._counts)
        made.cut = self._cut
        self._transport = made
        return made

    def _calls(self, comm: Communicator, first: int) -> int | None:
        """Make the calls from ``first`` on. Returns the number to go on from, or None after the last."""
        for group in groups_of([step.cell for step in self._plan.steps], first):
            done = self._group(comm, group)
            if done < group.stop:
                return self._resync(comm, done)
        if not self._barrier(comm):
            return self._resync(comm, len(self._plan.steps))
        self._send(messages.Finished(self._rank))
        order = self._orders.get()
        while order == "admitted":
            order = self._orders.get()
        return self._resync(comm, len(self._plan.steps)) if order == "resync" else None

    def _barrier(self, comm: Communicator) -> bool:
        """True if all ranks have made all calls."""
        timeout = self._timeout
        self._send(messages.Began(self._rank, len(self._plan.steps), timeout, len(self._plan.steps) + 1))
        begun = time.monotonic()
        try:
            comm.barrier(timeout=timeout)
        except Exception as error:
            self._answer(len(self._plan.steps), None, Report(), error, begun, timeout)
            return False
        return True

    @property
    def _timeout(self) -> float:
        return float(self._plan.timeout * 2 ** (self._failures // _PATIENCE))

    def _group(self, comm: Communicator, group: range) -> int:
        """Make calls that overlap. Returns the number of the first that must be made again, or ``group.stop``."""
        timeout = self._timeout
        works: list[tuple[int, float, Callable[[], tuple[Array | None, Report]]]] = []
        sleeps = sum(self._plan.steps[number].cell.delays[self._rank] for number in group)
        self._send(messages.Began(self._rank, group.start, timeout, group.stop, when=time.monotonic() + sleeps))
        for number in group:
            step = self._plan.steps[number]
            if step.cell.delays[self._rank]:
                time.sleep(step.cell.delays[self._rank])  # a late rank: part of the call's data
            begun = time.monotonic()
            try:
                works.append((number, begun, self._start(comm, step, timeout)))
            except Exception as error:
                if not works:
                    return self._failed(number, error, begun, timeout)
                break  # the earlier ones say why
        done = group.start
        for number, begun, wait in works:
            try:
                result, report = wait()
            except Exception as error:
                done = self._failed(number, error, begun, timeout)
                if done == number:
                    return number
            else:
                self._failures = 0
                self._answer(number, result, report, None, begun, timeout)
                done = number + 1
        return done

    def _start(self, comm: Communicator, step: RoundCall, timeout: float) -> Callable[[], tuple[Array | None, Report]]:
        """Begin one call; the function returned waits for its result."""
        given = contribution(step, self._rank) if step.cell.kind.dtype else None
        late = {} if step.late == "accept" else {"on_late": step.late}
        return start(comm, step.cell, timeout, given=given, **late)

    def _failed(self, number: int, error: Exception, begun: float, timeout: float) -> int:
        """The number of the call to go on from after an error in this one."""
        report = getattr(error, "report", Report())
        self._answer(number, None, report, error, begun, timeout)
        if isinstance(error, _USABLE):
            return number + 1
        self._failures += 1
        return number

    def _answer(
        self, number: int, result: Array | None, report: Report, error: Exception | None, begun: float, timeout: float
    ) -> None:
        failure = None if error is None else failure_of(error)
        # A copy, because the next call may write into it before it is judged.
        kept = None if result is None else np.array(result)
        late = self._lateness(begun, timeout) if error is not None else 0.0
        self._send(messages.Answer(self._rank, number, self._since, kept, replace(report), begun, failure, late))

    def _lateness(self, begun: float, timeout: float) -> float:
        """Seconds past ``timeout`` since ``begun``, minus those for which this rank was stalled."""
        now = time.monotonic()
        stalled = sum(seconds for when, seconds in list(self._stalls) if when + seconds > begun)
        return max(0.0, now - begun - timeout - stalled)

    def _resync(self, comm: Communicator, progress: int) -> int | None:
        """Get back into step with the others. Returns the number of the call to go on from; None if told to close instead."""
        while True:
            self._send(messages.Resyncing(self._rank))
            begun = time.monotonic()
            self._note(comm)
            state = state_after(progress)
            try:
                now_at = comm.resync(state, progress=progress, timeout=messages.RESYNC_TIMEOUT)
            except Exception as error:
                evicted = isinstance(error, errors.EvictedError)
                late = 0.0 if evicted else self._lateness(begun, messages.RESYNC_TIMEOUT)
                self._send(messages.Resynced(self._rank, begun, failure_of(error), late))
                if evicted:
                    if not self._wait_to_be_admitted():
                        return None
                elif not isinstance(error, errors.NetsumError) or self._closing():
                    return None
            else:
                self._since = comm.descriptor.epoch
                wrong = "" if np.array_equal(state, state_after(now_at)) else f"not the state after {now_at} calls"
                self._send(messages.Resynced(self._rank, begun, wrong=wrong))
                return now_at

    def _wait_to_be_admitted(self) -> bool:
        self._send(messages.Evicted(self._rank))
        while True:
            order = self._orders.get()
            if order in ("admitted", "close"):
                return order == "admitted"

    def _closing(self) -> bool:
        with suppress(queue.Empty):
            while True:
                if self._orders.get_nowait() == "close":
                    return True
        return False


def failure_of(error: BaseException) -> messages.Failure:
    """An error as a worker reports it."""
    missing = tuple(getattr(error, "missing", ()))
    return messages.Failure(type(error).__name__, isinstance(error, errors.NetsumError), str(error), missing)
