# SPDX-License-Identifier: MIT
"""Checks of a round's histories: the instructions on each place in memory with their answers, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import NamedTuple

from netsum.wire.memory import Instruction

from tests.system.memory.linearizable import Call, Undecided, linearizable
from tests.system.memory.model import Finding, HistoryEntry, MemoryRequest, ModelStep, Refuted, State, Table, do
from tests.system.memory.places import Place, Theme
from tests.system.memory.plan import MemoryPlan
from tests.system.memory.steps import Steps

Explained = Callable[[Sequence["HistoryEntry"]], bool]
"""Whether some order of the instructions explains every answer."""


def check(entries: Sequence[HistoryEntry], explained: Explained) -> None:
    """Raise :class:`Refuted` unless every answer is ``explained``."""
    try:
        if explained(entries):
            return
    except Undecided:
        raise Refuted(Finding.UNDECIDED, None) from None
    changes = [entry for entry in entries if entry.request.changes and entry.answered != inf]
    with suppress(Undecided):  # only which it is
        # With the culprit left out, or done once more at any time, everything else makes sense.
        for entry in changes:
            if explained([each for each in entries if each is not entry]):
                raise Refuted(Finding.LOST, entry)
        for entry in changes:
            if explained([*entries, HistoryEntry(entry.client, entry.request, entry.invoked)]):
                raise Refuted(Finding.DOUBLED, entry)
    raise Refuted(Finding.WRONG, None)


def check_loss(entries: Sequence[HistoryEntry], lost_at: float) -> list[HistoryEntry]:
    """Select what is left to explain of a history whose memory was lost at that time (inf: never): the answered instructions, and
    those that may have been done before. Raises :class:`Refuted` if a loss was reported too early, or an answer came after
    it."""
    for entry in entries:
        if entry.lost and entry.answered < lost_at:
            raise Refuted(Finding.WRONG, entry)
        if entry.invoked > lost_at and entry.answered != inf and not entry.lost:
            raise Refuted(Finding.WRONG, entry)
    kept = [entry for entry in entries if entry.invoked <= lost_at]
    return [replace(entry, answered=inf, answer=None) if entry.lost else entry for entry in kept]


def in_memory(memory: bytes, is_atomic: Callable[[MemoryRequest], bool]) -> Explained:
    """Explains instructions on plain memory with these initial contents. ``is_atomic``: whether a COPY is done at once, because
    it stays within a device."""
    return lambda entries: linearizable(list(_calls(entries, is_atomic)), State(memory), do)


def _calls(entries: Iterable[HistoryEntry], is_atomic: Callable[[MemoryRequest], bool]) -> Iterable[Call[ModelStep]]:
    for serial, entry in enumerate(entries):
        request, parts = entry.request, 1 + len(entry.request.path)
        if request.instruction == Instruction.COPY and not is_atomic(request):
            parts = 2
        for part in range(parts):
            yield Call(ModelStep(request, entry.answer, serial, part, parts), entry.invoked, entry.answered)


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


def judge(plan: MemoryPlan, lives: Lives, instructions: Counter[str], say: Callable[[str], None]) -> list[Finding]:
    """Check every place's history, which begins as its region is made; print and return what is wrong, and count the
    instructions by kind."""
    found: list[Finding] = []
    for life in lives.all():
        place, entries = life.place, life.entries
        instructions.update(entry.request.instruction.name.lower() for entry in entries)
        try:
            _check(plan, life)
        except Refuted as refuted:
            found.append(refuted.finding)
            say(f"  {refuted.finding.upper()}: {place.describe()}")
            if len(found) > HISTORIES:
                continue
            if refuted.entry is not None:
                say(f"    this one: {refuted.entry.describe()}")
            for entry in sorted(entries, key=lambda entry: entry.invoked)[-SHOWN:]:
                say(f"    {entry.describe()}")
    return found


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
