# SPDX-License-Identifier: MIT
"""The outcome of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from netsum_planner.options import figure
from netsum_planner.topologies.model import Pair

SHOWN = 20
"""Links in JSON, the busiest first."""


@dataclass(frozen=True)
class JobOutcome:
    """``seconds`` of each call, from the first rank's begin to the last rank's end, and ``ends``, when each ended."""

    name: str
    algorithm: str
    workers: int
    nbytes: int
    seconds: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.seconds) / len(self.seconds)

    @property
    def algbw(self) -> float:
        """GB/s of the array."""
        return self.nbytes / self.mean / 1e9

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.name,
            "algorithm": self.algorithm,
            "workers": self.workers,
            "size": self.nbytes,
            "seconds": self.mean,
            "algbw_GBps": self.algbw,
            "busbw_GBps": self.algbw * 2 * (self.workers - 1) / self.workers,
            "calls": list(self.seconds),
            "ends": list(self.ends),
        }


@dataclass(frozen=True)
class LinkLoad:
    """Bytes that a link carried, and their share of what it could have carried in the time."""

    ends: Pair
    nbytes: float
    share: float


@dataclass(frozen=True)
class Counts:
    """Packets, of a simulation that has them. ``longest_queue``: bytes in front of a switch's link."""

    packets: int = 0
    retransmissions: int = 0
    lost: int = 0
    dropped: int = 0
    marked: int = 0
    longest_queue: float = 0.0


@dataclass(frozen=True)
class SimulationResult:
    """``level`` is flow or packet; ``elapsed`` the seconds that the simulation took, ``peak_mb`` the process's memory so far."""

    topology: str
    level: str
    seed: int
    jobs: tuple[JobOutcome, ...]
    links: tuple[LinkLoad, ...]
    events: int
    elapsed: float
    peak_mb: float
    counts: Counts | None = None

    def to_json(self) -> dict[str, Any]:
        busiest: Sequence[LinkLoad] = self.links[:SHOWN]
        return {
            "topology": self.topology,
            "level": self.level,
            "seed": self.seed,
            "jobs": [job.to_json() for job in self.jobs],
            "links": [{"link": " -> ".join(link.ends), "bytes": round(link.nbytes), "share": link.share} for link in busiest],
            **({"packets": asdict(self.counts)} if self.counts is not None else {}),
            "events": self.events,
            "elapsed_s": round(self.elapsed, 3),
            "peak_MB": round(self.peak_mb),
        }


# Pictures of outcomes.


def plot_outcomes(path: Path, outcomes: Sequence[SimulationResult]) -> None:
    """Each job's seconds of a call, and how busy its run's links were."""
    with figure(path, 2) as (times, loads):
        bars = [(f"{job.name}\n{job.algorithm}", job.mean * 1e3) for each in outcomes for job in each.jobs]
        times.bar(range(len(bars)), [milliseconds for _, milliseconds in bars])
        times.set_xticks(range(len(bars)), [label for label, _ in bars])
        times.set_ylabel("ms of a call")
        times.set_title(outcomes[0].topology)
        for each in outcomes:
            shares = np.sort([link.share for link in each.links])[::-1]
            label = ", ".join(dict.fromkeys(job.algorithm for job in each.jobs))
            loads.plot(np.arange(1, len(shares) + 1), 100 * shares, label=label)
        loads.set_xscale("log")
        loads.set_xlabel("links, the busiest first")
        loads.set_ylabel("% of the rate used")
        loads.legend()
