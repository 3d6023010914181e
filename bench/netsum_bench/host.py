# SPDX-License-Identifier: MIT
"""A host's processor time for a block: the library's with the kernel's share, and that of the kernel alone.

A rank is a process on a host of its own. Some hosts send raw frames from the fabric's namespace; others are moved to a namespace
of their own, where they have an address, and send by the kernel's UDP.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, NamedTuple

import click
import numpy as np
from netsum.cli.tables import make_table, table_console
from netsum.transports.mmsg import MessageArray
from netsum_controller.config.topologies import star
from netsum_controller.config.topology import Topology
from netsum_testbed.checking import count_option, list_option, names_of
from netsum_testbed.fabrics import NamespaceFabric
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.netns import run_command

from netsum_bench.cli_options import every_switch, print_figures, require_root, size_option
from netsum_bench.harness import Calls, Measured, time_collective
from netsum_bench.traffic_generator import bare_wires, open_wire

TRANSPORTS: Final = ("packet", "udp")
FIGURES: Final = ("us_per_block", "small_call_us", "MBps")
SMALL: Final = 4096
"""Bytes of a small call."""
SMALL_CALLS: Final = 20
"""Small calls for each large one."""
_BATCH: Final = 32
_ROUNDS: Final = 400


class HostFigures(NamedTuple):
    """Medians over ranks and calls of one job. The processor time is that of a rank's process, the kernel's part included;
    MB/s are those of the array."""

    switch: str
    transport: str
    workers: int
    us_per_block: float
    small_call_us: float
    MBps: float
    wrong: int


class HostFabric(NamespaceFabric):
    """A star in which every other host has an IP stack of its own."""

    def __init__(self, topology: Topology, switch: str) -> None:
        super().__init__(topology, switch)
        self._own: dict[str, str] = {}  # host: its namespace

    def hosts_of(self, transport: str) -> list[str]:
        return list(self.topology.hosts)[TRANSPORTS.index(transport) :: len(TRANSPORTS)]

    def _start_switches(self) -> None:
        super()._start_switches()
        for host in self.hosts_of("udp"):
            self._move(host)

    def _move(self, host: str) -> None:
        """Give a host's interface a namespace and addresses, and tell it where the switch is."""
        place, interface = self.topology.hosts[host], self.interface(host)
        switch = self.topology.switches[place.switch]
        name = self._own[host] = f"{self._namespace.name}-{host}"
        run_command("ip", "netns", "add", name)
        self._stack.callback(run_command, "ip", "netns", "delete", name)
        run_command("ip", "-n", self._namespace.name, "link", "set", interface, "netns", name)
        run_command("ip", "-n", name, "link", "set", interface, "address", str(place.mac))
        run_command("ip", "-n", name, "address", "add", f"{place.ip}/8", "dev", interface)
        run_command("ip", "-n", name, "link", "set", interface, "up")
        run_command("ip", "-n", name, "neighbor", "add", str(switch.ip), "lladdr", str(switch.mac), "dev", interface)

    def prefix(self, host: str) -> Sequence[str]:
        return ("ip", "netns", "exec", self._own[host]) if host in self._own else super().prefix(host)

    def client_link(self, host: str) -> Mapping[str, str]:
        return {"kind": "udp"} if host in self._own else super().client_link(host)

    def time(self, transport: str, calls: Calls) -> Measured:
        """Time calls of one size over this transport."""
        ((measured,),) = time_collective(self, calls, self.hosts_of(transport))
        return measured


def measure_hosts(
    switch: str, workers: Sequence[int], size: int, calls: int, say: Callable[[str], None]
) -> Iterator[HostFigures]:
    """Time every number of workers over every transport; ``say`` is told what is being timed. Needs root."""
    with HostFabric(star(2 * max(workers)), switch) as fabric:
        for number in workers:
            large = Calls((size,), "float32", number, calls, in_place=(False,), check=1)
            small = replace(large, sizes=(SMALL,), iterations=calls * SMALL_CALLS, scale="predicted", warmup=3)
            for transport in TRANSPORTS:
                say(f"{switch}: {number} over {transport}")
                one, other = (fabric.time(transport, each) for each in (large, small))
                yield HostFigures(
                    switch=switch,
                    transport=transport,
                    workers=number,
                    us_per_block=round(_median_cpu_us(one) / one.most("blocks"), 1),
                    small_call_us=round(_median_cpu_us(other), 1),
                    MBps=round(one.size / one.seconds / 1e6, 1),
                    wrong=one.wrong + other.wrong,
                )


def _median_cpu_us(measured: Measured) -> float:
    """Processor time of a call."""
    return statistics.median(seconds for timing in measured.timings for seconds in timing.cpu) * 1e6


def kernel_us(transport: str) -> float:
    """Processor microseconds of the kernel to send a frame and to receive one, many by a system call. Needs root."""
    with bare_wires(rootless=transport == "udp", number=1) as wires, ExitStack() as undo:
        here = undo.enter_context(wires.inside(lambda: open_wire(wires.ends[0], 0)))
        there = undo.enter_context(wires.inside(lambda: open_wire(wires.hosts[0])))
        out = MessageArray(np.full((_BATCH, FRAME_BYTES), 2, np.uint8))
        into = MessageArray(np.zeros((_BATCH, FRAME_BYTES), np.uint8))
        frames, busy = 0, time.thread_time()
        for _ in range(_ROUNDS):
            out.send_all(here, _BATCH)
            frames += into.receive(there, socket.MSG_DONTWAIT)
        return (time.thread_time() - busy) / frames * 1e6


def host_table(figures: Sequence[HostFigures], kernel: dict[str, float]) -> Any:
    """One line a job."""
    rows = [
        (
            *(each.switch, each.transport, str(each.workers), f"{each.us_per_block:.1f}"),
            *(f"{kernel[each.transport]:.1f}", f"{each.small_call_us:.0f}", f"{each.MBps:.1f}"),
        )
        for each in figures
    ]
    columns = ("switch", "link", ">workers", ">block\nus", ">kernel\nus", ">small call\nus", ">MB/s")
    return make_table("processor time of a host: medians", columns, rows)


def host_json(figures: Sequence[HostFigures], kernel: dict[str, float]) -> dict[str, Any]:
    """Each figure by transport, switch and number of workers."""
    found: dict[str, Any] = {name: {transport: {} for transport in TRANSPORTS} for name in FIGURES}
    for each in figures:
        for name in FIGURES:
            found[name][each.transport].setdefault(each.switch, {})[str(each.workers)] = getattr(each, name)
    wrong = sum(each.wrong for each in figures)
    return {**found, "kernel_us_per_block": {name: round(us, 2) for name, us in kernel.items()}, "wrong": wrong}


@click.command()
@every_switch
@list_option("--workers", int, 1, 8, "1,2,4,8", "ranks")
@size_option("4M")
@count_option("--calls", default=25, text="of an array of that size; there are twenty times as many small ones")
def host(switch: str, workers: tuple[int, ...], size: int, calls: int) -> None:
    """Time what the library costs a host: processor time of a block and of a small call.

    Needs root: over raw frames, and over the kernel's UDP.
    """
    require_root("this bench makes network namespaces")
    console = table_console()
    found: list[HostFigures] = []
    with console.status("without a switch") as status:
        kernel = {transport: kernel_us(transport) for transport in TRANSPORTS}
        for name in names_of(switch):
            found += measure_hosts(name, workers, size, calls, status.update)
    console.print(host_table(found, kernel))
    print_figures(host_json(found, kernel), {"size": size})
