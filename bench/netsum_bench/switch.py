"""``netsum bench switch``: the cost of a contribution next to plain forwarding of the same packets, a bare adder and the machine
itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import click
from netsum.cli.tables import make_table, table_console
from netsum.text import counted
from netsum_testbed.checking import amount_option, count_option, names_of
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.switches import BMV2, switch_version
from rich.console import Console
from rich.table import Table

from netsum_bench.cli_options import every_switch, print_figures, require_root
from netsum_bench.devices import ADDER, AGGREGATE, SIZES, Case, adder_rig, floor_rig, netsum_rig, take_turns
from netsum_bench.traffic_generator import HOSTS, PAYLOAD_BYTES

FLOOR: Final = "floor"
FORWARD: Final = str(FRAME_BYTES)
_LOADS: Final = [*map(str, SIZES), AGGREGATE, ADDER]
_BUSY: Final = 0.8  # a generator that is busy for longer may have set the pace


@dataclass(frozen=True)
class Measures:
    """``repetitions`` of each load, some ``run_seconds`` long each, with ``window`` rounds in flight; but fewer if all would take
    more than ``minutes``. ``rootless``: through UDP ports."""

    repetitions: int = 7
    run_seconds: float = 0.7
    window: int = 16
    minutes: float = 6.0
    rootless: bool = False


@dataclass(frozen=True)
class SwitchFigures:
    """The cases of one switch, by load: frames of each size that it forwards, contributions, and the bare adder."""

    switch: str
    cases: Mapping[str, Case]

    @property
    def ratio(self) -> float:
        """The time of a contribution, divided by that of a forwarded packet of the same size."""
        return self.cases[FORWARD].pps / self.cases[AGGREGATE].pps

    @property
    def own_logic(self) -> float:
        """The share of a contribution's time that is not the addition: what netsum's own rules cost."""
        return 1 - self.cases[AGGREGATE].pps / self.cases[ADDER].pps

    @property
    def generator_share(self) -> float:
        """The largest share of time that the generator was busy; near 1 it, not the switch, set the pace."""
        return max(case.generator_share for case in self.cases.values())

    def to_dict(self) -> dict[str, object]:
        """The switch's part of the JSON line."""
        forward, aggregate, adder = (self.cases[load] for load in (FORWARD, AGGREGATE, ADDER))
        cpu = {"forward": forward.cpu_us, "aggregate": aggregate.cpu_us, "bare_adder": adder.cpu_us}
        return {
            "forward_pps": round(forward.pps),
            "aggregate_pps": round(aggregate.pps),
            "bare_adder_pps": round(adder.pps),
            "ratio": round(self.ratio, 2),
            "own_logic_share": round(self.own_logic, 2),
            "forward_pps_by_size": {str(size): round(self.cases[str(size)].pps) for size in SIZES},
            "us_per_packet": {"forward": round(1e6 / forward.pps, 1), "aggregate": round(1e6 / aggregate.pps, 1)},
            "cpu_us_per_packet": {
                **{name: round(us, 1) for name, us in cpu.items()},
                "ratio": round(aggregate.cpu_us / forward.cpu_us, 2),
            },
            "generator_share": round(self.generator_share, 2),
            "window": min(case.window for case in self.cases.values()),
            "repetitions": len(aggregate.runs),
        }


