"""The tables of ``make detection`` for people and its last line for programs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from netsum.agent.tables import make_table
from rich.table import Table

from netsum_trials.stragglers.detection import Detected

_BAR: Final = 10
"""Columns of the bar of a bin that holds everything."""
WIDTH: Final = 0.1
FIRST, LAST = 0.9, 2.4
"""Bins of ``WIDTH`` from FIRST to LAST, and one each for what is below and above."""


@dataclass(frozen=True)
class Histogram:
    """``shares`` of the values in the bins between ``edges``; the first bin is below the first edge, the last from the last
    edge up. ``within``: the share in [1, 2]."""

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    within: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Histogram:
        """Make the histogram of at least one value."""
        units = np.asarray(values, np.float64)
        edges = np.round(np.arange(FIRST, LAST + WIDTH / 2, WIDTH), 3)
        counts = np.bincount(np.searchsorted(edges, units, "right"), minlength=len(edges) + 1)
        within = float(((units >= 1) & (units <= 2)).mean())
        return cls(tuple(edges.tolist()), tuple((counts / len(units)).tolist()), within)

    def labels(self) -> list[str]:
        """The name of each bin."""
        inner = [f"{low:.1f} - {high:.1f}" for low, high in zip(self.edges, self.edges[1:], strict=False)]
        return [f"below {self.edges[0]:.1f}", *inner, f"{self.edges[-1]:.1f} and more"]


def histogram_table(measured: Sequence[Detected]) -> Table:
    """A column for each block_exp and a row for each bin, for one switch and one way to send."""
    first = measured[0]
    how = "repeated" if first.repeats else "sent once"
    histograms = [Histogram.of(each.at_host()) for each in measured]
    columns = ("", *(f"{1000 * each.block_exp:g} ms" for each in measured))
    table = make_table(f"{first.switch}, {how}: time / block_exp", columns)
    for row, label in enumerate(histograms[0].labels()):
        shares = [histogram.shares[row] for histogram in histograms]
        table.add_row(label, *(f"{share:5.1%} {'#' * round(_BAR * share)}" if share else "" for share in shares))
    table.add_section()
    table.add_row("within 1..2", *(f"{histogram.within:.1%}" for histogram in histograms))
    table.add_row("from its start", *(f"{Histogram.of(each.from_start()).within:.1%}" for each in measured))
    table.add_row("median", *(f"{statistics.median(each.at_host()):.2f}" for each in measured))
    table.add_row("longest", *(f"{max(each.at_host()):.2f}" for each in measured))
    return table


def figures(measured: Detected) -> dict[str, object]:
    """One entry of the JSON line. Times are in units of block_exp, except those named as milliseconds."""
    at_host, from_start = measured.at_host(), measured.from_start()
    histogram = Histogram.of(at_host)
    return {
        "switch": measured.switch,
        "block_exp_ms": round(1000 * measured.block_exp, 3),
        "repeats": measured.repeats,
        "samples": len(at_host),
        "within_1_2": round(histogram.within, 4),
        "within_1_2_from_start": round(Histogram.of(from_start).within, 4),
        "median": round(statistics.median(at_host), 3),
        "shortest": round(min(at_host), 3),
        "longest": round(max(at_host), 3),
        "median_from_start": round(statistics.median(from_start), 3),
        "payload_ms": round(1000 * statistics.median(each.held - each.noticed for each in measured.samples), 3),
        "bins": dict(zip(histogram.labels(), [round(share, 4) for share in histogram.shares], strict=True)),
    }


def to_json(measured: Sequence[Detected]) -> str:
    """One line."""
    return json.dumps({"measured": [figures(each) for each in measured]})
