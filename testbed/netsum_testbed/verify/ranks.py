"""The members of one round, a thread each: make the round's calls and hand over what came out."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from netsum.communicator import Communicator

from netsum_testbed.verify.cases import Call, Round
from netsum_testbed.verify.data import Array, contribution

CALL_TIMEOUT: Final = 60.0
"""Seconds until a call gives up: nothing that this run does to packets takes that long."""

_AHEAD: Final = 8  # calls that may wait to be checked, so that memory stays bounded


@dataclass(frozen=True)
class Answer:
    """What one rank got from one call: an array, or what it raised instead."""

    call: Call
    rank: int
    result: Array | None
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


def groups_of(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Calls that are under way together: neighbours that are ``joined``; every other call is alone."""
    for joined, together in groupby(calls, key=lambda call: call.joined):
        if joined:
            yield list(together)
        else:
            yield from ([call] for call in together)


class Ranks:
    """Runs a round over its members' communicators; iterate over it for the answers, as they come."""

    def __init__(self, round_: Round, communicators: Sequence[Communicator], gate: Gate) -> None:
        self._round = round_
        self._gate = gate
        self._communicators = list(communicators)
        self._answers: queue.Queue[Answer | BaseException | None] = queue.Queue(maxsize=_AHEAD * len(communicators))
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(rank, comm), name=f"rank {rank}", daemon=True)
            for rank, comm in enumerate(communicators)
        ]

    def __iter__(self) -> Iterator[Answer]:
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
            for number, calls in enumerate(groups_of(self._round.calls)):
                if self._stopping.is_set() or not self._gate.allows(number, len(calls)):
                    return
                if not self._make(rank, comm, calls):
                    return
        except BaseException as error:
            self._answers.put(error)
        finally:
            self._answers.put(None)

    def _make(self, rank: int, comm: Communicator, calls: list[Call]) -> bool:
        """Make calls that are under way together. False: one failed, and the round is over for this rank."""
        started: list[tuple[Call, Callable[[], Array]]] = []
        call = calls[0]
        try:
            for call in calls:
                started.append((call, _start(comm, self._round, call, rank)))
            for call, wait in started:
                self._answers.put(Answer(call, rank, wait()))
        except Exception as error:  # whatever it is: it is what this call came to
            self._answers.put(Answer(call, rank, None, error))
            return False
        return True


def _start(comm: Communicator, round_: Round, call: Call, rank: int) -> Callable[[], Array]:
    """Begin one call; the function returned waits for its result."""
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