@click.command()
@every_switch
@count_option("--repetitions", default=Measures.repetitions, text="of each load")
@amount_option("--run-seconds", default=Measures.run_seconds, text="of each, roughly", least=0.05)
@count_option("--window", default=Measures.window, text="rounds in flight", most=64)
@amount_option("--minutes", default=Measures.minutes, text="after which no turn begins")
@click.option("--rootless", is_flag=True, help="frames in UDP datagrams, as of rootless fabrics; only the embedded switch")
def switch(switch: str, **given: Any) -> None:
    """Time a contribution, plain forwarding of the same packets, and a bare adder, on every switch.

    Needs root: the packets are raw frames in network namespaces; with --rootless it does not.
    """
    measures = Measures(**given)
    if not measures.rootless:
        require_root("the packets of this bench are raw frames", "with --rootless")
    names = names_of(switch)
    if measures.rootless and BMV2 in names:
        names.remove(BMV2)
        click.echo(f"*** {BMV2} IS NOT MEASURED: its ports are interfaces ***", err=True)
    before = os.getloadavg()[0]
    floor, figures = measure(names, measures)
    table_console().print(_table(floor, figures))
    for remark in remarks(floor, figures):
        table_console().print(remark)
    about = {
        "floor_pps": round(floor[FORWARD].pps),
        "workers": HOSTS,
        "payload_bytes": PAYLOAD_BYTES,
        "ports": "udp" if measures.rootless else "interfaces",
        "load_before": round(before, 2),
        "versions": {name: switch_version(name) for name in names},
    }
    print_figures({each.switch: each.to_dict() for each in figures}, about)


def measure(names: Sequence[str], measures: Measures) -> tuple[Mapping[str, Case], list[SwitchFigures]]:
    """Let every load of every switch take turns; returns the cases of a process that only passes frames on, and the figures."""
    deadline = time.monotonic() + 60 * measures.minutes
    with ExitStack() as undo:
        progress = undo.enter_context(_progress())
        cases: list[Case] = []
        for name in (FLOOR, *names):
            progress(f"{name}: starting")
            rigs = [floor_rig(measures.rootless)]
            if name != FLOOR:
                rigs = [make(name, rootless=measures.rootless) for make in (netsum_rig, adder_rig)]
            for rig in map(undo.enter_context, rigs):
                cases += [Case(name, load, rig, measures.window) for load in rig.loads]
        cases.sort(key=lambda case: _LOADS.index(case.load))  # what will be compared runs side by side
        plan = {"run_seconds": measures.run_seconds, "deadline": deadline}
        take_turns(cases, measures.repetitions, **plan, progress=progress)
    found = {name: {case.load: case for case in cases if case.engine == name} for name in (FLOOR, *names)}
    return found[FLOOR], [SwitchFigures(name, found[name]) for name in names]


@contextmanager
def _progress() -> Iterator[Any]:
    """Show progress on standard error: on a terminal the latest, else the first of each turn."""
    console = Console(stderr=True)
    with console.status("starting") as status:

        def say(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                click.echo(text, err=True)

        yield say


def _table(floor: Mapping[str, Case], figures: Sequence[SwitchFigures]) -> Table:
    columns = [*(f">forward\n{size} bytes" for size in SIZES), ">contribution\n", ">bare\nadder"]
    more = [">forward /\ncontribution", ">own\nlogic", ">CPU us of a\ncontribution"]
    rows = []
    for name, cases in {FLOOR: floor, **{each.switch: each.cases for each in figures}}.items():
        rows.append([name, *(f"{cases[load].pps / 1000:.1f}" if load in cases else "" for load in _LOADS)])
    for row, each in zip(rows[1:], figures, strict=True):
        row += [f"{each.ratio:.2f}", f"{each.own_logic:.0%}", f"{each.cases[AGGREGATE].cpu_us:.1f}"]
    rows[0] += [""] * len(more)
    turns = len(floor[FORWARD].runs)
    title = f"thousands of packets a second into the switch: medians of {turns}"
    return make_table(title, ["switch", *columns, *more], rows)


def remarks(floor: Mapping[str, Case], figures: Sequence[SwitchFigures]) -> list[str]:
    """Notes that a reader needs before quoting the table."""
    cores = counted(os.cpu_count() or 1, "core")
    return [
        f"{cores}, shared by the generator and the switch; CPU us count all of the switch's threads.",
        f"{FLOOR}: a process that only passes packets on, by recvmmsg and sendmmsg: {1e6 / floor[FORWARD].pps:.1f} us for one.",
        *(
            f"{each.switch}: the generator was busy {each.generator_share:.0%} of the time and may have set the pace: "
            "trust the CPU column."
            for each in figures
            if each.generator_share > _BUSY
        ),
    ]
