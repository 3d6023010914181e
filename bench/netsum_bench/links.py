# SPDX-License-Identifier: MIT
"""``netsum bench links``: what each link of a testbed carries, in a file that `netsum plan` reads.
Every host sends a TCP stream to another one, all at the same time, and every link counts the bytes of its frames. Then each sends
to the one after that, until each has sent to every other. A link's rate is the most that it has carried in a turn: rounds of
turns are repeated until one finds no link that is faster, since a busy machine holds streams up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
from netsum.cli.tables import make_table, table_console
from netsum_controller.config.topology import load_topology
from netsum_planner.topologies.files import exact, installed, to_yaml
from netsum_planner.topologies.model import Pair, Topology
from netsum_testbed.checking import switch_option
from netsum_testbed.commands import open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from rich.console import Console

from netsum_bench.cli_options import file_option, print_figures

ROUNDS: Final = 5
"""At most."""
FASTER: Final = 1.02
"""By less than this factor no link is faster: rates are written with two digits."""


@contextmanager
def stream(fabric: Fabric, sender: str, receiver: str) -> Iterator[None]:
    """A TCP stream between two hosts, each end a process, which carries bytes as long as the context lasts."""
    command = [sys.executable, "-m", "netsum_bench.stream", str(fabric.topology.hosts[receiver].ip)]
    with ExitStack() as undo:
        there = fabric.spawn(receiver, command, name=f"to-{receiver}", piped=True)
        undo.callback(there.stop)
        if not there.stdout.readline():
            raise TestbedError(f"nothing receives TCP: {there.last_words(1)}")
        here = fabric.spawn(sender, [*command, "send"], name=f"from-{sender}")
        undo.callback(here.stop)
        if not there.stdout.readline():
            raise TestbedError(f"nothing arrives by TCP: {here.last_words(1)}")
        yield


def read_links(fabric: Fabric) -> dict[Pair, tuple[int, float]]:
    """Bytes of frames that each link had carried at a moment of the monotonic clock: by the counter of the port at which it comes
    in, on a switch the P4 program's, on a host its interface's."""
    found: dict[Pair, tuple[int, float]] = {}
    topology, context = fabric.controller.topology, fabric.controller.context
    for switch in topology.switches:
        hosts = {host.port: name for name, host in topology.hosts_of(switch).items()}
        ends = hosts | {port: other.switch for port, other in topology.neighbors(switch).items()}
        with context.client(switch) as client:
            for port, counts in client.read_ports(ends).items():
                found[ends[port], switch] = counts.bytes, time.monotonic()
    for name, host in topology.hosts.items():
        end, _ = fabric.link_ends(name)
        shown = subprocess.run(
            [*end.prefix, "ip", "-s", "-j", "link", "show", "dev", end.interface],
            check=True,
            capture_output=True,
        ).stdout
        found[host.switch, name] = json.loads(shown)[0]["stats64"]["rx"]["bytes"], time.monotonic()
    return found


def measure_links(fabric: Fabric, seconds: float, progress: Callable[[str], object]) -> dict[Pair, float]:
    """Bytes per second that each link carried at most, in rounds of turns of ``seconds`` each."""
    found: dict[Pair, float] = {}
    for number in range(1, ROUNDS + 1):
        before = dict(found)
        progress(f"round {number}")
        _measure_round(fabric, seconds, found)
        if before and all(rate <= FASTER * before[link] for link, rate in found.items()):
            break
    return found


def _measure_round(fabric: Fabric, seconds: float, found: dict[Pair, float]) -> None:
    """Raise what is ``found`` to what links carried in turns, one fewer than there are hosts."""
    hosts = list(fabric.topology.hosts)
    for distance in range(1, len(hosts)):
        with ExitStack() as streams:
            for sender, receiver in zip(hosts, hosts[distance:] + hosts[:distance], strict=True):
                streams.enter_context(stream(fabric, sender, receiver))
            before = read_links(fabric)
            time.sleep(seconds)
            after = read_links(fabric)
        for link, (nbytes, moment) in after.items():
            rate = (nbytes - before[link][0]) / (moment - before[link][1])
            found[link] = max(found.get(link, 0.0), rate)


def measured(topology: Topology, carried: dict[Pair, float]) -> Topology:
    """The topology with the rates that its links had, to two digits: more would be noise, and would make its optimum an odd
    fraction. :class:`TestbedError` if a link carried nothing."""
    if idle := [f"{one} -> {other}" for (one, other), rate in carried.items() if rate <= 0]:
        raise TestbedError(f"no path of a stream takes {', '.join(idle)}: their rates cannot be measured")
    links = (replace(each, rate=exact(float(f"{carried[each.source, each.target] / 1e9:.2g}"))) for each in topology.links)
    return replace(topology, links=tuple(links))


@click.command("links")
@click.argument("file", metavar="TOPOLOGY", type=click.Path(path_type=Path))
@switch_option()
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="of each turn")
@file_option("-o", "--output", text="write the topology with these rates, for `netsum plan`")
def bench_links(file: Path, switch: str, seconds: float, output: Path | None) -> None:
    """Measure what each link carries, in both directions, and write it as a topology for `netsum plan`.

    In Mininet. TOPOLOGY is a file of the controller's (`netsum topology make`), whose rates its links are made with; a link that
    has none is as fast as this machine. One that the hosts together cannot fill has the rate that they reached.
    """
    topology = load_topology(file)
    if len(topology.hosts) < 2:
        raise TestbedError(f"{file}: a stream needs two hosts")
    if (reason := without_mininet()) is not None:
        raise TestbedError(f"{reason}, and this bench needs Mininet: its hosts connect to each other over the switches")
    console = Console(stderr=True)
    with console.status("starting") as status, open_topology(topology, switch, None, console) as fabric:
        carried = measure_links(fabric, seconds, status.update)
    found = measured(installed(topology, 1), carried)
    if output is not None:
        output.write_text(to_yaml(found), "utf-8")
    mbps = {f"{one} -> {other}": rate * 8 / 1e6 for (one, other), rate in carried.items()}
    rows = [(link, f"{rate:.2f}") for link, rate in mbps.items()]
    table_console().print(make_table(f"links of {topology.name}", ("link", ">Mbit/s"), rows))
    print_figures({"topology": topology.name, "seconds": seconds, "mbps": {link: round(rate, 3) for link, rate in mbps.items()}})
