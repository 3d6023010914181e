# SPDX-License-Identifier: MIT
"""Options that the planner's commands share: the argument TOPOLOGY, and what is changed in it; and options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click
from netsum.extras import advice
from netsum_controller.errors import InputError

from netsum_planner.topologies.files import read_topology
from netsum_planner.topologies.model import Pair, Topology
from netsum_planner.training.job import Machine, read_machine

# matplotlib, which is an extra: imported where something is drawn.


@contextmanager
def figure(path: Path, panels: int = 1, *, width: float = 7.0, height: float = 4.2) -> Iterator[Any]:
    """The axes of a new figure, a list if there are several ``panels`` side by side, which is written to ``path`` (.png, .svg,
    .pdf) when the block ends. :class:`InputError` if matplotlib is missing or cannot write there."""
    try:
        import matplotlib as mpl  # noqa: PLC0415

        mpl.use("Agg")
        from matplotlib import pyplot as plt  # noqa: PLC0415
    except ImportError:
        raise InputError(f"--plot needs matplotlib: {advice('plot')}") from None
    drawn, axes = plt.subplots(1, panels, figsize=(width * panels, height), layout="constrained")
    try:
        yield axes
        drawn.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise InputError(f"--plot {path}: {error}") from None
    finally:
        plt.close(drawn)


def _read_machine(_context: click.Context, _option: click.Parameter, path: Path | None) -> Machine:
    return Machine() if path is None else read_machine(path)


machine_option = click.option(
    "--machine",
    callback=_read_machine,
    type=click.Path(path_type=Path),
    metavar="JSON",
    help="What `netsum predict calibrate` found. [default: 1000 GFLOP/s]",
)
plot_option = click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it (.png, .svg, .pdf).")


def topology_options(command: Any) -> Any:
    """The argument TOPOLOGY, and what is changed in it; the command gets ``topology``."""

    @wraps(command)
    def left(_: Topology, topology: Topology, **more: Any) -> Any:
        return command(topology, **more)

    return whole_and_left(left)


def whole_and_left(command: Any) -> Any:
    """The same; the command gets the topology as it was before parts of it went down, and what is left."""

    @wraps(command)
    def read(file: Path, hosts: str | None, down: tuple[str, ...], rate: float | None, boxes: int, **more: Any) -> Any:
        whole = read_topology(file, rate_mbps=rate, boxes=boxes)
        left = whole.without([_part(whole, each) for each in down]) if down else whole
        if hosts is not None:
            whole, left = (each.subset(hosts.split(",")) for each in (whole, left))
        return command(whole, left, **more)

    for option in (
        click.argument("file", metavar="TOPOLOGY", type=click.Path(path_type=Path)),
        click.option("--hosts", metavar="H,H...", help="Only these hosts take part, and no other forwards."),
        click.option("--down", multiple=True, metavar="NODE|NODE,NODE", help="A node or a link that is down; repeatable."),
        click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="MBPS", help="Rate of links without one."),
        click.option("--boxes", type=click.IntRange(1), default=1, help="How many of the box in TACCL's JSON."),
    ):
        read = option(read)
    return read


def _part(topology: Topology, text: str) -> str | Pair:
    one, comma, other = text.partition(",")
    if not comma and one not in topology.nodes:
        raise InputError(f"--down {text}: {topology.name} has no node {one}; a link is written NODE,NODE")
    return (one, other) if comma else one
