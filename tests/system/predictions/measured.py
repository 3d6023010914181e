# SPDX-License-Identifier: MIT
"""Times calls in Mininet, whose links have rates, beside what was foreseen."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import click
from netsum.cli.tables import make_table, table_console
from netsum.descriptor import SWITCH
from netsum_bench.harness import Calls, time_parties
from netsum_controller.config.topology import Topology
from netsum_planner.simulator.collectives import IN_NETWORK
from netsum_testbed.checking import Totals, running, switch_option
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.switches import choose_switch
from rich.table import Table

# What was foreseen, what was measured, and how far apart they are.


@dataclass(frozen=True)
class PredictionRow:
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

    rows: list[PredictionRow] = field(default_factory=list)
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


def errors_table(title: str, rows: Sequence[PredictionRow]) -> Table:
    columns = ("network", ">hosts", "what", "by", ">foreseen\nms", ">measured\nms", ">error", ">host\nus", ">load")
    lines = (
        (row.network, str(row.hosts), row.what, row.how, f"{row.foreseen_s * 1e3:.1f}", f"{row.measured_s * 1e3:.1f}",
         f"{row.error:.1%}", f"{row.host_us:.0f}", f"{row.load:.1f}")
        for row in rows
    )  # fmt: skip
    return make_table(title, columns, lines)


KIND: Final = "embedded"
"""The faster switch: links, and not switches, shall set the pace."""
kind_option = switch_option(f"{KIND}, the faster one")
only_networks_option = click.option("--only", metavar="NAME", help="only networks whose name begins so, such as star or tree2x2")


@contextmanager
def network(topology: Topology, switch: str) -> Iterator[Fabric]:
    """The topology in Mininet. :class:`TestbedError` if this machine cannot limit links' rates."""
    from netsum_testbed.mininet_fabric import MininetFabric, rates_work

    if not rates_work():
        raise TestbedError("this command needs links with rates: tc and a kernel with HTB")
    with MininetFabric(topology, switch) as fabric:
        yield fabric


def compare(
    switch: str,
    networks: Iterable[tuple[Topology, int]],
    only: str | None,
    title: str,
    rows: Callable[[Fabric, Topology, int], Iterator[PredictionRow]],
) -> None:
    """Make the ``rows`` of each network, a topology and its links' Mbit/s, whose name begins with ``only``; show them, and print
    the last line."""
    name = KIND if switch == "auto" else choose_switch(switch)
    totals, start = Errors(name), time.monotonic()
    chosen = [(topology, rate) for topology, rate in networks if topology.name.startswith(only or "")]
    with running(totals) as screen:
        screen.begin(len(chosen), "foreseen and measured")
        for topology, rate in chosen:
            with network(topology, name) as fabric:
                for row in rows(fabric, topology, rate):
                    totals.rows.append(row)
                    totals.seconds = time.monotonic() - start
            totals.networks += 1
            screen.show(totals)
        table_console().print(errors_table(f"{title}, {name} switches", totals.rows))


def algorithm_of(name: str) -> str:
    """The library's name of the planner's algorithm."""
    return SWITCH if name == IN_NETWORK else name


def time_calls(fabric: Fabric, algorithm: str, sizes: tuple[int, ...], iterations: int) -> list[float]:
    """Seconds of an allreduce of each of ``sizes`` bytes between all hosts: the median of the slowest rank's."""
    calls = Calls(sizes, "float32", len(fabric.topology.hosts), iterations, in_place=(False,), aligned=True)
    name = algorithm_of(algorithm)
    timed = [by_name[name][0] for by_name in time_parties(fabric, calls, [name])]
    if wrong := sum(each.wrong for each in timed):
        raise TestbedError(f"{algorithm}: {wrong} elements of the sums are wrong")
    return [each.seconds for each in timed]
