"""The instructions on one place in memory with their answers, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from math import inf

from netsum.wire.memory import Instruction

from tests.system.memory.linearizable import Call, Undecided, linearizable
from tests.system.memory.model import HistoryEntry, MemoryRequest, ModelStep, State, do

Explained = Callable[[Sequence["HistoryEntry"]], bool]
"""Whether some order of the instructions explains every answer."""


class Finding(StrEnum):
    """A fault of a history: an acknowledged change is missing, one was done twice, or something else."""

    LOST = "lost"
    DOUBLED = "doubled"
    WRONG = "wrong"
    UNDECIDED = "undecided"


class Refuted(Exception):
    """A finding, and the instruction that it concerns, if any."""

    def __init__(self, finding: Finding, entry: HistoryEntry | None) -> None:
        super().__init__(finding.value)
        self.finding, self.entry = finding, entry


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
