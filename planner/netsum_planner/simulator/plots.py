"""Pictures of outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from netsum_planner.plotting import figure
from netsum_planner.simulator.outcome import Outcome


def plot_outcomes(path: Path, outcomes: Sequence[Outcome]) -> None:
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
