"""The bench's tables for people and its last line for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence

from rich.table import Table

from netsum_testbed.bench.switches import SwitchFigures
from netsum_testbed.tables import make_table


def switch_table(figures: Sequence[SwitchFigures]) -> Table:
    """One line a switch: wall-clock and CPU microseconds per packet, forwarding next to aggregating."""
    columns = [f">{kind}\n{name}" for kind in ("time", "CPU") for name in ("forward", "aggregate", "ratio")]
    rows = (
        (
            figure.switch.removeprefix("embedded_"),
            f"{1e6 / figure.forward_pps:.1f}",
            f"{1e6 / figure.aggregate_pps:.1f}",
            f"{figure.ratio:.2f}",
            f"{figure.forward_cpu_us:.1f}",
            f"{figure.aggregate_cpu_us:.1f}",
            f"{figure.aggregate_cpu_us / figure.forward_cpu_us:.2f}",
            f"{figure.generator_share:.0%}",
        )
        for figure in figures
    )
    title = "one 4096-byte packet into the switch: microseconds, medians"
    return make_table(title, ("switch", *columns, ">sender\nbusy"), rows)


def remarks(figures: Sequence[SwitchFigures], floor_pps: float) -> list[str]:
    """What a reader should know before quoting the table."""
    cores = os.cpu_count() or 1
    notes = [f"{cores} cores, shared by the sender and the switch; CPU us count all of the switch's threads."]
    notes.append(f"A process that only passes such packets on takes {1e6 / floor_pps:.1f} us for one.")
    notes += [
        f"{figure.switch}: the sender was busy {figure.generator_share:.0%} of the time and may have set the pace: "
        "trust the CPU columns."
        for figure in figures
        if figure.generator_share > 0.8
    ]
    return notes


def switch_json(figures: Sequence[SwitchFigures], versions: Mapping[str, str], floor_pps: float) -> str:
    """One line: per switch forward_pps, aggregate_pps, ratio and more; and what ran."""
    return json.dumps(
        {
            **{figure.switch: figure.to_dict() for figure in figures},
            "floor_pps": round(floor_pps),
            "workers": 4,
            "payload_bytes": 4096,
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "versions": dict(versions),
        }
    )
