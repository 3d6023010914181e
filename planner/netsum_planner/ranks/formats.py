"""An order of ranks as other programs take it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

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
