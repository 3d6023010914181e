# SPDX-License-Identifier: MIT
"""``netsum bench compare``: an allreduce by the switch, by the host algorithms and by Gloo, on the same wires.

Hosts are Mininet's, each with a network stack of its own, around one switch, on links of the same rate and delay in both
directions. Everything but the sums in the network is plain traffic to that switch, but for ``gloo-bridge``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from netsum.cli.tables import table_console
from netsum.descriptor import CHAIN, HOST_ALGORITHMS, MULTICAST, SWITCH
from netsum.extras import advice
from netsum.text import counted, format_size
from netsum_controller.config.topologies import star
from netsum_planner.options import figure, plot_option
from netsum_testbed.checking import count_option, list_option, switch_option
from netsum_testbed.commands import without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.netns import HTB, complaint
from netsum_testbed.switches import choose_switch

from netsum_bench.cli_options import machine, names_option, print_figures, sizes_option
from netsum_bench.harness import GLOO_BRIDGE, GLOOS, Calls, Measured, results_table, time_parties

if TYPE_CHECKING:
    from netsum_testbed.mininet_fabric import MininetFabric

RING: Final = "ring"
ALGORITHMS: Final = (SWITCH, *HOST_ALGORITHMS, CHAIN, MULTICAST, *GLOOS)
_MEETING_PORT: Final = 29500


def figures(algorithm: str, measured: Measured, ring: Measured | None = None) -> dict[str, Any]:
    """The row of one algorithm, number of workers and size. ``ring``: the ring in the same run."""
    share = measured.payload_share
    found = {
        "algorithm": algorithm,
        "workers": measured.calls.workers,
        "size": measured.size,
        "time_us": round(measured.seconds * 1e6, 1),
        "p99_us": round(measured.percentile(99) * 1e6, 1),
        "algbw_GBps": round(measured.algbw, 6),
        "busbw_GBps": round(measured.busbw, 6),
        "link_bytes": measured.link_bytes,
        "sent_bytes": measured.most("sent"),
        "stored_bytes": measured.most("stored") if algorithm not in GLOOS else None,
        "link_share": round(measured.link_share or 0.0, 4),
        "payload_share": None if share is None else round(share, 4),
        "wrong": measured.wrong,
    }
    if ring is not None:
        found["over_ring"] = round(ring.seconds / measured.seconds, 2)
    return found


def missing(algorithms: Sequence[str]) -> dict[str, str]:
    """The algorithms that cannot be measured here, and why."""
    if find_spec("torch") is None:
        return {name: f"PyTorch is not installed: {advice('torch')}" for name in GLOOS if name in algorithms}
    return {}


def draw(path: Path, found: Mapping[str, Any]) -> None:
    """Draw the time of a call over the number of workers, a panel for each rate and size; ``found`` is a last line."""
    rows = [row for row in found["rows"] if not row["wrong"]]
    panels = list(dict.fromkeys((row["rate_mbps"], row["size"]) for row in rows))
    with figure(path, max(2, len(panels)), width=3.6, height=3.4) as axes:
        for panel in axes[len(panels) :]:
            panel.axis("off")
        for panel, (rate, size) in zip(axes, panels, strict=False):
            shown = [row for row in rows if (row["rate_mbps"], row["size"]) == (rate, size)]
            for name in dict.fromkeys(row["algorithm"] for row in shown):
                points = sorted((row["workers"], row["time_us"] / 1e3) for row in shown if row["algorithm"] == name)
                panel.plot(*zip(*points, strict=True), marker="o", label=name)
            panel.set(
                title=f"{format_size(size)}, {links_text(rate)}", xlabel="workers", ylabel="time of a call, ms", ylim=(0, None)
            )
            panel.set_xticks(sorted({row["workers"] for row in shown}))
            panel.legend()
        axes[0].figure.suptitle(
            f"allreduce of float32, {found['switch']} switch; {found['date']}, {found['cores']} cores, Python {found['python']}"
        )


def links_text(rate_mbps: int, delay_us: int = 0) -> str:
    """The links in words."""
    rate = f"links of {rate_mbps} Mbit/s" if rate_mbps else "links without a limit"
    return f"{rate}, {delay_us} us long" if delay_us else rate


def require_links(rate_mbps: int) -> None:
    """Raise TestbedError if this machine cannot make hosts and links of that rate."""
    reason = without_mininet()
    if reason is not None:
        raise TestbedError(f"the hosts of this comparison are Mininet's: {reason}; run `netsum doctor`")
    reason = complaint(HTB) if rate_mbps else None
    if reason is not None:
        raise TestbedError(f"this kernel cannot limit the rate of a link (tc with HTB): {reason}")


def gloo_parties(fabric: MininetFabric, algorithms: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """What each rank needs for Gloo on its own links, and on those to the bridge, as far as they are among the algorithms."""
    hosts = list(fabric.topology.hosts)
    found = {}
    for name in [name for name in GLOOS if name in algorithms]:
        bridged = name == GLOO_BRIDGE
        first = fabric.bridged_ip(hosts[0]) if bridged else fabric.topology.hosts[hosts[0]].ip
        meeting = {"ranks": len(hosts), "address": f"{first}:{_MEETING_PORT}"}
        interfaces = (f"{host}-eth1" if bridged else fabric.interface(host) for host in hosts)
        found[name] = [{**meeting, "rank": rank, "interface": interface} for rank, interface in enumerate(interfaces)]
    return found


@click.command()
@switch_option("the embedded one, which takes more packets a second")
@list_option("--rate-mbps", int, 0, 1000, "100", "of every host's link, in each direction; 0: no limit")
@count_option("--delay-us", default=0, text="how long a frame is in flight on every link, each way", least=0, most=10**6)
@list_option("--workers", int, 1, 16, "2,4,8", "ranks, each on its own host")
@sizes_option("4K,4M", name="--size")
@names_option("--algorithms", ALGORITHMS, "what is compared")
@count_option("--iterations", "--iters", "-n", default=5, text="timed calls of each")
@click.option(
    "--scale",
    type=click.Choice(["agreed", "predicted"]),  # scale "float" is for chains alone
    default="predicted",
    show_default=True,
    help="of netsum's sums, by the switch and by hosts",
)
@plot_option
def compare(
    switch: str,
    rate_mbps: tuple[int, ...],
    delay_us: int,
    workers: tuple[int, ...],
    algorithms: tuple[str, ...],
    plot: Path | None,
    **given: Any,
) -> None:
    """Time an allreduce of float32 by the switch, the host algorithms and Gloo, on the same wires.

    gloo-bridge is Gloo on wires of the same rate around a Linux bridge, with the kernel's offloads. The last line has "rows":
    rate_mbps, algorithm, workers, size, time_us, link_bytes, stored_bytes (per host), wrong and more. Needs root and Mininet.
    """
    require_links(max(rate_mbps))
    from netsum_testbed.mininet_fabric import MininetFabric  # noqa: PLC0415 - needs Mininet

    lacking = missing(algorithms)
    for name, reason in lacking.items():
        click.echo(f"*** {name} IS NOT MEASURED: {reason} ***", err=True)
    there = [name for name in algorithms if name not in lacking]
    if not there:
        raise TestbedError("there is nothing left to compare")
    name, console = choose_switch("embedded" if switch == "auto" else switch), table_console()
    found: list[dict[str, Any]] = []
    before = os.getloadavg()[0]
    for rate in rate_mbps:
        rows: list[tuple[str, Measured]] = []
        with console.status("starting") as status:
            for number in workers:
                calls = Calls(workers=number, dtype="float32", in_place=(True,), aligned=True, at_interfaces=True, **given)
                label = f"{name}: {counted(number, 'worker')}, {links_text(rate)}"
                status.update(f"{label}: starting")
                topology = star(number, rate_mbps=rate or None)
                with MininetFabric(topology, name, delay_us=delay_us, bridged=GLOO_BRIDGE in there) as fabric:
                    for places in time_parties(fabric, calls, there, gloo_parties(fabric, there)):
                        by_name = {each: measured for each, (measured,) in places.items()}
                        rows += by_name.items()
                        of_rate = [figures(each, measured, by_name.get(RING)) for each, measured in by_name.items()]
                        found += [{"rate_mbps": rate, **row} for row in of_rate]
                        status.update(f"{label}: {found[-1]['size']} bytes are timed")
        console.print(results_table(f"allreduce, {name} switch, {links_text(rate, delay_us)}", "algorithm", rows))
    about = {
        "switch": name,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "rate_mbps": rate_mbps,
        "delay_us": delay_us,
        "scale": given["scale"],
        "iterations": given["iterations"],
        "missing": lacking,
        "load_before": round(before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        **machine(),
    }
    print_figures({"rows": found}, about)  # first: a picture that cannot be written must not cost them
    if plot is not None:
        draw(plot, {"rows": found, **about})
