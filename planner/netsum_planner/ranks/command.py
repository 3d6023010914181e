# SPDX-License-Identifier: MIT
"""``netsum plan ranks``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click
from netsum.text import counted
from netsum_controller.cli.options import console, json_option, print_json, print_table

from netsum_planner.options import topology_options
from netsum_planner.ranks.contention import ALGORITHMS, Contention
from netsum_planner.ranks.mapping import RankMapping, map_ranks
from netsum_planner.topologies.model import Topology

# An order of ranks as other programs take it.


Order = Sequence[str]
"""The host of each rank."""


def job(order: Order, name: str, algorithm: str) -> str:
    """A job file of ``netsum job create``."""
    return f"name: {name}\nmembers: [{', '.join(order)}]\nalgorithm: {algorithm}\n"


def torchrun(order: Order) -> str:
    """A line for each host; with one process on each, its node rank is its rank."""
    common = f"--nnodes {len(order)} --nproc-per-node 1 --master-addr {order[0]} --master-port 29500"
    return "".join(f"{host}: torchrun {common} --node-rank {rank} TRAIN.py\n" for rank, host in enumerate(order))


def rankfile(order: Order) -> str:
    """``mpirun --rankfile FILE`` of Open MPI."""
    return "".join(f"rank {rank}={host} slot=0\n" for rank, host in enumerate(order))


def hostfile(order: Order) -> str:
    """``SLURM_HOSTFILE=FILE srun --distribution=arbitrary``."""
    return "".join(f"{host}\n" for host in order)


FORMATS: Final[Mapping[str, Callable[[Order, str, str], str]]] = {
    "job": job,
    "torchrun": lambda order, *_: torchrun(order),
    "rankfile": lambda order, *_: rankfile(order),
    "hostfile": lambda order, *_: hostfile(order),
}


@click.command()
@topology_options
@click.option("--algorithm", type=click.Choice(list(ALGORITHMS)), default="ring", show_default=True)
@click.option("--order", metavar="H,H...", help="The host of each rank so far. [default: as in TOPOLOGY]")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the search where no known order is best.")
@click.option("--as", "as_file", type=click.Choice(list(FORMATS)), help="Only the new order, as another program takes it.")
@json_option
def ranks(topology: Topology, algorithm: str, order: str | None, seed: int, as_file: str | None, as_json: bool) -> None:
    r"""Find the order of ranks, so that an allreduce has the least contention.

    The contention factor is the number of flows of one step that share a link, at most. Traffic takes the paths that the
    controller installs, or the file's `routes`.

    \b
    --as job       a file for `netsum job create`
    --as torchrun  a command line for each host
    --as rankfile  Open MPI: mpirun --rankfile FILE
    --as hostfile  SLURM: SLURM_HOSTFILE=FILE srun --distribution=arbitrary
    """
    if as_file and as_json:
        raise click.UsageError("--as and --json exclude each other")
    with console().status(f"{topology.name}: looking for an order for {algorithm}") as status:
        found = map_ranks(
            topology,
            algorithm,
            None if order is None else order.split(","),
            seed=seed,
            progress=lambda tried: status.update(f"{topology.name}: {counted(tried, 'swap')} tried"),
        )
    if as_json:
        print_json(found.to_json())
    elif as_file:
        click.echo(FORMATS[as_file](found.after.order, topology.name, algorithm), nl=False)
    else:
        _print(found)


def _print(found: RankMapping) -> None:
    click.echo(f"{found.topology.name}: {found.algorithm} of {counted(len(found.before.order), 'rank')}")
    print_table(
        ("ORDER", "CONTENTION", "ON", "LARGEST LOAD\narrays", "ON", "GB/s"),
        [_row("before", found.before), _row("after", found.after)],
    )
    factor = f"{float(found.least.factor):g}"
    if found.best:
        click.echo(f"no order has less: {found.least.why} has {factor}")
    else:
        click.echo(f"the best that was found; the bound is {factor}, by {found.least.why}")
    click.echo(f"order: {','.join(found.after.order)}")


def _row(name: str, found: Contention) -> tuple[str, ...]:
    return (
        name,
        f"{float(found.factor):g}",
        " -> ".join(found.link),
        f"{float(found.load):.2f}",
        " -> ".join(found.loaded),
        f"{float(found.rate):.2f}",
    )
