"""Pictures of steps and of scaling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from netsum_planner.plotting import figure
from netsum_planner.training.scaling import Point
from netsum_planner.training.timeline import Step


def plot_step(path: Path, name: str, step: Step) -> None:
    """A Gantt chart of one step."""
    with figure(path, width=9.0, height=2.6) as axes:
        axes.barh("compute", step.forward * 1e3, color="tab:blue", label="forward")
        axes.barh("compute", step.backward * 1e3, left=step.forward * 1e3, color="tab:cyan", label="backward")
        for number, (begin, end) in enumerate(step.calls):
            label = "a bucket's allreduce" if not number else None
            axes.barh(
                "network", (end - begin) * 1e3, left=begin * 1e3, color="tab:orange", edgecolor="white", label=label
            )
        axes.barh("input", step.input * 1e3, color="tab:green", label="input")
        axes.set_xlabel(f"ms; {name}: {step.step * 1e3:.1f} ms a step, {step.efficiency:.0%} efficient")
        axes.legend(loc="lower right")


def plot_scaling(path: Path, name: str, points: Sequence[Point]) -> None:
    """Efficiency over the number of workers, a panel for each algorithm, a line for each rate."""
    algorithms = list(dict.fromkeys(point.algorithm for point in points))
    with figure(path, max(2, len(algorithms)), width=5.0) as panels:
        for axes, algorithm in zip(panels, algorithms, strict=False):
            for gbps in dict.fromkeys(point.gbps for point in points):
                line = [point for point in points if (point.algorithm, point.gbps) == (algorithm, gbps)]
                workers, shares = [point.workers for point in line], [100 * point.step.efficiency for point in line]
                axes.plot(workers, shares, marker="o", label=f"{gbps:g} Gbit/s")
            axes.set_xscale("log", base=2)
            axes.set_ylim(0, 102)
            axes.set_title(f"{name}: {algorithm}")
            axes.set_xlabel("workers")
            axes.set_ylabel("efficiency, %")
            axes.legend()
