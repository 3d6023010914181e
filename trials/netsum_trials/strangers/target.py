"""What the fuzzer needs of a switch, and what it compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from netsum.wire.schema import OUTCOMES_PER_JOB, Outcome
from netsum_testbed.errors import TestbedError

from netsum_trials.strangers.expect import FORGED, Record, Verdict
from netsum_trials.strangers.site import Member

Packet = tuple[int, bytes]
"""(port, frame)."""


class CrashedError(TestbedError):
    """The switch's process has ended, or it has stopped answering, or its program raised an exception."""


@dataclass
class Echo:
    """What came out of the switch for some packets. ``answers`` and ``forwarded`` count frames by port; an answer is a frame
    that nobody sent. ``larger`` counts answers with more bytes than what they answer (where that can be told)."""

    answers: Counter[int] = field(default_factory=Counter)
    forwarded: Counter[int] = field(default_factory=Counter)
    answer_bytes: Counter[int] = field(default_factory=Counter)
    forwarded_bytes: int = 0
    larger: int = 0

    def note(self, port: int, frame: bytes, *, forwarded: bool) -> None:
        """One frame out of a port."""
        if forwarded:
            self.forwarded[port] += 1
            self.forwarded_bytes += len(frame)
        else:
            self.answers[port] += 1
            self.answer_bytes[port] += len(frame)


@dataclass
class Counts:
    """What the switch counts and what leaves it, as predicted or as read."""

    outcomes: Counter[int] = field(default_factory=Counter)
    let_in: Counter[tuple[int, int, int]] = field(default_factory=Counter)  # (job, source id, port)
    dropped: Counter[int] = field(default_factory=Counter)  # by port

    def add(self, port: int, verdict: Verdict) -> None:
        """Count one packet."""
        if verdict.fate == FORGED:
            self.dropped[port] += 1
        if isinstance(verdict.fate, Outcome):
            self.outcomes[outcome_index(verdict.job_id, verdict.fate)] += 1
        if verdict.let_in is not None:
            self.let_in[member_key(verdict.job_id, verdict.let_in)] += 1

    def less(self, other: Counts) -> Counts:
        """What was counted since ``other``."""
        difference = Counts(self.outcomes.copy(), self.let_in.copy(), self.dropped.copy())
        difference.outcomes.subtract(other.outcomes)
        difference.let_in.subtract(other.let_in)
        difference.dropped.subtract(other.dropped)
        return difference

    def differences(self, other: Counts) -> list[str]:
        """Counters that are not the same, in words: predicted (self) and read (other)."""
        found = []
        for index in sorted(self.outcomes.keys() | other.outcomes.keys()):
            if self.outcomes[index] != other.outcomes[index]:
                name = outcome_name(index % OUTCOMES_PER_JOB)
                job = index // OUTCOMES_PER_JOB
                found.append(f"{name} of job {job}: {other.outcomes[index]} instead of {self.outcomes[index]}")
        for key in sorted(self.let_in.keys() | other.let_in.keys()):
            if self.let_in[key] != other.let_in[key]:
                job, source, port = key
                found.append(
                    f"let in as source {source} of job {job} on port {port}: "
                    f"{other.let_in[key]} instead of {self.let_in[key]}"
                )
        for port in sorted(self.dropped.keys() | other.dropped.keys()):
            if self.dropped[port] != other.dropped[port]:
                found.append(f"dropped on port {port}: {other.dropped[port]} instead of {self.dropped[port]}")
        return found


def outcome_index(job_id: int, outcome: int) -> int:
    """Of a cell of the outcome counter."""
    return job_id * OUTCOMES_PER_JOB + outcome


def outcome_name(outcome: int) -> str:
    """In small letters, as the controller prints them."""
    return Outcome(outcome).name.lower() if outcome in set(Outcome) else f"outcome {outcome}"


def member_key(job_id: int, member: Member) -> tuple[int, int, int]:
    """Key of a member's entry."""
    return job_id, member.src_id, member.port


State = Mapping[str, Sequence[Any]]
"""Everything that packets of strangers must not change: lists of comparable things by what they are."""


def state_differences(before: State, after: State) -> list[str]:
    """The things that are not as they were, in words."""
    found = []
    for name in before.keys() | after.keys():
        old, new = before.get(name, ()), after.get(name, ())
        if old == new:
            continue
        if len(old) != len(new):
            found.append(f"{name}: {len(new)} instead of {len(old)}")
        pairs = enumerate(zip(old, new, strict=False))
        found += [f"{name} {at}: {_short(b)} instead of {_short(a)}" for at, (a, b) in pairs if a != b]
    return found


def _short(thing: Any) -> str:
    text = f"{thing:#x}" if isinstance(thing, int) else str(thing)
    return text if len(text) <= 400 else f"{text[:400]}..."


class Target(Protocol):
    """A switch with the site's entries."""

    name: str
    shortest: int  # bytes of the shortest frame that its wires carry

    def send(self, packets: Sequence[Packet], verdicts: Sequence[Verdict]) -> Echo:
        """Put the packets on their ports; returns when all have been processed, and counts what left. ``verdicts`` say
        what is expected of each. Raises :class:`CrashedError`."""

    def exchange(self, port: int, frame: bytes) -> list[Packet]:
        """Send one frame; everything that leaves because of it."""

    def records(self, slots: Iterable[int]) -> dict[int, Record]:
        """Block records by slot."""

    def state(self) -> State:
        """Everything that must stay as it is."""

    def counts(self) -> Counts:
        """What the switch has counted since it started."""

    def close(self) -> None:
        """Leave nothing behind."""
