# SPDX-License-Identifier: MIT
"""``netsum bench switch``: the cost of a contribution next to plain forwarding of the same packets, a bare adder and the machine
itself. Each switch under test runs in a namespace of its own, with a generator beside it.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from netsum.cli.tables import make_table, table_console
from netsum.text import counted
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.entries import MulticastGroup
from netsum_controller.p4runtime.client import SwitchClient, Update, UpdateKind
from netsum_testbed.checking import amount_option, count_option, names_of
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabrics import NamespaceFabric, RootlessFabric
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.processes import Child
from netsum_testbed.switches import BMV2, SwitchProcess, switch_version
from rich.console import Console
from rich.table import Table

from netsum_bench.adder import ALL_PORTS, adder_program
from netsum_bench.cli_options import every_switch, print_figures, require_root
from netsum_bench.traffic_generator import (
    HOSTS,
    PAYLOAD_BYTES,
    Blasted,
    Blaster,
    Load,
    LostError,
    WrongReplyError,
    aggregate_load,
    bare_wires,
    forward_load,
    raw_load,
)

SIZES: Final = (64, 1500, FRAME_BYTES)
"""Bytes of the frames that are forwarded."""
AGGREGATE: Final = "aggregate"
ADDER: Final = "bare_adder"
FLOOR: Final = "floor"
FORWARD: Final = str(FRAME_BYTES)
_LOADS: Final = [*map(str, SIZES), AGGREGATE, ADDER]
_BUSY: Final = 0.8  # a generator that is busy for longer may have set the pace
_TRIES: Final = 2
"""How often the adder's last sum may be wrong: it adds in the order in which packets come, and the kernel sometimes delivers a
packet of one port before one that was sent to another port earlier."""


class Rig:
    """A running switch. ``loads``: what can be sent to it, by name; ``prepare`` makes them, and says the first block to use."""

    def __init__(self, blaster: Blaster, pid: int, prepare: Callable[[], tuple[Mapping[str, Load], int]]) -> None:
        self.pid = pid
        self._blaster = blaster
        self._prepare = prepare
        self.renew()

    def renew(self) -> None:
        """Start over after a loss, with blocks that have had no contribution."""
        self.loads, self._next = self._prepare()

    def run(self, name: str, rounds: int, window: int) -> Blasted:
        """Send a load. Raises LostError, or WrongReplyError."""
        first = self._next
        if name == AGGREGATE:
            self._next = first + rounds & 0xFFFFFFFF
        for _ in range(_TRIES if name == ADDER else 0):
            with suppress(WrongReplyError):
                return self._blaster.run(self.loads[name], rounds, window, first_block=first, switch_pid=self.pid)
        return self._blaster.run(self.loads[name], rounds, window, first_block=first, switch_pid=self.pid)


def _forwarded(make: Callable[[int], Load]) -> dict[str, Load]:
    return {str(size): make(size) for size in SIZES}


@contextmanager
def floor_rig(rootless: bool = False) -> Iterator[Rig]:
    """A process that only passes frames on (:mod:`netsum_bench.baseline`). Needs root, unless ``rootless``."""
    loads = _forwarded(lambda size: raw_load("floor", size))
    with bare_wires(rootless) as wires, ExitStack() as undo:
        process = Child([*wires.prefix, sys.executable, "-m", "netsum_bench.baseline", *wires.ends], output=None)
        undo.callback(process.stop)
        if process.stdout.readline() != "ready\n":
            raise TestbedError(f"the process that passes frames on did not start: {process.stdout.read()}")
        yield Rig(undo.enter_context(closing(wires.blaster())), process.pid, lambda: (loads, 0))


@contextmanager
def netsum_rig(switch: str, rootless: bool = False) -> Iterator[Rig]:
    """netsum's program, for contributions and plain traffic."""
    with ExitStack() as undo:
        fabric = undo.enter_context((RootlessFabric if rootless else NamespaceFabric)(star(HOSTS), switch))
        hosts = list(fabric.topology.hosts)
        fabric.create_job(JobSpec(name="bench", members=tuple(hosts), window=64, chunks=16))

        def prepare() -> tuple[Mapping[str, Load], int]:
            descriptors = fabric.controller.membership.join_all("bench")
            loads = _forwarded(lambda size: forward_load(descriptors, size))
            return {**loads, AGGREGATE: aggregate_load(descriptors)}, descriptors[0].first_block_id

        if rootless:
            ends = [f"udp:{host.frames}:{host.switch_frames}" for host in fabric.topology.hosts.values()]
        else:
            ends = [fabric.interface(host) for host in hosts]
        blaster = undo.enter_context(closing(fabric.inside(lambda: Blaster(ends))))
        yield Rig(blaster, fabric.switch_pid, prepare)


