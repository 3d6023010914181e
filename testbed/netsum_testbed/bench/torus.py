"""``netsum bench torus``: an allreduce by hosts that are joined directly, and what each link carries."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Final

import click
from netsum.agent.tables import table_console
from netsum.descriptor import CHAIN, HOST_ALGORITHMS, torus_sides
from netsum.peers.rings import torus_rings
from netsum_controller.errors import InputError
from netsum_planner.errors import PlanError
from netsum_planner.topologies.model import Pair
from netsum_planner.topologies.shapes import torus
from rich.console import Console

from netsum_testbed.bench.algorithms import descriptors
from netsum_testbed.bench.calls import Calls
from netsum_testbed.bench.collective import Line, time_ranks
from netsum_testbed.bench.compare import require_links
from netsum_testbed.bench.frame import algorithms_option, print_figures, sizes_option
from netsum_testbed.checking import count_option
from netsum_testbed.direct_hosts import MTU, DirectHosts
from netsum_testbed.processes import Child
from netsum_testbed.tables import make_table

RATE_MBPS: Final = 100
_PORT: Final = 12100
ONE_RING: Final = "one-ring"
"""A chain around all ranks in their order."""


@dataclass(frozen=True)
class Loads:
    """Bytes of frames on the links in a call by one algorithm."""

    algorithm: str
    line: Line
    links: dict[Pair, float]

    def arrays(self) -> list[float]:
        return sorted(nbytes / self.line.size for nbytes in self.links.values())

    def to_json(self) -> dict[str, Any]:
        arrays = self.arrays()
        return {
            "algorithm": self.algorithm,
            "size": self.line.size,
            "time_us": round(self.line.seconds[0] * 1e6, 1),
            "link_arrays": {
                "most": round(arrays[-1], 4),
                "mean": round(sum(arrays) / len(arrays), 4),
                "least": round(arrays[0], 4),
            },
            "stored_bytes": self.line.stored[0],
            "wrong": self.line.wrong[0],
            "links": {f"{one} -> {other}": round(nbytes) for (one, other), nbytes in self.links.items()},
        }


def measure(net: DirectHosts, calls: Calls, name: str, algorithm: str) -> Iterator[Loads]:
    """Make the calls by one algorithm, of each size in turn."""
    peers = tuple(f"{net.addresses[host]}:{_PORT}" for host in net.topology.hosts)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-")))
        for size in calls.sizes:
            ranks, one = [], replace(calls, sizes=(size,))
            for each in descriptors(algorithm, peers, MTU):
                file = folder / f"{each.rank}.json"
                file.write_text(each.to_json(), "utf-8")
                prefix = net.prefix(net.topology.hosts[each.rank])
                log = folder / f"rank{each.rank}.log"
                ranks.append(Child([*prefix, *one.command(), str(file)], output=log, piped=True))
                stack.callback(ranks[-1].stop)
            before = net.carried()
            ((line,),) = time_ranks(ranks, one, None)
            after = net.carried()
            made = calls.warmup + calls.iterations
            yield Loads(name, line, {ends: (after[ends] - before[ends]) / made for ends in after})


@click.command("torus")
@click.argument("sides", metavar="SIDES")
@algorithms_option((CHAIN, ONE_RING, *HOST_ALGORITHMS), "chain,one-ring,ring")
@count_option("--rate-mbps", default=RATE_MBPS, told="of links, each way", most=1000)
@sizes_option("4M", name="--size")
@count_option("--iterations", "-n", default=3, told="timed calls of each")
@count_option("--warmup", "-w", default=1, told="calls of each before them", least=0)
@click.option(
    "--scale",
    type=click.Choice(["agreed", "predicted", "float"]),
    default="predicted",
    show_default=True,
    help="of the sums; float: only by chains",
)
def bench_torus(sides: str, algorithms: tuple[str, ...], rate_mbps: int, **given: Any) -> None:
    """Measure what links carry in an allreduce of float32 by hosts in a torus, as 4x4 or 2x2x2, that forward without a switch.

    chain: the rings that use all links alike; one-ring: a chain around one ring, in the order of ranks; the others as in any job.
    The last line has "rows" in JSON, with the bytes of every link. Needs root and Mininet.
    """
    shape = torus_sides(f"{CHAIN}:{sides}")
    try:
        topology = torus(shape, 1)
    except PlanError as error:
        raise InputError(f"{sides!r}: {error}") from None
    require_links()
    calls = Calls(dtype="float32", workers=prod(shape), places=1, **given)
    console, found = Console(stderr=True), []
    with console.status("starting") as status, DirectHosts(topology, rate_mbps) as net:
        for name in algorithms:
            status.update(name)
            own = f"{CHAIN}:{sides}" if name == CHAIN else CHAIN if name == ONE_RING else name
            found += list(measure(net, calls, name, own))
    _print(topology.name, rate_mbps, found)
    rings = torus_rings(shape)
    told = {"topology": topology.name, "rate_mbps": rate_mbps, "scale": given["scale"], "rings": len(rings)}
    print_figures(told, {"rows": [each.to_json() for each in found]})


def _print(name: str, rate_mbps: int, found: Sequence[Loads]) -> None:
    shares = [f">{what}\n(arrays)" for what in ("most", "mean", "least", "stored")]
    heads = ("algorithm", ">size\n(B)", ">time\n(us)", *shares, ">#wrong")
    rows = []
    for each in found:
        arrays, line = each.arrays(), each.line
        loads = arrays[-1], sum(arrays) / len(arrays), arrays[0], line.stored[0] / line.size
        rows.append(
            (
                *(each.algorithm, str(line.size), f"{line.seconds[0] * 1e6:.0f}"),
                *(f"{load:.3f}" for load in loads),
                str(line.wrong[0]),
            )
        )
    table_console().print(make_table(f"{name}, links of {rate_mbps} Mbit/s: what each carries", heads, rows))
