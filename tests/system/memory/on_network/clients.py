# SPDX-License-Identifier: MIT
"""A client on its host: a thread makes random calls on arrays, as a program would."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from netsum.core.progress import Flow
from netsum.errors import NetsumError
from netsum.memory.array import MemoryArray
from netsum.memory.client import MemoryWork
from netsum.memory.run import Task
from netsum.wire.memory import Instruction

from tests.system.memory.model import HistoryEntry, MemoryRequest
from tests.system.memory.oracle import Lives
from tests.system.memory.places import Place, Theme, Workload
from tests.system.memory.plan import MemoryPlan
from tests.system.memory.round import RoundClient, request_of

TIMEOUT: Final = 60.0
"""Seconds that an instruction may take, longer than any event."""
_SLICE: Final = 0.002
_CALLS: Final = (*Theme.EVERYTHING.value,)
"""Instructions that are methods of an array; packets of the others are made like those of the library's tables and
parameters."""


class Client(RoundClient, threading.Thread):
    """Attributes:
    late: instructions without a reply in time.
    """

    def __init__(self, workload: Workload, plan: MemoryPlan, arrays: Mapping[str, MemoryArray], lives: Lives) -> None:
        threading.Thread.__init__(self, name=f"client {workload.client}", daemon=True)
        RoundClient.__init__(self, workload, plan, lives)
        self.arrays = dict(arrays)
        self.stopped = threading.Event()
        self.late: list[str] = []

    def run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # a bug of the library's, or of the check's: the round is wrong
            self.refused.append(f"client {self.workload.client}: {type(error).__name__}: {error}")

    def _send_all(self) -> None:
        self.due = time.monotonic()
        while not self.stopped.is_set():
            while self.begin_due(time.monotonic()):
                pass
            if self.in_flight:
                self.in_flight[0][2].finished(_SLICE)
            else:
                self.stopped.wait(max(_SLICE, min(self.due - time.monotonic(), 0.1)))
            for each in [each for each in self.in_flight if each[2].done()]:
                self._finish(*each)
                self.in_flight.remove(each)

    def start_one(self, number: int, entry: HistoryEntry) -> MemoryWork:
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

    def read_one(self, number: int, entry: HistoryEntry) -> None:
        """Ask an instruction about a place, and wait for its reply, from any thread."""
        self._lives.present[number].append(entry)
        self._finish(number, entry, self.start_one(number, entry))

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

    def _finish(self, number: int, entry: HistoryEntry, work: MemoryWork) -> None:
        """Note what has come back."""
        now, argument = time.monotonic(), 0
        try:
            found: Any = work.wait()
        except TimeoutError as error:
            self.late.append(f"{entry.describe()}: {error}")
            self.workload.end(number, entry, now, None)
        except NetsumError as error:
            self.refuse(number, entry, error, now)
        else:
            if entry.request.instruction == Instruction.COMPARE_SWAP:
                found = found.found
            elif entry.request.instruction not in _CALLS:
                found, argument = found
            answer = found if isinstance(found, bytes) else b"" if found is None else np.ascontiguousarray(found).tobytes()
            self.workload.end(number, entry, now, answer, argument)
            self.answered += 1
