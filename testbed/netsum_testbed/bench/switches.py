"""``netsum bench switches``: what a contribution costs a switch, compared with plain forwarding of the same packets."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
from netsum.agent.tables import table_console
from rich.table import Table

from netsum_testbed.bench.frame import every_switch, print_figures, require_root
from netsum_testbed.bench.loads import HOSTS, PAYLOAD_BYTES
from netsum_testbed.bench.rigs import AGGREGATE, Rig, floor_rig, netsum_rig
from netsum_testbed.bench.turns import Case, take_turns
from netsum_testbed.checking import count_option, names_of
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.switches import runs_machine_code, switch_version
from netsum_testbed.tables import make_table

PYTHON: Final = "embedded_python"  # the embedded switch without machine code
FORWARD: Final = str(FRAME_BYTES)
_BUSY: Final = 0.8  # a generator that is busy for longer may have set the pace


@dataclass(frozen=True)
class Plan:
    """``repetitions`` of each load in turn, each of ``rounds`` rounds (one packet per host), ``window`` of them in flight."""

    repetitions: int = 7
    rounds: int = 3000
    window: int = 16

    def measure(self, name: str, rig: Rig, loads: Sequence[str], progress: Callable[[str], None]) -> list[Case]:
        """A case for each of ``loads``, which took turns."""
        cases = [Case(name, load, rig, self.window, self.rounds) for load in loads]
        take_turns(cases, self.repetitions, run_seconds=None, deadline=math.inf, progress=progress)
        return cases


@dataclass(frozen=True)
class SwitchFigures:
    switch: str
    forward: Case
    aggregate: Case

    @property
    def ratio(self) -> float:
        """The time of a contribution, divided by that of a forwarded packet."""
        return self.forward.pps / self.aggregate.pps

    @property
    def cpu_ratio(self) -> float:
        """The same for CPU time."""
        return self.aggregate.cpu_us / self.forward.cpu_us

    @property
    def generator_share(self) -> float:
        """The largest share of time that the generator was busy; near 1 it, not the switch, set the pace."""
        return max(self.forward.generator_share, self.aggregate.generator_share)

    def to_dict(self) -> dict[str, object]:
        """The switch's part of the JSON line."""
        return {
            "forward_pps": round(self.forward.pps),
            "aggregate_pps": round(self.aggregate.pps),
            "ratio": round(self.ratio, 2),
            "us_per_packet": {
                "forward": round(1e6 / self.forward.pps, 1),
                "aggregate": round(1e6 / self.aggregate.pps, 1),
            },
            "cpu_us_per_packet": {
                "forward": round(self.forward.cpu_us, 1),
                "aggregate": round(self.aggregate.cpu_us, 1),
                "ratio": round(self.cpu_ratio, 2),
            },
            "generator_share": round(self.generator_share, 2),
            "window": min(self.forward.window, self.aggregate.window),
            "repetitions": len(self.forward.runs),
        }


@click.command()
@every_switch
@count_option("--repetitions", default=Plan.repetitions, told="of each load")
@count_option("--rounds", default=Plan.rounds, told="packets a host", least=100)
@count_option("--window", default=Plan.window, told="rounds under way", most=64)
def switches(switch: str, **given: Any) -> None:
    """Time a contribution and plain forwarding.

    Needs root: the packets are raw frames in a network namespace.
    """
    require_root("the packets of this bench are raw frames")
    names, plan, console = names_of(switch), Plan(**given), table_console()
    if "embedded" in names and runs_machine_code():
        names.append(PYTHON)
    engines = {"embedded": "native" if runs_machine_code() else "python", PYTHON: "python"}
    figures: list[SwitchFigures] = []
    with console.status("starting") as status:
        for name in names:
            with netsum_rig(engines.get(name, name)) as rig:
                forward, aggregate = plan.measure(name, rig, (FORWARD, AGGREGATE), status.update)
            figures.append(SwitchFigures(name, forward, aggregate))
        with floor_rig() as rig:
            (floor,) = plan.measure("without a switch", rig, (FORWARD,), status.update)
    console.print(_table(figures))
    for remark in remarks(figures, floor.pps):
        console.print(remark)
    print_figures({each.switch: each.to_dict() for each in figures}, _about(names, floor.pps))


def _about(names: Sequence[str], floor_pps: float) -> Mapping[str, Any]:
    versions = {name: switch_version(name) for name in names}
    return {"floor_pps": round(floor_pps), "workers": HOSTS, "payload_bytes": PAYLOAD_BYTES, "versions": versions}


def _table(figures: Sequence[SwitchFigures]) -> Table:
    """One line a switch: wall-clock and CPU microseconds per packet, forwarding next to aggregating."""
    columns = [f">{kind}\n{name}" for kind in ("time", "CPU") for name in ("forward", "aggregate", "ratio")]
    rows = (
        (
            each.switch.removeprefix("embedded_"),
            *(f"{1e6 / case.pps:.1f}" for case in (each.forward, each.aggregate)),
            f"{each.ratio:.2f}",
            *(f"{case.cpu_us:.1f}" for case in (each.forward, each.aggregate)),
            f"{each.cpu_ratio:.2f}",
            f"{each.generator_share:.0%}",
        )
        for each in figures
    )
    title = "one 4096-byte packet into the switch: microseconds, medians"
    return make_table(title, ("switch", *columns, ">sender\nbusy"), rows)


def remarks(figures: Sequence[SwitchFigures], floor_pps: float) -> list[str]:
    """What a reader should know before quoting the table."""
    cores = os.cpu_count() or 1
    return [
        f"{cores} cores, shared by the sender and the switch; CPU us count all of the switch's threads.",
        f"A process that only passes such packets on takes {1e6 / floor_pps:.1f} us for one.",
        *(
            f"{each.switch}: the sender was busy {each.generator_share:.0%} of the time and may have set the pace: "
            "trust the CPU columns."
            for each in figures
            if each.generator_share > _BUSY
        ),
    ]
