"""What was foreseen, what was measured, and how far apart they are."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from netsum.agent.tables import make_table
from netsum_testbed.checking import Totals
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """``how``: the part that foresaw it, such as flow or packet. ``load``: processes that wanted a processor, on average over the
    minute before; ``host_us``: what a host takes to react, found with a small call."""

    network: str
    hosts: int
    what: str
    how: str
    foreseen_s: float
    measured_s: float
    load: float
    host_us: float = 0.0

    @property
    def error(self) -> float:
        """Of the measured time."""
        return abs(self.foreseen_s - self.measured_s) / self.measured_s

    def to_json(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "hosts": self.hosts,
            "what": self.what,
            "how": self.how,
            "foreseen_ms": round(self.foreseen_s * 1e3, 2),
            "measured_ms": round(self.measured_s * 1e3, 2),
            "error": round(self.error, 4),
            "load": round(self.load, 2),
            "host_us": round(self.host_us),
        }


@dataclass
class Errors(Totals):
    """All rows; none is left out."""

    rows: list[Row] = field(default_factory=list)
    networks: int = 0
    """That are done."""

    @property
    def done(self) -> float:
        return self.networks

    @property
    def made(self) -> int:
        return len(self.rows)

    @property
    def failures(self) -> int:
        return 0

    def figures(self) -> dict[str, Any]:
        errors = [row.error for row in self.rows]
        return {
            "switch": self.switch,
            "rows": [row.to_json() for row in self.rows],
            "median_error": round(statistics.median(errors), 4) if errors else None,
            "worst_error": round(max(errors), 4) if errors else None,
            "cores": os.cpu_count(),
            "seconds": round(self.seconds, 1),
            "interrupted": self.interrupted,
        }


def errors_table(title: str, rows: Sequence[Row]) -> Table:
    columns = ("network", ">hosts", "what", "by", ">foreseen\nms", ">measured\nms", ">error", ">host\nus", ">load")
    lines = (
        (row.network, str(row.hosts), row.what, row.how, f"{row.foreseen_s * 1e3:.1f}", f"{row.measured_s * 1e3:.1f}",
         f"{row.error:.1%}", f"{row.host_us:.0f}", f"{row.load:.1f}")
        for row in rows
    )  # fmt: skip
    return make_table(title, columns, lines)
