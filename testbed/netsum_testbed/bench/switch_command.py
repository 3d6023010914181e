"""``netsum bench switch``: what each engine forwards and sums, next to the bare adder and to what the machine can do."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import click
from netsum.agent.tables import table_console
from netsum.text import counted
from rich.console import Console
from rich.table import Table

from netsum_testbed.bench.frame import print_figures, require_root
from netsum_testbed.bench.loads import HOSTS, PAYLOAD_BYTES
from netsum_testbed.bench.rigs import ADDER, AGGREGATE, ENGINES, SIZES, adder_rig, engines_here, floor_rig, netsum_rig
from netsum_testbed.bench.turns import Case, take_turns
from netsum_testbed.checking import amount_option, count_option
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.switches import switch_version
from netsum_testbed.tables import make_table

FLOOR: Final = "floor"
_BUSY: Final = 0.8  # a generator that is busy for longer may have set the pace

Cases = Mapping[str, Mapping[str, Case]]
"""By engine and load."""


@dataclass(frozen=True)
class Measures:
    """``repetitions`` of each load, some ``run_seconds`` long each, with ``window`` rounds under way; but fewer if all would take
    more than ``minutes``. ``rootless``: through UDP ports."""

    repetitions: int = 7
    run_seconds: float = 0.7
    window: int = 16
    minutes: float = 6.0
    rootless: bool = False


@click.command()
@count_option("--repetitions", default=Measures.repetitions, told="of each load")
@amount_option("--run-seconds", default=Measures.run_seconds, told="of each, roughly", least=0.05)
@count_option("--window", default=Measures.window, told="rounds under way", most=64)
@amount_option("--minutes", default=Measures.minutes, told="after which no turn begins")
@click.option(
    "--rootless", is_flag=True, help="frames in UDP datagrams, as of `--rootless` networks; without simple_switch_grpc"
)
def switch(**given: Any) -> None:
    """Compare the engines, a bare adder, and what the machine can do at most.

    Needs root: the packets are raw frames in network namespaces; with --rootless it does not.
    """
    measures = Measures(**given)
    rootless = measures.rootless
    if not rootless:
        require_root("the packets of this bench are raw frames", "with --rootless")
    deadline = time.monotonic() + 60 * measures.minutes
    engines = engines_here(rootless)
    before = os.getloadavg()
    with ExitStack() as undo:
        progress = undo.enter_context(_progress())
        cases: list[Case] = []
        for engine in (FLOOR, *engines):
            progress(f"{engine}: starting")
            rigs = [floor_rig(rootless)]
            if engine != FLOOR:
                rigs = [netsum_rig(engine, rootless=rootless), adder_rig(engine, rootless=rootless)]
            for rig in map(undo.enter_context, rigs):
                cases += [Case(engine, load, rig, measures.window) for load in rig.loads]
        cases.sort(key=lambda case: _LOADS.index(case.load))  # what will be compared runs side by side
        plan = {"run_seconds": measures.run_seconds, "deadline": deadline}
        take_turns(cases, measures.repetitions, **plan, progress=progress)
    found = {engine: {case.load: case for case in cases if case.engine == engine} for engine in (FLOOR, *engines)}
    console = table_console()
    console.print(_table(found))
    for remark in _remarks(found, before):
        console.print(remark)
    print_figures(_to_dict(found, engines, before, "udp" if rootless else "interfaces"))


_LOADS: Final = [*map(str, SIZES), AGGREGATE, ADDER]


@contextmanager
def _progress() -> Iterator[Any]:
    """Shows progress on standard error: on a terminal the latest, else the first of each turn."""
    console = Console(stderr=True)
    with console.status("starting") as status:

        def say(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                click.echo(text, err=True)

        yield say


def _own_logic(cases: Mapping[str, Case]) -> dict[str, float]:
    """The shares of a contribution's time, and of the switch's CPU time, that are not the addition."""
    contribution, adder = cases[AGGREGATE], cases[ADDER]
    return {
        "time": round(1 - contribution.pps / adder.pps, 2),
        "cpu": round(1 - adder.cpu_us / contribution.cpu_us, 2),
    }


def _figures(cases: Mapping[str, Case]) -> dict[str, Any]:
    sizes = [str(size) for size in SIZES]
    others = [load for load in cases if load not in sizes]
    found: dict[str, Any] = {
        "forward_pps": {size: round(cases[size].pps) for size in sizes},
        **{f"{load}_pps": round(cases[load].pps) for load in others},
        "cpu_us_per_packet": {
            "forward": {size: round(cases[size].cpu_us, 1) for size in sizes},
            **{load: round(cases[load].cpu_us, 1) for load in others},
        },
        "window": min(case.window for case in cases.values()),
    }
    return {**found, "own_logic_share": _own_logic(cases)} if others else found


def _to_dict(found: Cases, engines: Sequence[str], before: Sequence[float], ports: str) -> dict[str, Any]:
    floor = found[FLOOR]
    return {
        "floor_pps": round(floor[str(FRAME_BYTES)].pps),
        **{engine: _figures(cases) for engine, cases in found.items()},
        "repetitions": len(floor[str(FRAME_BYTES)].runs),
        "workers": HOSTS,
        "payload_bytes": PAYLOAD_BYTES,
        "ports": ports,
        "load_before": round(before[0], 2),
        "load_after": round(os.getloadavg()[0], 2),
        "python_version": platform.python_version(),
        "versions": {engine: _version(engine) for engine in engines},
    }


def _version(engine: str) -> str:
    return switch_version({"native": "embedded", "python": "embedded_python"}.get(engine, engine))


def _table(found: Cases) -> Table:
    columns = [*(f">forward\n{size} bytes" for size in SIZES), ">contribution\n", ">bare\nadder", ">own logic\n"]
    rows = []
    for engine, cases in found.items():
        cells = [f"{cases[load].pps / 1000:.1f}" if load in cases else "" for load in _LOADS]
        rows.append([engine, *cells, f"{_own_logic(cases)['time']:.0%}" if AGGREGATE in cases else ""])
    turns = len(found[FLOOR][str(FRAME_BYTES)].runs)
    return make_table(f"thousands of packets a second into the switch: medians of {turns}", ["engine", *columns], rows)


def _remarks(found: Cases, before: Sequence[float]) -> list[str]:
    """What a reader should know before quoting the table."""
    cores = counted(os.cpu_count() or 1, "core")
    load = f"a load of {before[0]:.1f} before and {os.getloadavg()[0]:.1f} after"
    notes = [
        f"{cores}, shared by generator and switch; {load}. {FLOOR}: frames are only passed on, by recvmmsg and sendmmsg."
    ]
    busy = [
        f"{engine}, {load}"
        for engine, cases in found.items()
        for load, case in cases.items()
        if case.generator_share > _BUSY
    ]
    if busy:
        notes.append(f"The generator was busy most of the time, and may have set the pace: {'; '.join(busy)}.")
    for engine in [name for name in ENGINES if name in found]:
        share = _own_logic(found[engine])
        if share["time"] <= 0:
            notes.append(f"{engine}: a contribution takes no longer than the bare adder.")
            continue
        notes.append(
            f"{engine}: {share['time']:.0%} of a contribution is netsum's own logic, the rest what the bare adder does "
            f"({share['cpu']:.0%} of the CPU time)."
        )
    return notes
