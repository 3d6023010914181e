"""A client on its host: a thread makes random calls on arrays, as a program would."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
from netsum.core.progress import Flow
from netsum.errors import MemoryLostError, NetsumError
from netsum.memory.array import MemoryArray
from netsum.memory.client import MemoryWork
from netsum.memory.run import Task
from netsum.wire.memory import Instruction

from tests.system.memory.model import HistoryEntry, MemoryRequest
from tests.system.memory.oracle import Lives
from tests.system.memory.places import Place, Theme, Workload
from tests.system.memory.plan import MemoryPlan
from tests.system.memory.request import request_of
from tests.system.memory.steps import is_push

TIMEOUT: Final = 60.0
"""Seconds that an instruction may take, longer than any event."""
_SLICE: Final = 0.002
_CALLS: Final = (*Theme.EVERYTHING.value,)
"""Instructions that are methods of an array; packets of the others are made like those of the library's tables and
parameters."""


class Client(threading.Thread):
    """Attributes:
    answered: instructions that have their reply.
    refused: those that were refused, in words, and what went wrong besides.
    late: those without a reply in time.
    """

    def __init__(self, workload: Workload, plan: MemoryPlan, arrays: Mapping[str, MemoryArray], lives: Lives) -> None:
        super().__init__(name=f"client {workload.client}", daemon=True)
        self.workload, self._plan, self._lives = workload, plan, lives
        self.arrays = dict(arrays)
        self._open: list[tuple[int, HistoryEntry, MemoryWork]] = []
        self._gate = threading.Lock()  # guards what is asked next
        self._rng = random.Random(f"pauses {plan.workload_seed(workload.client)}")
        self.stopped = threading.Event()
        self.answered = 0
        self.refused: list[str] = []
        self.late: list[str] = []

    def run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # a bug of the library's, or of the check's: the round is wrong
            self.refused.append(f"client {self.workload.client}: {type(error).__name__}: {error}")

    def _send_all(self) -> None:
        due = time.monotonic()
        while not self.stopped.is_set():
            now = time.monotonic()
            while self._may_send and now >= due and self._begin():
                due = now + self._rng.expovariate(1 / self._plan.pause)
            if self._open:
                self._open[0][2].finished(_SLICE)
            else:
                self.stopped.wait(max(_SLICE, min(due - time.monotonic(), 0.1)))
            for each in [each for each in self._open if each[2].done()]:
                self.finish_one(*each)
                self._open.remove(each)

    def _begin(self) -> bool:
        with self._gate:
            open_request = self.workload.begin(time.monotonic())
            if open_request is not None:
                self._open.append((*open_request, self.start_one(*open_request)))
        return open_request is not None

    @property
    def over(self) -> bool:
        """True if all its instructions are done."""
        return not self.is_alive() or (self.workload.over and not self._open)

    def pause(self, numbers: Collection[int]) -> None:
        """Leave these places alone until they are renewed."""
        with self._gate:
            self.workload.pause(numbers)

    def renew(self, numbers: Collection[int], array: MemoryArray) -> None:
        """Their region is this one now, and as in the beginning."""
        with self._gate:
            self.arrays[array.name] = array
            self.workload.renew(numbers)

    @property
    def _may_send(self) -> bool:
        """A push may wait for other workers' pushes, so it takes up no turn."""
        return sum(not is_push(entry.request) for _, entry, _ in self._open) < self._plan.depth

    def has_open(self, numbers: Collection[int]) -> bool:
        """True if an instruction on these places is in flight."""
        return any(number in numbers for number, _, _ in list(self._open))

    def start_one(self, number: int, entry: HistoryEntry) -> MemoryWork:
        """Begin an instruction about a place."""
        self._lives.present[number].append(entry)
        place, request = self._plan.places[number], entry.request
        array = self.arrays[place.region]
        if request.instruction in _CALLS:
            return self._call(array, place, request)
        fields = request_of(request, place, self._plan.region(place.region), array.descriptor.base)

        def flow(task: Task) -> Flow:
            answers: list[tuple[bytes, int]] = []
            run = array.run(
                task,
                fields.header,
                fields.addresses,
                **fields.fields,
                on_reply=lambda _, header, payload: answers.append((bytes(payload), header.argument)),
            )
            array.client.submit(run)
            yield task.done
            return answers[0]

        return array.client.start(flow, TIMEOUT, background=True)

    @staticmethod
    def _call(array: MemoryArray, place: Place, request: MemoryRequest) -> MemoryWork:
        """As a program does it."""
        memory = array.view(np.uint8)
        first = place.offset(request.start)
        where = slice(first, first + request.length)
        if request.instruction == Instruction.READ:
            return memory.read_async(where, timeout=TIMEOUT)
        if request.instruction == Instruction.WRITE:
            return memory.write_async(where, np.frombuffer(request.payload, np.uint8), timeout=TIMEOUT)
        if request.instruction == Instruction.COPY:
            source = place.offset(request.source)
            return memory.copy_async(where, slice(source, source + request.length), timeout=TIMEOUT)
        typed = memory.view(np.dtype(request.lane.dtype))
        lanes = slice(first // request.lane.bytes, (first + request.length) // request.lane.bytes)
        values = np.frombuffer(request.payload, request.lane.dtype)
        if request.instruction == Instruction.COMPARE_SWAP:
            return typed.compare_swap_async(lanes.start, values[0], values[1], timeout=TIMEOUT)
        call = {
            Instruction.ADD: typed.add_async,
            Instruction.MIN: typed.minimum_async,
            Instruction.MAX: typed.maximum_async,
            Instruction.FETCH_ADD: typed.fetch_add_async,
        }[request.instruction]
        return call(lanes, values, timeout=TIMEOUT)

    def finish_one(self, number: int, entry: HistoryEntry, work: MemoryWork) -> None:
        """Note what has come back."""
        now, argument = time.monotonic(), 0
        try:
            found: Any = work.wait()
        except TimeoutError as error:
            self.late.append(f"{entry.describe()}: {error}")
        except NetsumError as error:
            if isinstance(error, MemoryLostError) and self._plan.region_of(number).fragile:
                self.workload.lose(number, entry, now)
                self.answered += 1
                return
            self.refused.append(f"{entry.describe()}: {type(error).__name__}: {error}")
        else:
            if entry.request.instruction == Instruction.COMPARE_SWAP:
                found = found.found
            elif entry.request.instruction not in _CALLS:
                found, argument = found
            answer = found if isinstance(found, bytes) else b"" if found is None else np.ascontiguousarray(found).tobytes()
            self.workload.end(number, entry, now, answer, argument)
            self.answered += 1
            return
        self.workload.end(number, entry, now, None)
