"""Says what is wrong with a round's histories."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netsum.wire.memory import Instruction

from netsum_trials.memory.history import Entry, Refuted, check
from netsum_trials.memory.model import Asked
from netsum_trials.memory.places import Place
from netsum_trials.memory.plan import Plan
from netsum_trials.memory.report import MemoryTotals

SHOWN = 20
"""Instructions of a wrong history that are printed, and only of the round's first ``HISTORIES``."""
HISTORIES = 2


def judge(plan: Plan, histories: Sequence[list[Entry]], totals: MemoryTotals, say: Callable[[str], None]) -> None:
    """Check every place's history, which begins with zeros; count and print what is wrong."""
    wrong = 0
    for place, entries in zip(plan.places, histories, strict=True):
        totals.histories += 1
        try:
            check(entries, bytes(place.bytes), lambda asked, place=place: _is_atomic(plan, place, asked))  # type: ignore[misc]
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


def _is_atomic(plan: Plan, place: Place, asked: Asked) -> bool:
    """Whether both ends of a COPY are in one shard."""
    if asked.instruction != Instruction.COPY:
        return True
    region = plan.region(place.region)
    return region.shard_of(place.offset(asked.start)) == region.shard_of(place.offset(asked.source))
