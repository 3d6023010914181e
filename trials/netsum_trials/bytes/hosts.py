"""Bytes of each collective, measured at the hosts, next to the formulas.

Through a switch, packets are sent again when they seem lost. Without a switch, all bytes of the members' messages are counted:
payload, 14 bytes per row, message headers, acknowledgments, the agreement, and a barrier after each call, since a rank that has
its results may still have something to send.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from netsum.communicator import Communicator

from netsum_trials.bytes.costs import COSTS, Place, between_hosts, headers

RANKS: Final = 4
SIZE: Final = 1 << 18
"""S, in bytes."""


@dataclass(frozen=True)
class Bytes:
    """The bytes that the formula expects, headers included, and those that were measured."""

    formula: str
    expected: int
    measured: int


@dataclass(frozen=True)
class Volume:
    """What one rank (the first of those that ``who`` names) sent and received in one call. ``again``: packets sent again."""

    collective: str
    who: str
    sent: Bytes
    received: Bytes
    again: int


@dataclass(frozen=True)
class HostVolume(Bytes):
    """What all ranks sent in one call, without a switch. ``again``: messages sent again."""

    collective: str
    again: int


def measure(communicators: Sequence[Communicator], size: int = SIZE) -> list[Volume]:
    """Make each call once, of ``size`` bytes of float32 per rank, in a job without faults."""
    n, block_bytes = len(communicators), communicators[0].descriptor.block_bytes
    volumes: list[Volume] = []
    count(communicators, "allreduce", size)  # the round-trip time is known from here on
    for cost in COSTS:
        counted, more = count(communicators, cost.collective, size), headers(cost, n, size, block_bytes)
        for (who, formulas), moved in zip(cost.ranks.items(), counted, strict=False):
            sent, received = (
                Bytes(formula.words, int(formula.share(Place(n)) * size) + more, octets)
                for formula, octets in zip(formulas, moved, strict=False)
            )
            volumes.append(Volume(cost.collective, who, sent, received, moved[2]))
    return volumes


def measure_without(communicators: Sequence[Communicator], size: int = SIZE) -> list[HostVolume]:
    """The same in a job whose members combine themselves."""
    algorithm, n = communicators[0].descriptor.algorithm, len(communicators)
    count(communicators, "allreduce", size, settle=Communicator.barrier)  # the round-trip time is known from here on
    volumes = []
    for cost in COSTS:
        counted = count(communicators, cost.collective, size, settle=Communicator.barrier)
        words, least = between_hosts(cost, algorithm, n, size)
        sent, again = (sum(each[which] for each in counted) for which in (0, 2))
        volumes.append(HostVolume(words, least, sent, cost.collective, again))
    return volumes


def count(
    communicators: Sequence[Communicator], name: str, size: int, settle: Callable[[Communicator], None] = lambda _: None
) -> list[tuple[int, int, int]]:
    """Bytes that each rank sent and received in one call, and packets that it retransmitted; the root is rank 0.
    ``settle(comm)`` is called between the call and the counting."""

    def counts(comm: Communicator) -> Any:
        stats = comm.stats
        return np.array([stats.bytes_sent, stats.bytes_received, stats.retransmissions])

    def make(comm: Communicator) -> tuple[int, int, int]:
        before = counts(comm)
        make_call(comm, name, size)
        settle(comm)
        sent, received, again = (counts(comm) - before).tolist()
        return sent, received, again

    return on_all(communicators, make)


def on_all(communicators: Sequence[Communicator], make: Callable[[Communicator], Any]) -> list[Any]:
    """Do something on every rank, at the same time."""
    with ThreadPoolExecutor(len(communicators)) as pool:
        return list(pool.map(make, communicators))


def make_call(comm: Communicator, name: str, size: int) -> None:
    """Make one rank's part of a call of ``size`` bytes of float32 per rank (scatter: at the root); a sum's result is checked."""
    number = size // 4 // (comm.size if name == "scatter" and comm.rank else 1)
    given = np.full(number, comm.rank + 1, np.float32)
    collective, _, how = name.partition(" ")
    options = {"bits": int(how.removeprefix("bits="))} if how.startswith("bits=") else {}
    if how == "half zeros":
        given[: number // 2] = 0
    result = getattr(comm, collective)(*([] if name == "barrier" else [given]), **options)
    if name == "allreduce" and not (result == comm.size * (comm.size + 1) / 2).all():
        raise AssertionError(f"rank {comm.rank}: the sum is wrong")