@contextmanager
def adder_rig(kind: str, rootless: bool = False) -> Iterator[Rig]:
    """The bare adder, without a controller."""
    (address,) = star(HOSTS).switches.values()
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="netsum-"))
        wires = undo.enter_context(bare_wires(rootless))
        interfaces = [f"{port}@{end}" for port, end in enumerate(wires.ends, 1)]
        switch = SwitchProcess(kind, interfaces, Path(folder), wires.prefix)
        undo.callback(switch.stop)
        switch.wait_ready()
        reached = address.model_copy(update={"p4runtime": switch.address})
        with SwitchClient("s1", reached, adder_program()) as client:
            client.push_pipeline()
            group = MulticastGroup(ALL_PORTS, frozenset((port, port) for port in range(1, HOSTS + 1)))
            client.write([Update(UpdateKind.INSERT, group)])
        loads = {ADDER: raw_load("bare adder", FRAME_BYTES, checked=False)}
        yield Rig(undo.enter_context(closing(wires.blaster())), switch.pid, lambda: (loads, 0))


_FIRST_ROUNDS: Final = 100
_MOST_ROUNDS: Final = 500_000


@dataclass
class Case:
    """One load on one switch. ``runs`` grows by one in each turn, of ``rounds`` rounds."""

    engine: str
    load: str
    rig: Rig
    window: int
    rounds: int = _FIRST_ROUNDS
    runs: list[Blasted] = field(default_factory=list)

    def warm_up(self, seconds: float) -> None:
        """Send the first packets, which are slow, and set ``rounds`` to as many as take this long."""
        for share in (0.1, 1.0):
            run = self._run(self.rounds)
            self.rounds = min(max(round(self.rounds / run.seconds * seconds * share), _FIRST_ROUNDS), _MOST_ROUNDS)

    def take_turn(self) -> None:
        """Measure once. Raises LostError if packets are lost even one at a time."""
        self.runs.append(self._run(self.rounds))

    def _run(self, rounds: int) -> Blasted:
        while True:
            try:
                return self.rig.run(self.load, rounds, self.window)
            except LostError:
                if self.window == 1:
                    raise
                self.window //= 2
                self.rig.renew()

    @property
    def pps(self) -> float:
        """Packets a second into the switch: the median."""
        return statistics.median(run.packets / run.seconds for run in self.runs)

    @property
    def cpu_us(self) -> float:
        """CPU microseconds of the switch's process for a packet into it, all threads: the median."""
        return statistics.median(run.switch_cpu / run.packets for run in self.runs) * 1e6

    @property
    def generator_share(self) -> float:
        """The share of the time that the generator was busy."""
        return statistics.median(run.generator_cpu / run.seconds for run in self.runs)


def take_turns(cases: Sequence[Case], repetitions: int, run_seconds: float, deadline: float, say: Callable[[str], None]) -> None:
    """Give every case its ``repetitions``, or as many turns as end before ``deadline`` (of time.monotonic), but at least one. A
    turn takes about ``run_seconds``."""
    for case in cases:
        say(f"{case.engine}, {case.load}: warming up")
        case.warm_up(run_seconds)
    longest = 0.0
    for turn in range(1, repetitions + 1):
        began = time.monotonic()
        if turn > 1 and began + longest > deadline:
            return
        for case in cases:
            say(f"turn {turn} of {repetitions}: {case.engine}, {case.load}")
            case.take_turn()
        longest = max(longest, time.monotonic() - began)


Cases = Mapping[str, Case]
"""Of one switch, by load: frames of each size that it forwards, contributions, and the bare adder."""


def figures(cases: Cases) -> dict[str, Any]:
    """The switch's part of the JSON line. ``ratio``: the time of a contribution by that of a forwarded packet of the same size;
    ``own_logic_share``: of a contribution's time, what is not the addition; ``generator_share``: the largest share of time that
    the generator was busy; near 1 it, not the switch, set the pace."""
    forward, aggregate, adder = (cases[load] for load in (FORWARD, AGGREGATE, ADDER))
    cpu = {"forward": forward.cpu_us, "aggregate": aggregate.cpu_us, "bare_adder": adder.cpu_us}
    return {
        "forward_pps": round(forward.pps),
        "aggregate_pps": round(aggregate.pps),
        "bare_adder_pps": round(adder.pps),
        "ratio": round(forward.pps / aggregate.pps, 2),
        "own_logic_share": round(1 - aggregate.pps / adder.pps, 2),
        "forward_pps_by_size": {str(size): round(cases[str(size)].pps) for size in SIZES if str(size) in cases},
        "us_per_packet": {"forward": round(1e6 / forward.pps, 1), "aggregate": round(1e6 / aggregate.pps, 1)},
        "cpu_us_per_packet": {
            **{name: round(us, 1) for name, us in cpu.items()},
            "ratio": round(aggregate.cpu_us / forward.cpu_us, 2),
        },
        "generator_share": round(max(case.generator_share for case in cases.values()), 2),
        "window": min(case.window for case in cases.values()),
        "repetitions": len(aggregate.runs),
    }


