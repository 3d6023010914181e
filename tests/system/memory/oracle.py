"""Says what is wrong with a round's histories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from netsum.wire.memory import Instruction

from tests.system.memory.history import Refuted, check, check_loss, in_memory
from tests.system.memory.model import HistoryEntry, MemoryRequest, Table
from tests.system.memory.places import Place, Theme
from tests.system.memory.plan import MemoryPlan
from tests.system.memory.report import MemoryTotals
from tests.system.memory.steps import Steps

SHOWN = 20
"""Instructions printed of a wrong history, and only for the round's first ``HISTORIES``."""
HISTORIES = 2


class Life(NamedTuple):
    """A place's history, from its region's creation until its loss, if any."""

    place: Place
    entries: list[HistoryEntry]
    lost: float = inf


class Lives:
    """The histories of all places; ``present`` are the last ones, by number of the place."""

    def __init__(self, plan: MemoryPlan) -> None:
        self._places = plan.places
        self.present: list[list[HistoryEntry]] = [[] for _ in plan.places]
        self._ended: list[Life] = []

    def end(self, numbers: Sequence[int], lost: float) -> None:
        """The memory of these places was lost then, and is made anew."""
        for number in numbers:
            self._ended.append(Life(self._places[number], self.present[number], lost))
            self.present[number] = []

    def all(self) -> list[Life]:
        return [*self._ended, *(Life(*each) for each in zip(self._places, self.present, strict=True))]


def judge(plan: MemoryPlan, lives: Lives, totals: MemoryTotals, say: Callable[[str], None]) -> None:
    """Check every place's history, which begins as its region is made; count and print what is wrong."""
    wrong = 0
    for life in lives.all():
        place, entries = life.place, life.entries
        totals.histories += 1
        totals.instructions.update(entry.request.instruction.name.lower() for entry in entries)
        try:
            _check(plan, life)
        except Refuted as refuted:
            totals.found(refuted.finding)
            say(f"  {refuted.finding.upper()}: {place.describe()}")
            wrong += 1
            if wrong > HISTORIES:
                continue
            if refuted.entry is not None:
                say(f"    this one: {refuted.entry.describe()}")
            for entry in sorted(entries, key=lambda entry: entry.invoked)[-SHOWN:]:
                say(f"    {entry.describe()}")


def _check(plan: MemoryPlan, life: Life) -> None:
    place, options = life.place, plan.region(life.place.region).options
    entries = check_loss(life.entries, life.lost)
    if place.theme is Theme.STEPS:
        steps = Steps(options, place.length)
        steps.check_counts(entries)
        check(entries, steps.explained)
    elif place.theme is Theme.ROWS:
        check(entries, Table(options, place.pieces).explained)
    else:
        check(entries, in_memory(bytes(place.bytes), lambda request: _is_atomic(plan, place, request)))


def _is_atomic(plan: MemoryPlan, place: Place, request: MemoryRequest) -> bool:
    """True if both ends of a COPY are in one shard."""
    if request.instruction != Instruction.COPY:
        return True
    region = plan.region(place.region)
    return region.shard_of(place.offset(request.start)) == region.shard_of(place.offset(request.source))
