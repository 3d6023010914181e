"""The tables of ``make detection`` for people and its last line for programs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Final

from rich import box
from rich.table import Table

from netsum_trials.stragglers.detection import Detected
from netsum_trials.stragglers.histogram import Histogram

_BAR: Final = 10
"""Columns of a bin that holds everything."""


def histogram_table(measured: Sequence[Detected]) -> Table:
    """A column for each block_exp, of one switch and one way to send; a row a bin."""
    first = measured[0]
    how = "repeated" if first.repeats else "sent once"
    table = Table(title=f"{first.switch}, {how}: time / block_exp", box=box.SIMPLE, pad_edge=False)
    table.add_column("", no_wrap=True)
    histograms = [Histogram.of(each.at_host()) for each in measured]
    for each in measured:
        table.add_column(f"{1000 * each.block_exp:g} ms", no_wrap=True)
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
    """One entry of the JSON line. Times in units of block_exp, but for the milliseconds that say so."""
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
