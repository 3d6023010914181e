"""The members of one job, a thread each: make calls one after the other, and hand over what came out."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
from netsum.communicator import Communicator

from netsum_testbed.verify.cases import Call, Round
from netsum_testbed.verify.data import Array, contribution

CALL_TIMEOUT: Final = 60.0
"""Seconds until a call gives up: nothing that this run does to packets takes that long."""

_AHEAD: Final = 8  # calls that may wait to be checked, so that memory stays bounded


class Numbered(Protocol):
    """What there must be to know of a call: its number, and whether it is started together with its neighbours."""

    @property
    def index(self) -> int: ...

    @property
    def joined(self) -> bool: ...


Case = TypeVar("Case", bound=Numbered)
Start = Callable[[Communicator, Case], Callable[[], Any]]
"""Begins one rank's part of a call; the function returned waits for its result."""


@dataclass(frozen=True)
class Answer(Generic[Case]):
    """What one rank got from one call: a result, or what it raised instead."""

    call: Case
    rank: int
    result: Any
    error: Exception | None = None


class Gate:
    """Lets all ranks stop before the same call: the first that asks about a call decides for all."""

    def __init__(self, go_on: Callable[[int], bool]) -> None:
        """``go_on(calls)``: whether so many more calls may be started."""
        self._go_on = go_on
        self._lock = threading.Lock()
        self._decided: list[bool] = []

    def allows(self, group: int, calls: int) -> bool:
        """Whether group number ``group``, of so many calls, is made."""
        with self._lock:
            if group == len(self._decided):
                self._decided.append(self._go_on(calls))
            return self._decided[group]


def groups_of(calls: Sequence[Case]) -> Iterator[list[Case]]:
    """Calls that are under way together: neighbours that are ``joined``; every other call is alone."""
    for joined, together in groupby(calls, key=lambda call: call.joined):
        if joined:
            yield list(together)
        else:
            yield from ([call] for call in together)


class Ranks(Generic[Case]):
    """Makes calls on a job's communicators; iterate over it for the answers, as they come."""

    def __init__(
        self, calls: Sequence[Case], start: Start[Case], communicators: Sequence[Communicator], gate: Gate
    ) -> None:
        self._calls = calls
        self._start = start
        self._gate = gate
        self._communicators = list(communicators)
        self._answers: queue.Queue[Answer[Case] | BaseException | None] = queue.Queue(
            maxsize=_AHEAD * len(communicators)
        )
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(rank, comm), name=f"rank {rank}", daemon=True)
            for rank, comm in enumerate(communicators)
        ]

    def __iter__(self) -> Iterator[Answer[Case]]:
        for thread in self._threads:
            thread.start()
        running = len(self._threads)
        while running:
            answer = self._answers.get()
            if isinstance(answer, BaseException):
                raise answer  # a fault of this program, not of a call
            if answer is None:
                running -= 1
            else:
                yield answer

    def stop(self, timeout: float = 10.0) -> None:
        """End the round early: close the communicators, which makes calls under way raise, and wait for the threads."""
        self._stopping.set()
        for comm in self._communicators:
            comm.close()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            while thread.is_alive() and time.monotonic() < deadline:
                self._drain()
                thread.join(0.05)

    def _drain(self) -> None:
        while True:
            try:
                self._answers.get_nowait()
            except queue.Empty:
                return

    def _run(self, rank: int, comm: Communicator) -> None:
        try:
            for number, calls in enumerate(groups_of(self._calls)):
                if self._stopping.is_set() or not self._gate.allows(number, len(calls)):
                    return
                if not self._make(rank, comm, calls):
                    return
        except BaseException as error:
            self._answers.put(error)
        finally:
            self._answers.put(None)

    def _make(self, rank: int, comm: Communicator, calls: list[Case]) -> bool:
        """Make calls that are under way together. False: one failed, and the round is over for this rank."""
        started: list[tuple[Case, Callable[[], Any]]] = []
        call = calls[0]
        try:
            for call in calls:
                started.append((call, self._start(comm, call)))
            for call, wait in started:
                self._answers.put(Answer(call, rank, wait()))
        except Exception as error:  # whatever it is: it is what this call came to
            self._answers.put(Answer(call, rank, None, error))
            return False
        return True


def start(round_: Round, comm: Communicator, call: Call) -> Callable[[], Array]:
    """Begin one rank's part of a call of verify's; the function returned waits for its result."""
    rank = comm.rank
    array = contribution(round_, call, rank)
    out = array if call.in_place else None
    if call.delays[rank]:
        time.sleep(call.delays[rank])  # a rank that comes late: part of the call's data
    if call.joined:
        work = comm.allreduce_async(array, op=call.op, out=out, scale=call.scale, timeout=CALL_TIMEOUT)
        return lambda: np.asarray(work.wait())
    result = np.asarray(comm.allreduce(array, op=call.op, out=out, scale=call.scale, timeout=CALL_TIMEOUT))
    if call.in_place and result is not array:
        raise AssertionError("an in-place call returned an array of its own")
    return lambda: result