@click.command()
@every_switch
@count_option("--repetitions", default=7, text="of each load")
@amount_option("--run-seconds", default=0.7, text="of each, roughly", least=0.05)
@count_option("--window", default=16, text="rounds in flight", most=64)
@amount_option("--minutes", default=6.0, text="after which no turn begins")
@click.option("--rootless", is_flag=True, help="frames in UDP datagrams, as of rootless fabrics; only the embedded switch")
def switch(switch: str, repetitions: int, run_seconds: float, window: int, minutes: float, rootless: bool) -> None:
    """Time a contribution, plain forwarding of the same packets, and a bare adder, on every switch.

    Needs root: the packets are raw frames in network namespaces; with --rootless it does not.
    """
    if not rootless:
        require_root("the packets of this bench are raw frames", "with --rootless")
    names = names_of(switch)
    if rootless and "bmv2" in names:
        names.remove("bmv2")
        click.echo(f"*** {BMV2} IS NOT MEASURED: its ports are interfaces ***", err=True)
    before, deadline, console = os.getloadavg()[0], time.monotonic() + 60 * minutes, table_console()
    with ExitStack() as undo:
        status = undo.enter_context(Console(stderr=True).status("starting"))
        cases: list[Case] = []
        for name in (FLOOR, *names):
            status.update(f"{name}: starting")
            rigs = [floor_rig(rootless)] if name == FLOOR else [make(name, rootless) for make in (netsum_rig, adder_rig)]
            for rig in map(undo.enter_context, rigs):
                cases += [Case(name, load, rig, window) for load in rig.loads]
        cases.sort(key=lambda case: _LOADS.index(case.load))  # what will be compared runs side by side
        take_turns(cases, repetitions, run_seconds, deadline, status.update)
    by_name = {name: {case.load: case for case in cases if case.engine == name} for name in (FLOOR, *names)}
    found = {name: figures(by_name[name]) for name in names}
    console.print(_table(by_name, found))
    floor_pps = by_name[FLOOR][FORWARD].pps
    for remark in remarks(floor_pps, found):
        console.print(remark)
    about = {
        "floor_pps": round(floor_pps),
        "workers": HOSTS,
        "payload_bytes": PAYLOAD_BYTES,
        "ports": "udp" if rootless else "interfaces",
        "load_before": round(before, 2),
        "versions": {name: switch_version(name) for name in names},
    }
    print_figures(found, about)


def _table(by_name: Mapping[str, Cases], found: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = ["switch", *(f">forward\n{size} bytes" for size in SIZES), ">contribution\n", ">bare\nadder"]
    columns += [">forward /\ncontribution", ">own\nlogic", ">CPU us of a\ncontribution"]
    rows = []
    for name, cases in by_name.items():
        row = [name, *(f"{cases[load].pps / 1000:.1f}" if load in cases else "" for load in _LOADS)]
        if of := found.get(name):
            row += [f"{of['ratio']:.2f}", f"{of['own_logic_share']:.0%}", f"{of['cpu_us_per_packet']['aggregate']:.1f}"]
        rows.append(row)
    title = f"thousands of packets a second into the switch: medians of {len(by_name[FLOOR][FORWARD].runs)}"
    return make_table(title, columns, rows)


def remarks(floor_pps: float, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Notes that a reader needs before quoting the table."""
    cores = counted(os.cpu_count() or 1, "core")
    return [
        f"{cores}, shared by the generator and the switch; CPU us count all of the switch's threads.",
        f"{FLOOR}: a process that only passes packets on, by recvmmsg and sendmmsg: {1e6 / floor_pps:.1f} us for one.",
        *(
            f"{name}: the generator was busy {of['generator_share']:.0%} of the time and may have set the pace: "
            "trust the CPU column."
            for name, of in found.items()
            if of["generator_share"] > _BUSY
        ),
    ]
