"""What a neighbor costs a job: an honest one of the same or another priority, or one that misbehaves.

Every job of a run calls all the time (:mod:`netsum_testbed.bench.steady`); the figure is how many calls each completed while
all of them were running.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from netsum_controller.config.job_spec import JobSpec

from netsum_testbed.bench.flood import Kind, flooding
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric

ALONE: Final = "alone"
PAIRS: Final = {"equal": (0, 0), "lower": (1, 0), "higher": (0, 1)}
"""The priorities of the job and of its honest neighbor, by the neighbor's name."""
NEIGHBORS: Final = {
    "fairness": (ALONE, "equal", *(kind.value for kind in Kind)),
    "priorities": (ALONE, "equal", "lower", "higher"),
}
"""The neighbors that each command measures."""

_UNTIL_STOPPED: Final = 3600.0


def jain(rates: Sequence[float]) -> float:
    """Jain's fairness index: (sum x)^2 / (n sum x^2), 1 if all are equal, 1/n if one has everything. (Jain, Chiu, Hawe:
    A Quantitative Measure of Fairness, DEC TR-301, 1984.)"""
    squares = len(rates) * sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / squares if squares else 1.0


@dataclass(frozen=True)
class Setting:
    """``workers`` per job, arrays of ``size`` bytes, ``seconds`` per case, and ``turns`` over all cases; ``rate_mbps`` limits
    what a host may send."""

    workers: int = 4
    size: int = 256 << 10
    seconds: float = 2.0
    turns: int = 3
    rate_mbps: int | None = None

    @property
    def hosts(self) -> int:
        """Hosts for two jobs and a flooding host, whose plain packets go to the second job's last host."""
        return 2 * self.workers + 1


@dataclass(frozen=True)
class Case:
    """How a job fared beside a ``neighbor``: calls a second and wrong elements, and the neighbor's calls if it is an honest
    job, else its packets a second."""

    neighbor: str
    rate: float
    wrong: int
    neighbour_rate: float | None = None
    neighbour_pps: float | None = None


class SteadyJob:
    """A job whose ranks call all the time, each on its own host, from ``first`` on. It runs as soon as it is made."""

    def __init__(
        self, fabric: Fabric, name: str, first: int, setting: Setting, seconds: float, priority: int = 0
    ) -> None:
        hosts = tuple(fabric.topology.hosts)[first : first + setting.workers]
        self._fabric, self._name = fabric, name
        job = fabric.create_job(JobSpec(name=name, members=hosts, priority=priority))
        command = [sys.executable, "-m", "netsum_testbed.bench.steady", str(setting.size), str(seconds)]
        self._ranks = fabric.spawn_ranks(job, command, name=name)
        for number in range(setting.workers):
            if self._said(number) != "begun\n":
                raise self._failed(number)

    def _said(self, number: int) -> str:
        return self._ranks[number].stdout.readline()

    def _failed(self, number: int) -> TestbedError:
        return TestbedError(f"rank {number} of job {self._name} failed: {self._ranks[number].last_words(1)}")

    def results(self) -> tuple[list[float], int]:
        """Wait for the job's end and delete it. Returns when rank 0's calls ended, and the wrong elements of all ranks."""
        found: list[dict[str, Any]] = []
        for number in range(len(self._ranks)):
            line = self._said(number)
            if not line:
                raise self._failed(number)
            found.append(json.loads(line))
        for rank in self._ranks:
            rank.wait()
            rank.stop()
        self._fabric.delete_job(self._name)
        return found[0]["ends"], sum(each["wrong"] for each in found)

    def stop(self) -> tuple[list[float], int]:
        """End it now; returns the same as :meth:`results`."""
        self._ranks[0].terminate()
        return self.results()


def measure(fabric: Fabric, setting: Setting, neighbor: str) -> Case:
    """Measure one case. ``neighbor``: one of :data:`NEIGHBORS`."""
    if neighbor == ALONE:
        return _case(neighbor, *SteadyJob(fabric, "one", 0, setting, setting.seconds).results())
    if neighbor in PAIRS:
        own, others = PAIRS[neighbor]
        other = SteadyJob(fabric, "other", setting.workers, setting, _UNTIL_STOPPED, others)
        ends, wrong = SteadyJob(fabric, "one", 0, setting, setting.seconds, own).results()
        there, wrong_there = other.stop()
        meanwhile = sum(ends[0] < end <= ends[-1] for end in there)
        return _case(neighbor, ends, wrong + wrong_there, neighbour_rate=meanwhile / (ends[-1] - ends[0]))
    with flooding(fabric, Kind(neighbor)) as packets:
        job = SteadyJob(fabric, "one", 0, setting, setting.seconds)
        before = packets()
        ends, wrong = job.results()
        return _case(neighbor, ends, wrong, neighbour_pps=(packets() - before) / (ends[-1] - ends[0]))


def _case(neighbor: str, ends: Sequence[float], wrong: int, **more: float) -> Case:
    durations = [after - before for before, after in pairwise(ends)]
    if not durations:
        raise TestbedError(f"beside {neighbor} not even two calls ended: give it more seconds or smaller arrays")
    return Case(neighbor, len(durations) / sum(durations), wrong, **more)


def measure_all(
    fabric: Fabric, setting: Setting, neighbors: Sequence[str], progress: Callable[[str], None]
) -> dict[str, Summary]:
    """Measure every case, in turns, so that other load on the machine affects all of them."""
    cases: dict[str, list[Case]] = {neighbor: [] for neighbor in neighbors}
    for turn in range(setting.turns):
        for neighbor, measured in cases.items():
            progress(f"{fabric.switch}: {neighbor} {turn + 1}/{setting.turns}")
            measured.append(measure(fabric, setting, neighbor))
    return {neighbor: Summary.of(measured, cases[ALONE]) for neighbor, measured in cases.items()}


@dataclass(frozen=True)
class Summary:
    """The medians of a case's turns. ``slowdown``: how many times as long a call takes as without a neighbor in the same turn;
    ``jain``: the fairness index of the job and its honest neighbor."""

    rate: float
    slowdown: float
    wrong: int
    neighbour_rate: float | None
    neighbour_pps: float | None
    jain: float | None

    @classmethod
    def of(cls, cases: Sequence[Case], alone: Sequence[Case]) -> Summary:
        """Summarize the turns of a case and those without a neighbor."""

        def median(values: Iterable[float | None]) -> float | None:
            there = [value for value in values if value is not None]
            return statistics.median(there) if there else None

        return cls(
            rate=statistics.median(case.rate for case in cases),
            slowdown=statistics.median(one.rate / case.rate for one, case in zip(alone, cases, strict=True)),
            wrong=sum(case.wrong for case in cases),
            neighbour_rate=median(case.neighbour_rate for case in cases),
            neighbour_pps=median(case.neighbour_pps for case in cases),
            jain=median(jain((case.rate, case.neighbour_rate)) for case in cases if case.neighbour_rate is not None),
        )

    def to_dict(self) -> dict[str, object]:
        values: Mapping[str, float | None] = {
            "calls_per_s": self.rate,
            "slowdown": self.slowdown,
            "neighbour_calls_per_s": self.neighbour_rate,
            "neighbour_pps": self.neighbour_pps,
            "jain": self.jain,
        }
        return {**{name: round(value, 3) for name, value in values.items() if value is not None}, "wrong": self.wrong}
