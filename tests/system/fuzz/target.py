"""The interface between the fuzzer and a switch, and what is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from netsum.wire.schema import Outcome
from netsum_testbed.errors import TestbedError

from tests.system.fuzz.expect import FORGED, Record, Verdict

Packet = tuple[int, bytes]
"""(port, frame)."""


class CrashedError(TestbedError):
    """The switch's process has ended, or it has stopped answering, or its program raised an exception."""


@dataclass
class Echo:
    """Frames that came out of the switch for some packets. ``answers`` and ``forwarded`` count frames by port; an answer is a
    frame that the switch made. ``larger`` counts answers with more bytes than what they answer (where that is known)."""

    answers: Counter[int] = field(default_factory=Counter)
    forwarded: Counter[int] = field(default_factory=Counter)
    answer_bytes: Counter[int] = field(default_factory=Counter)
    forwarded_bytes: int = 0
    larger: int = 0

    def note(self, port: int, frame: bytes, *, forwarded: bool) -> None:
        """Count a frame out of a port."""
        if forwarded:
            self.forwarded[port] += 1
            self.forwarded_bytes += len(frame)
        else:
            self.answers[port] += 1
            self.answer_bytes[port] += len(frame)


def outcome_of(job_id: int, outcome: int) -> str:
    """The counter of a job's packets with that outcome."""
    name = Outcome(outcome).name.lower() if outcome in set(Outcome) else f"outcome {outcome}"
    return f"{name} of job {job_id}"


def let_in(job_id: int, source: int, port: int) -> str:
    """The counter of packets that a member's entry let in."""
    return f"let in as source {source} of job {job_id} on port {port}"


def dropped(port: int) -> str:
    """The counter of a port's packets that were not forwarded."""
    return f"dropped on port {port}"


def counted(port: int, verdict: Verdict) -> Iterator[str]:
    """The counters that count one packet."""
    if verdict.fate == FORGED:
        yield dropped(port)
    if isinstance(verdict.fate, Outcome):
        yield outcome_of(verdict.job_id, verdict.fate)
    if verdict.let_in is not None:
        yield let_in(verdict.job_id, verdict.let_in.src_id, verdict.let_in.port)


State = Mapping[str, Sequence[Any]]
"""Everything that untrusted senders must not change, as lists by name."""


def state_differences(before: State, after: State) -> list[str]:
    """Say what has changed."""
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
        """Send the packets on their ports; when all are processed, return what left. ``verdicts``: what is expected of each.
        Raises :class:`CrashedError`."""

    def exchange(self, port: int, frame: bytes) -> list[Packet]:
        """Send one frame; return everything that leaves because of it."""

    def records(self, slots: Iterable[int]) -> dict[int, Record]:
        """Block records by slot."""

    def state(self) -> State:
        """Everything that must not change."""

    def counts(self) -> Counter[str]:
        """Counts of the switch since it started, by counter, without zeros."""

    def close(self) -> None:
        """Clean up."""
