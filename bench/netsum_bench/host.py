"""A host's processor time for a block: the library's with the kernel's share, and that of the kernel alone.

A rank is a process on a host of its own. Some hosts send raw frames from the fabric's namespace; others are moved to a namespace
of their own, where they have an address, and send by the kernel's UDP.
"""

from __future__ import annotations

import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click
import numpy as np
from netsum.cli.tables import make_table, table_console
from netsum.descriptor import SWITCH
from netsum.transports.mmsg import MessageArray
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.config.topology import Topology
from netsum_testbed.checking import comma, count_option, list_option, names_of
from netsum_testbed.fabrics import NamespaceFabric
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.netns import NetworkNamespace, run_command
from netsum_testbed.processes import Child, said_by

from netsum_bench.cli_options import every_switch, print_figures, require_root, sizes_option

TRANSPORTS: Final = ("packet", "udp")
FIGURES: Final = ("us_per_block", "small_call_us", "MBps")
MOST: Final = 8
"""Ranks of a job."""
_BATCH: Final = 32
_ROUNDS: Final = 400
_ETH_P_ALL: Final = 3


@dataclass(frozen=True)
class HostPlan:
    """``turns`` times ``calls`` allreduces of ``size`` bytes of float32, and many small ones, with each number of workers."""

    workers: Sequence[int] = (1, 2, 4, 8)
    size: int = 4 << 20
    calls: int = 5
    turns: int = 5


@dataclass(frozen=True)
class HostFigures:
    """Medians over ranks and turns of one job."""

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

    @contextmanager
    def ranks(self, transport: str, workers: int, command: Sequence[str]) -> Iterator[list[Child]]:
        """A job's ranks as processes, over this transport."""
        hosts = self.hosts_of(transport)[:workers]
        job = self.create_job(JobSpec(name=f"{transport}{workers}", members=tuple(hosts), algorithm=SWITCH))
        ranks = self.spawn_ranks(job, command, name=f"{job.name}.")
        try:
            yield ranks
        finally:
            for child in ranks:
                child.stop()
            self.delete_job(job.name)


def measure_hosts(switch: str, plan: HostPlan, say: Callable[[str], None]) -> Iterator[HostFigures]:
    """Time every number of workers over every transport; ``say`` is told what is being timed. Needs root."""
    command = [sys.executable, "-m", "netsum_bench.host_rank", *map(str, (plan.size, plan.calls, plan.turns))]
    with HostFabric(star(2 * max(plan.workers)), switch) as fabric:
        for workers in plan.workers:
            for transport in TRANSPORTS:
                say(f"{switch}: {workers} over {transport}")
                with fabric.ranks(transport, workers, command) as ranks:
                    yield HostFigures(switch, transport, workers, **_medians(ranks))


def _medians(ranks: Sequence[Child]) -> dict[str, Any]:
    found = said_by(ranks)
    for rank in ranks:
        rank.wait()
    medians = {name: round(statistics.median(each for of in found for each in of[name]), 1) for name in FIGURES}
    return {**medians, "wrong": sum(of["wrong"] for of in found)}


def kernel_us(transport: str) -> float:
    """Processor microseconds of the kernel to send a frame and to receive one, many by a system call. Needs root."""
    with ExitStack() as undo:
        if transport == "udp":
            there = undo.enter_context(closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            here = undo.enter_context(closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            there.bind(("127.0.0.1", 0))
            here.connect(there.getsockname())
        else:
            namespace = undo.enter_context(closing(NetworkNamespace([("one", "other")], 9500)))
            here, there = (namespace.call(partial(_raw, end)) for end in ("one", "other"))
            undo.callback(here.close)
            undo.callback(there.close)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        out = MessageArray(np.full((_BATCH, FRAME_BYTES), 2, np.uint8))
        into = MessageArray(np.zeros((_BATCH, FRAME_BYTES), np.uint8))
        frames, busy = 0, time.thread_time()
        for _ in range(_ROUNDS):
            out.send_all(here, _BATCH)
            frames += into.receive(there, socket.MSG_DONTWAIT)
        return (time.thread_time() - busy) / frames * 1e6


def _raw(interface: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((interface, _ETH_P_ALL if interface == "other" else 0))
    return sock


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
@list_option("--workers", int, 1, MOST, comma(HostPlan.workers), "ranks")
@sizes_option("4M", "of the array; the first counts")
@count_option("--calls", default=HostPlan.calls, text="of a turn")
@count_option("--turns", default=HostPlan.turns, text="of everything")
def host(switch: str, sizes: Sequence[int], **given: Any) -> None:
    """Time what the library costs a host: processor time of a block and of a small call.

    Needs root: over raw frames, and over the kernel's UDP.
    """
    require_root("this bench makes network namespaces")
    plan, console = HostPlan(size=sizes[0], **given), table_console()
    found: list[HostFigures] = []
    with console.status("without a switch") as status:
        kernel = {transport: kernel_us(transport) for transport in TRANSPORTS}
        for name in names_of(switch):
            found += measure_hosts(name, plan, status.update)
    console.print(host_table(found, kernel))
    print_figures(host_json(found, kernel), {"size": plan.size})
