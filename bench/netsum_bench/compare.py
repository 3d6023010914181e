"""An allreduce by the switch, by the host algorithms and by Gloo, on the same wires: hosts of Mininet, each with a network stack
of its own, around one switch, on links of the same rate and delay in both directions. Everything but the sums in the network is
plain traffic to that switch, but for ``gloo-bridge``.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click
from netsum.cli.tables import make_table, table_console
from netsum.descriptor import CHAIN, HOST_ALGORITHMS, MULTICAST, SWITCH
from netsum.extras import advice
from netsum.text import counted
from netsum.wire.schema import CHUNK_BYTES, MAX_CHUNKS
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.state.model import Job
from netsum_testbed.checking import comma, count_option, list_option, switch_option
from netsum_testbed.commands import without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.netns import HTB, complaint
from netsum_testbed.switches import choose_switch

from netsum_bench.cli_options import algorithms_option, sizes_option
from netsum_bench.collectives import Calls, Line, time_ranks
from netsum_bench.compare_rank import GLOO_BRIDGE, GLOOS, PARTIES

if TYPE_CHECKING:
    from netsum_testbed.mininet_fabric import MininetFabric

RING: Final = "ring"
ALGORITHMS: Final = (SWITCH, *HOST_ALGORITHMS, CHAIN, MULTICAST, *GLOOS)
PAYLOAD_SHARE: Final = CHUNK_BYTES * MAX_CHUNKS / FRAME_BYTES
"""The payload's share of the bytes on a link, in full packets."""
_MEETING_PORT: Final = 29500
RATE_MBPS: Final = 100
_MODULE: Final = "netsum_bench.compare_rank"


@dataclass(frozen=True)
class CompareRow:
    """One algorithm, number of workers and size. ``ring``: the ring's time in the same run."""

    algorithm: str
    line: Line
    ring: float | None = None

    @property
    def payload_share(self) -> float | None:
        """algbw, as a share of the payload that full packets carry on such a link; None if its rate has no limit."""
        if self.line.rate_mbps is None:
            return None
        return self.line.algbw(0) * 8000 / (self.line.rate_mbps * PAYLOAD_SHARE)

    @property
    def over_ring(self) -> float | None:
        """The ring's time, as a multiple of this algorithm's."""
        return None if self.ring is None else self.ring / self.line.seconds[0]

    def to_dict(self) -> dict[str, Any]:
        line = self.line
        found = {
            "algorithm": self.algorithm,
            "workers": line.workers,
            "size": line.size,
            "time_us": round(line.seconds[0] * 1e6, 1),
            "p99_us": round(line.percentile(0, 99) * 1e6, 1),
            "algbw_GBps": round(line.algbw(0), 6),
            "busbw_GBps": round(line.busbw(0), 6),
            "link_bytes": line.link[0],
            "sent_bytes": line.sent[0],
            "stored_bytes": line.stored[0] if self.algorithm not in GLOOS else None,
            "link_share": round(line.link_share(0) or 0.0, 4),
            "payload_share": None if self.payload_share is None else round(self.payload_share, 4),
            "wrong": line.wrong[0],
        }
        if self.over_ring is not None:
            found["over_ring"] = round(self.over_ring, 2)
        return found


def missing(algorithms: Sequence[str]) -> dict[str, str]:
    """The algorithms that cannot be measured here, and why."""
    if find_spec("torch") is None:
        return {name: f"PyTorch is not installed: {advice('torch')}" for name in GLOOS if name in algorithms}
    return {}


def require_links(rate_mbps: int = RATE_MBPS) -> None:
    """Raise TestbedError if this machine cannot make hosts and links of that rate."""
    reason = without_mininet()
    if reason is not None:
        raise TestbedError(f"the hosts of this comparison are Mininet's: {reason}; run `netsum doctor`")
    reason = complaint(HTB) if rate_mbps else None
    if reason is not None:
        raise TestbedError(f"this kernel cannot limit the rate of a link (tc with HTB): {reason}")


def compare_all(
    switch: str,
    calls: Calls,
    algorithms: Sequence[str],
    rate_mbps: int,
    delay_us: int,
    say: Callable[[str], None],
) -> Iterator[list[CompareRow]]:
    """Time each size by all algorithms, call by call in turn; ``calls.workers`` says how many ranks there are. A frame is
    in progress for ``delay_us`` on each host's link. Needs root."""
    from netsum_testbed.mininet_fabric import MininetFabric  # noqa: PLC0415 - needs Mininet

    label = f"{switch}: {counted(calls.workers, 'worker')}"
    say(f"{label}: starting")
    topology = star(calls.workers, rate_mbps=rate_mbps or None)
    with MininetFabric(topology, switch, delay_us=delay_us, bridged=GLOO_BRIDGE in algorithms) as fabric:
        hosts = tuple(fabric.topology.hosts)
        # A job's name has letters, digits and dashes.
        jobs = {
            name: fabric.create_job(JobSpec(name=name.replace("_", "-").replace(":", "-"), members=hosts, algorithm=name))
            for name in algorithms
            if name not in GLOOS
        }
        ranks = []
        for rank, host in enumerate(hosts):
            environment = {PARTIES: json.dumps(_parties(fabric, jobs, algorithms, rank))}
            ranks.append(fabric.spawn(host, calls.command(_MODULE), name=f"rank{rank}", environment=environment, piped=True))
        say(f"{label}: {calls.sizes[0]} bytes")
        for lines, following in zip(time_ranks(ranks, calls, rate_mbps or None), [*calls.sizes[1:], 0], strict=True):
            say(f"{label}: {following} bytes")
            ring = next((line.seconds[0] for name, line in zip(algorithms, lines, strict=True) if name == RING), None)
            yield [CompareRow(name, line, ring) for name, line in zip(algorithms, lines, strict=True)]


