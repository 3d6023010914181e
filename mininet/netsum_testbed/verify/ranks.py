# SPDX-License-Identifier: MIT
"""The members of one job, a thread each, which make cells one after the other and hand over the results."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from netsum.communicator import Communicator
from netsum.descriptor import AUTO, HOST_ALGORITHMS, SWITCH
from netsum.report import Report
from netsum.transports.base import Transport
from netsum.transports.impairment import ImpairedTransport, Impairment
from netsum_controller.config.job_spec import JobSpec

from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.cells import Cell, groups_of
from netsum_testbed.verify.data import start

# The members of a job, joined in this process, with faults in their transports.


@dataclass
class Members:
    """The members by rank. ``faulty``: their faulty transports, if there are faults."""

    communicators: list[Communicator] = field(default_factory=list)
    faulty: list[ImpairedTransport] = field(default_factory=list)


@contextmanager
def joined(
    fabric: Fabric, spec: JobSpec, faults: Impairment | None = None, seed: int = 0, algorithm: str = SWITCH
) -> Iterator[Members]:
    """Create a job and join all of its ranks; at the end they leave and the job is deleted. The seed of rank r's faults is
    ``seed + r``. ``algorithm``: who combines; with "auto" the members do, and choose for each size."""
    members = Members()

    def spoiler(rank: int) -> Callable[[Transport], Transport] | None:
        if faults is None:
            return None

        def wrap(transport: Transport) -> Transport:
            members.faulty.append(ImpairedTransport(transport, faults, seed + rank))
            return members.faulty[-1]

        return wrap

    # A job created as "auto" would take the switch, since there is one, so its members are told instead.
    created = HOST_ALGORITHMS[0] if algorithm == AUTO else algorithm
    job = fabric.create_job(spec.model_copy(update={"algorithm": created}))
    with ExitStack() as stack:
        stack.callback(fabric.delete_job, spec.name)
        spoilers = [spoiler(rank) for rank in range(len(spec.members))]
        members.communicators = fabric.join_all(job, spoilers, algorithm=AUTO if algorithm == AUTO else None)
        for comm in members.communicators:
            stack.callback(comm.close)
        yield members


_AHEAD: Final = 8  # cells that may wait to be checked, so that memory stays bounded


@dataclass(frozen=True)
class Answer:
    """The outcome of one cell on one rank: a result or an exception."""

    cell: Cell
    rank: int
    result: Any
    error: Exception | None = None


class Gate:
    """Lets all ranks stop before the same call: the first that asks about a call decides for all."""

    def __init__(self, go_on: Callable[[int], bool]) -> None:
        """``go_on(calls)`` says whether ``calls`` more calls may be started."""
        self._go_on = go_on
        self._lock = threading.Lock()
        self._decided: list[bool] = []

    def allows(self, group: int, calls: int) -> bool:
        """True if the caller should make group number ``group``, of ``calls`` calls."""
        with self._lock:
            if group == len(self._decided):
                self._decided.append(self._go_on(calls))
            return self._decided[group]


class Ranks:
    """Makes cells on a job's communicators; iterating over it yields the answers as they come."""

    def __init__(self, cells: Sequence[Cell], communicators: Sequence[Communicator], gate: Gate) -> None:
        self._cells = cells
        self._gate = gate
        self._communicators = list(communicators)
        self._answers: queue.Queue[Answer | BaseException | None] = queue.Queue(_AHEAD * len(communicators))
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
                raise answer  # a bug of this program, not a failed call
            if answer is None:
                running -= 1
            else:
                yield answer

    def stop(self, timeout: float = 10.0) -> None:
        """End the round early: close the communicators, which makes calls in progress raise, and wait for the threads."""
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
            for number, group in enumerate(groups_of(self._cells)):
                if self._stopping.is_set() or not self._gate.allows(number, len(group)):
                    return
                if not self._make(rank, comm, self._cells[group.start : group.stop]):
                    return
        except BaseException as error:
            self._answers.put(error)
        finally:
            self._answers.put(None)

    def _make(self, rank: int, comm: Communicator, cells: Sequence[Cell]) -> bool:
        """Make cells that run together. False: one failed, and the job is over for this rank."""
        started: list[tuple[Cell, Callable[[], tuple[Any, Report]]]] = []
        cell = cells[0]
        try:
            for cell in cells:
                if cell.delays and cell.delays[rank]:
                    time.sleep(cell.delays[rank])  # a late rank: part of the cell's data
                started.append((cell, start(comm, cell)))
            for cell, wait in started:
                self._answers.put(Answer(cell, rank, wait()[0]))
        except Exception as error:  # whatever it raises is this cell's outcome
            self._answers.put(Answer(cell, rank, None, error))
            return False
        return True
