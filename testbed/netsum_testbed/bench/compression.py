"""The same training with each way to carry its gradients: accuracy over bytes and over time."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from netsum.agent.tables import table_console
from netsum.descriptor import SWITCH
from netsum.text import counted
from netsum_controller.config.job_spec import JobSpec
from rich.table import Table

from netsum_testbed.bench.compression_rank import METHODS
from netsum_testbed.bench.frame import every_switch, print_figures
from netsum_testbed.checking import count_option, names_of
from netsum_testbed.demo.model import Digits
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import open_fabric
from netsum_testbed.processes import said_by
from netsum_testbed.tables import make_table

WORKERS: Final = 4
TARGET: Final = 0.95
"""The accuracy that methods are compared by."""


@dataclass(frozen=True)
class Curve:
    """One method's course: (bytes sent by a rank, its seconds in calls, accuracy)."""

    method: str
    points: tuple[tuple[int, float, float], ...]

    def reaching(self, accuracy: float) -> tuple[int, float] | None:
        """Bytes and seconds until the accuracy was reached, if it was."""
        return next(((sent, seconds) for sent, seconds, reached in self.points if reached >= accuracy), None)

    def to_dict(self) -> dict[str, Any]:
        sent, seconds, accuracy = self.points[-1]
        return {"accuracy": accuracy, "sent_bytes": sent, "seconds": seconds, "curve": self.points}


def train_each(fabric: Fabric, workers: int, steps: int) -> Iterator[Curve]:
    """Train with each method, every rank a process on its own host; yield each curve as it comes."""
    names = list(METHODS) if workers <= 7 else [name for name in METHODS if "4 bits" not in name]
    job = fabric.create_job(JobSpec(name="bench", members=tuple(fabric.topology.hosts)[:workers], algorithm=SWITCH))
    with tempfile.TemporaryDirectory(prefix="netsum-bench-") as folder:
        digits = Path(folder) / "digits.npz"
        Digits.from_scikit_learn().save(digits)
        words = [
            sys.executable,
            "-m",
            "netsum_testbed.bench.compression_rank",
            str(digits),
            str(steps),
            ";".join(names),
        ]
        ranks = fabric.spawn_ranks(job, words)
        for name in names:
            (points,) = said_by(ranks[:1])
            yield Curve(name, tuple((int(sent), seconds, reached) for sent, seconds, reached in points))
        for rank in ranks:
            rank.wait()


def curves_table(switch: str, workers: int, curves: list[Curve]) -> Table:
    """A line each: where it ended, and what it took to come to the target."""
    columns = ("gradients", ">accuracy", ">sent\nMB", ">calls\ns", f">to {TARGET:.0%}\nMB", f">to {TARGET:.0%}\ns")
    rows = []
    for curve in curves:
        sent, seconds, accuracy = curve.points[-1]
        there = curve.reaching(TARGET)
        reached = (f"{there[0] / 1e6:.1f}", f"{there[1]:.1f}") if there else ("-", "-")
        rows.append((curve.method, f"{accuracy:.4f}", f"{sent / 1e6:.1f}", f"{seconds:.1f}", *reached))
    return make_table(
        f"digits, {workers} workers, {switch} switch: what a rank sends, and its time in calls", columns, rows
    )


@click.command()
@every_switch
@count_option("--workers", default=WORKERS, told="ranks, each on its own host", most=8)
@count_option("--steps", default=150, told="of each training")
def compression(switch: str, workers: int, steps: int) -> None:
    """Train the same classifier with each way to carry gradients in fewer bytes: accuracy over bytes and over time."""
    console = table_console()
    found: dict[str, dict[str, Any]] = {}
    for name in names_of(switch):
        curves: list[Curve] = []
        with console.status(f"{name}: starting") as status, open_fabric(name, hosts=workers) as fabric:
            for curve in train_each(fabric, workers, steps):
                curves.append(curve)
                status.update(f"{name}: {counted(len(curves), 'training')} done")
        console.print(curves_table(name, workers, curves))
        found[name] = {curve.method: curve.to_dict() for curve in curves}
    print_figures(found, {"workers": workers, "steps": steps})