def _parties(fabric: MininetFabric, jobs: Mapping[str, Job], algorithms: Sequence[str], rank: int) -> dict[str, Any]:
    hosts = fabric.topology.hosts
    names = list(hosts)
    found: dict[str, Any] = {}
    for name in algorithms:
        if name in GLOOS:
            bridged = name == GLOO_BRIDGE
            address = fabric.bridged_ip(names[0]) if bridged else hosts[names[0]].ip
            interface = f"{names[rank]}-eth1" if bridged else fabric.interface(names[rank])
            meeting = f"{address}:{_MEETING_PORT}"
            found[name] = {"rank": rank, "ranks": len(names), "address": meeting, "interface": interface}
            continue
        variables = fabric.environment(jobs[name], rank)
        found[name] = {
            "job": variables["NETSUM_JOB"],
            "rank": rank,
            "token": variables["NETSUM_TOKEN"],
            "controller": variables["NETSUM_CONTROLLER"],
            "peer": variables["NETSUM_PEER"],
        }
    return found


# ``netsum bench compare``: the switch, the host algorithms and Gloo on the same wires.


MOST_WORKERS: Final = 16


@click.command()
@switch_option("the embedded one, which takes more packets a second")
@count_option("--rate-mbps", default=RATE_MBPS, text="of every host's link, in each direction; 0: no limit", least=0, most=1000)
@count_option("--delay-us", default=0, text="how long a frame is in flight on every link, each way", least=0, most=10**6)
@list_option("--workers", int, 1, MOST_WORKERS, "2,4,8", "ranks, each on its own host")
@sizes_option("4K,4M", name="--size")
@algorithms_option(ALGORITHMS, comma(ALGORITHMS), "what is compared")
@count_option("--iterations", "--iters", "-n", default=5, text="timed calls of each")
@count_option("--warmup", "-w", default=1, text="calls of each before them", least=0)
@click.option(
    "--scale",
    type=click.Choice(["agreed", "predicted"]),  # scale "float" is for chains alone
    default="predicted",
    show_default=True,
    help="of netsum's sums, by the switch and by hosts",
)
def compare(
    switch: str,
    rate_mbps: int,
    delay_us: int,
    workers: tuple[int, ...],
    algorithms: tuple[str, ...],
    **given: Any,
) -> None:
    """Time an allreduce of float32 by the switch, the host algorithms and Gloo, on the same wires.

    gloo-bridge is Gloo on wires of the same rate around a Linux bridge, with the kernel's offloads. The last line has "rows":
    algorithm, workers, size, time_us, link_bytes, stored_bytes (per host), wrong and more. Needs root and Mininet.
    """
    require_links(rate_mbps)
    lacking = missing(algorithms)
    for name, reason in lacking.items():
        click.echo(f"*** {name} IS NOT MEASURED: {reason} ***", err=True)
    there = [name for name in algorithms if name not in lacking]
    if not there:
        raise TestbedError("there is nothing left to compare")
    name, console = choose_switch("embedded" if switch == "auto" else switch), table_console()
    rows: list[CompareRow] = []
    before = os.getloadavg()[0]
    with console.status("starting") as status:
        for number in workers:
            calls = Calls(workers=number, dtype="float32", places=1, **given)
            for found in compare_all(name, calls, there, rate_mbps, delay_us, status.update):
                rows += found
    links = (f"links of {rate_mbps} Mbit/s" if rate_mbps else "links without a limit") + (
        f", {delay_us} us long" if delay_us else ""
    )
    table_console().print(_table(f"allreduce, {name} switch, {links}", rows))
    about = {
        "switch": name,
        "rate_mbps": rate_mbps,
        "delay_us": delay_us,
        "scale": given["scale"],
        "iterations": given["iterations"],
        "missing": lacking,
        "cores": os.cpu_count(),
        "load_before": round(before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }
    click.echo(json.dumps({"rows": [row.to_dict() for row in rows], **about}))


def _table(title: str, rows: Sequence[CompareRow]) -> Any:
    columns = "workers", ">size\n(B)", "algorithm", ">time\n(us)", ">p99\n(us)", ">algbw\n(GB/s)", ">busbw\n(GB/s)"
    more = (
        ">link\n(arrays)",
        ">sent\n(arrays)",
        ">stored\n(arrays)",
        ">of the\nlink",
        ">of its\npayload",
        ">times\nthe ring",
        ">#wrong",
    )
    cells = (
        (
            *(str(row.line.workers), str(row.line.size), row.algorithm, f"{row.line.seconds[0] * 1e6:.0f}"),
            f"{row.line.percentile(0, 99) * 1e6:.0f}",
            *(f"{row.line.algbw(0):.5f}", f"{row.line.busbw(0):.5f}"),
            *(f"{nbytes / row.line.size:.2f}" for nbytes in (row.line.link[0], row.line.sent[0])),
            "" if row.algorithm in GLOOS else f"{row.line.stored[0] / row.line.size:.2f}",
            *("" if share is None else f"{share:.1%}" for share in (row.line.link_share(0), row.payload_share)),
            "" if row.over_ring is None else f"{row.over_ring:.2f}",
            str(row.line.wrong[0]),
        )
        for row in rows
    )
    return make_table(title, (*columns, *more), cells)
