"""A client on its host: arrays as a program has them, asked for random instructions by a thread."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from netsum.errors import NetsumError
from netsum.memory.array import MemoryArray
from netsum.memory.client import MemoryWork
from netsum.wire.memory import Instruction, LaneType

from netsum_trials.memory.history import Entry
from netsum_trials.memory.model import Asked
from netsum_trials.memory.places import Asker, Place
from netsum_trials.memory.plan import Plan

TIMEOUT: Final = 60.0
"""Seconds that an instruction may take; more than everything that happens."""
_SLICE: Final = 0.002


class Client(threading.Thread):
    """Attributes:
    answered: instructions that have their reply.
    refused: those that were refused, in words, and what went wrong besides.
    late: those without a reply in time.
    """

    def __init__(
        self, asker: Asker, plan: Plan, arrays: Mapping[str, MemoryArray], histories: Sequence[list[Entry]]
    ) -> None:
        super().__init__(name=f"client {asker.client}", daemon=True)
        self._asker, self._plan, self._histories = asker, plan, histories
        self._bytes = {name: array.view(np.uint8) for name, array in arrays.items()}
        self._typed: dict[tuple[str, LaneType], MemoryArray] = {}
        self._rng = random.Random(f"pauses {plan.asker_seed(asker.client)}")
        self.stopped = threading.Event()
        self.answered = 0
        self.refused: list[str] = []
        self.late: list[str] = []

    def run(self) -> None:
        try:
            self._ask_all()
        except Exception as error:  # a bug of the library's, or of the trial's: the round is wrong
            self.refused.append(f"client {self._asker.client}: {type(error).__name__}: {error}")

    def _ask_all(self) -> None:
        open_ones: list[tuple[int, Entry, MemoryWork]] = []
        due = time.monotonic()
        while not self.stopped.is_set() and (self._asker.left or open_ones):
            now = time.monotonic()
            while len(open_ones) < self._plan.depth and now >= due:
                asking = self._asker.begin(time.monotonic())
                if asking is None:
                    break
                open_ones.append((*asking, self.start_one(*asking)))
                due = now + self._rng.expovariate(1 / self._plan.pause)
            if open_ones:
                open_ones[0][2].finished(_SLICE)
            else:
                self.stopped.wait(max(0.0, min(due - time.monotonic(), 0.1)))
            for each in [each for each in open_ones if each[2].done()]:
                open_ones.remove(each)
                self.finish_one(*each)

    def start_one(self, number: int, entry: Entry) -> MemoryWork:
        """Begin an instruction about a place."""
        self._histories[number].append(entry)
        return self._start(self._plan.places[number], entry.asked)

    def _start(self, place: Place, asked: Asked) -> MemoryWork:
        memory = self._bytes[place.region]
        first = place.offset(asked.start)
        where = slice(first, first + asked.length)
        if asked.instruction == Instruction.READ:
            return memory.read_async(where, timeout=TIMEOUT)
        if asked.instruction == Instruction.WRITE:
            return memory.write_async(where, np.frombuffer(asked.payload, np.uint8), timeout=TIMEOUT)
        if asked.instruction == Instruction.COPY:
            source = place.offset(asked.source)
            return memory.copy_async(where, slice(source, source + asked.length), timeout=TIMEOUT)
        typed = self._view(place.region, asked.lane)
        lanes = slice(first // asked.lane.bytes, (first + asked.length) // asked.lane.bytes)
        values = np.frombuffer(asked.payload, asked.lane.dtype)
        if asked.instruction == Instruction.COMPARE_SWAP:
            return typed.compare_swap_async(lanes.start, values[0], values[1], timeout=TIMEOUT)
        call = {
            Instruction.ADD: typed.add_async,
            Instruction.MIN: typed.minimum_async,
            Instruction.MAX: typed.maximum_async,
            Instruction.FETCH_ADD: typed.fetch_add_async,
        }[asked.instruction]
        return call(lanes, values, timeout=TIMEOUT)

    def _view(self, region: str, lane: LaneType) -> MemoryArray:
        if (region, lane) not in self._typed:
            self._typed[region, lane] = self._bytes[region].view(np.dtype(lane.dtype))
        return self._typed[region, lane]

    def finish_one(self, number: int, entry: Entry, work: MemoryWork) -> None:
        """Note what has come back."""
        now = time.monotonic()
        try:
            found: Any = work.wait()
        except TimeoutError as error:
            self.late.append(f"{entry.describe()}: {error}")
        except NetsumError as error:
            self.refused.append(f"{entry.describe()}: {type(error).__name__}: {error}")
        else:
            if entry.asked.instruction == Instruction.COMPARE_SWAP:
                found = found.found
            answer = b"" if found is None else np.ascontiguousarray(found).tobytes()
            self._asker.end(number, entry, now, answer)
            self.answered += 1
            return
        self._asker.end(number, entry, now, None)
