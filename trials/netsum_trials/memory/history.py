"""What was asked of one place in the memory, when, and what came back; and what is wrong with that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from netsum.wire.memory import Instruction

from netsum_trials.memory.linearizable import Call, Undecided, linearizable
from netsum_trials.memory.model import Asked, State, Step, do


@dataclass(slots=True)
class Entry:
    """An instruction of a client's. ``answered`` is inf as long as there is no reply; ``answer`` is its payload."""

    client: int
    asked: Asked
    invoked: float
    answered: float = inf
    answer: bytes | None = None

    def describe(self) -> str:
        """In a line."""
        when = "no answer" if self.answered == inf else f"{self.answered:.6f}"
        said = "" if self.answer is None else f" -> {self.answer[:16].hex()}"
        return f"{self.invoked:.6f} .. {when}  client {self.client}  {self.asked.describe()}{said}"


class Finding(StrEnum):
    """What is wrong with a history: an acknowledged change is nowhere to be seen, one was done twice, or neither explains it."""

    LOST = "lost"
    DOUBLED = "doubled"
    WRONG = "wrong"
    UNDECIDED = "undecided"


class Refuted(Exception):
    """A finding, and the instruction that it is about, if it is about one."""

    def __init__(self, finding: Finding, entry: Entry | None) -> None:
        super().__init__(finding.value)
        self.finding, self.entry = finding, entry


def check(entries: Sequence[Entry], memory: bytes, is_atomic: Callable[[Asked], bool]) -> None:
    """Raise :class:`Refuted` unless some serial order explains every answer, beginning with ``memory``. ``is_atomic`` says
    whether a COPY is done at once, because it stays within a device."""

    def explained(given: Iterable[Entry]) -> bool:
        return linearizable(list(_calls(given, is_atomic)), State(memory), do)

    try:
        if explained(entries):
            return
        changes = [entry for entry in entries if entry.asked.changes and entry.answered != inf]
        # With the culprit left out, or done once more at any time, everything else makes sense.
        for entry in changes:
            if explained(each for each in entries if each is not entry):
                raise Refuted(Finding.LOST, entry)
        for entry in changes:
            if explained([*entries, Entry(entry.client, entry.asked, entry.invoked)]):
                raise Refuted(Finding.DOUBLED, entry)
    except Undecided:
        raise Refuted(Finding.UNDECIDED, None) from None
    raise Refuted(Finding.WRONG, None)


def _calls(entries: Iterable[Entry], is_atomic: Callable[[Asked], bool]) -> Iterable[Call[Step]]:
    for serial, entry in enumerate(entries):
        asked = entry.asked
        if asked.instruction == Instruction.COPY and not is_atomic(asked):
            for reads in (True, False):
                yield Call(Step(asked, None, serial, reads, False), entry.invoked, entry.answered)
        else:
            yield Call(Step(asked, entry.answer), entry.invoked, entry.answered)
