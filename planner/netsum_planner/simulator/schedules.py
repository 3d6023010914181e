# SPDX-License-Identifier: MIT
"""Schedules: messages with what they wait for.

A message is transmitted once everything that it waits for has arrived and the messages that were ready before it in its lane have
left: a lane is a connection, which carries one after the other. What takes time but no network (a rank computes, or comes late)
is a message of no bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from netsum.peers.wire import LONGEST
from netsum_controller.errors import InputError

from netsum_planner.simulator.network import Numbers, SimulatedNetwork, Wire
from netsum_planner.topologies.model import Topology

MOST: Final = 100_000
"""Messages of a call that are simulated one by one."""


Way = Callable[[], Numbers]
"""Finds the links of a message anew, around what is down."""


@dataclass
class Messages:
    """One list per column, one entry per message. ``route`` is the number of its way (-1: it takes none), ``pause`` the seconds
    from its last byte's leaving to its arrival, ``cap`` the most bytes a second, ``waits`` what must have arrived before."""

    size: list[float] = field(default_factory=list)
    route: list[int] = field(default_factory=list)
    pause: list[float] = field(default_factory=list)
    cap: list[float] = field(default_factory=list)
    lane: list[int] = field(default_factory=list)
    waits: list[Sequence[int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.size)


class Schedule:
    """The messages of all jobs, and the ``ways`` that they take."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.messages = Messages()
        self.ways: list[Way] = []
        self._routes: dict[tuple[object, ...], int] = {}
        self._lanes: dict[tuple[object, ...], int] = {}
        self.ends: dict[int, tuple[str, str]] = {}
        """The hosts that a message is from and to, of those between two hosts."""
        self.owners: dict[int, str] = {}
        """The host on which time passes, of messages of no bytes."""

    def route(self, key: tuple[object, ...], way: Way) -> int:
        """The number of a way, which is found once for all messages with the same key."""
        if key not in self._routes:
            self._routes[key] = len(self.ways)
            self.ways.append(way)
        return self._routes[key]

    def wait(self, waits: Sequence[int], seconds: float = 0.0, *, host: str | None = None) -> int:
        """Let ``seconds`` pass, on one ``host`` or somewhere, after these have arrived."""
        found = self._add(0.0, -1, waits, seconds)
        if host is not None:
            self.owners[found] = host
        return found

    def send(
        self,
        source: str,
        target: str,
        size: float,
        waits: Sequence[int],
        *,
        lane: object = None,
        pause: float = 0.0,
        nodes: Sequence[str] = (),
    ) -> int:
        """A message of ``size`` bytes between two hosts, over ``nodes`` if they are given. Those with the same ``lane`` share a
        connection."""
        network = self.network
        if nodes:
            route = self.route(tuple(nodes), lambda: network.links(nodes))
        else:
            route = self.route((source, target), lambda: network.path(source, target))
        number = self._lanes.setdefault((lane, source, target), len(self._lanes))
        found = self._add(size, route, waits, pause, lane=number)
        self.ends[found] = (source, target)
        return found

    def flow(
        self, key: tuple[object, ...], way: Way, size: float, waits: Sequence[int], *, pause: float, cap: float = np.inf
    ) -> int:
        """``size`` bytes that take all links of a way at the same time, at one rate, as what a switch sums and copies does."""
        return self._add(size, self.route(key, way), waits, pause, cap=cap)

    def _add(self, size: float, route: int, waits: Sequence[int], pause: float, *, lane: int = -1, cap: float = np.inf) -> int:
        messages = self.messages
        messages.size.append(size)
        messages.route.append(route)
        messages.pause.append(pause)
        messages.cap.append(cap)
        messages.lane.append(lane)
        messages.waits.append(waits)
        return len(messages) - 1

    def wait_also(self, message: int, waits: Sequence[int]) -> None:
        """Add what a message waits for, if that was unknown when it was made."""
        self.messages.waits[message] = waits


# A plan as messages: trees with their chunks, as `netsum plan trees --json` writes them, or parts of an array, as
# netsum's hosts read them (:mod:`netsum.peers.schedule_files`).


@dataclass(frozen=True)
class Transfer:
    """A chunk of a tree's share goes along ``path`` in ``step``."""

    step: int
    tree: int
    chunk: int
    path: tuple[str, ...]


@dataclass(frozen=True)
class TransferPlan:
    """``shares``: of the array, that each tree carries, in ``chunks``. A plan that netsum's hosts read is for one batch, and they
    carry it out for each ``batch_bytes``."""

    shares: tuple[Fraction, ...]
    chunks: int
    transfers: tuple[Transfer, ...]
    batch_bytes: int | None = None

    def for_bytes(self, nbytes: int) -> TransferPlan:
        """The plan with every batch's transfers, as far as they are not too many; later batches come later."""
        if self.batch_bytes is None:
            return self
        batches = max(1, min(-(-nbytes // self.batch_bytes), MOST // max(1, len(self.transfers))))
        steps = 1 + max(each.step for each in self.transfers)
        later = [
            replace(each, step=each.step + batch * steps, chunk=batch) for batch in range(batches) for each in self.transfers
        ]
        return replace(self, chunks=batches, transfers=tuple(later), batch_bytes=None)


def read_plan(path: Path, topology: Topology) -> TransferPlan:
    """The plan of a file, whose links the topology must have. :class:`InputError` names the key."""
    try:
        data: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    data = data.get("schedule", data) if isinstance(data, dict) else data
    try:
        plan = _of_parts(data) if isinstance(data, dict) and "parts" in data else _of_trees(data)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a plan as `netsum plan` writes it: {error!r}") from None
    for number, transfer in enumerate(plan.transfers):
        missing = [ends for ends in pairwise(transfer.path) if ends not in topology.rates]
        if missing:
            raise InputError(f"{path}: transfers.{number}: {topology.name} has no link {' -> '.join(missing[0])}")
        if not 0 <= transfer.tree < len(plan.shares):
            raise InputError(f"{path}: transfers.{number}: there is no tree {transfer.tree}")
    return plan


def _of_trees(data: Any) -> TransferPlan:
    transfers = tuple(
        Transfer(int(each["step"]), int(each["tree"]), int(each["chunk"]), tuple(map(str, each["path"])))
        for each in data["transfers"]
    )
    return TransferPlan(tuple(Fraction(share) for share in data["shares"]), int(data["chunks"]), transfers)


def _of_parts(data: Any) -> TransferPlan:
    transfers = tuple(
        Transfer(int(each["step"]), number, 0, tuple(map(str, each["path"])))
        for number, part in enumerate(data["parts"])
        for each in part["transfers"]
    )
    batch = data.get("chunk_bytes") or LONGEST * Wire.block_bytes
    return TransferPlan(tuple(Fraction(part["share"]) for part in data["parts"]), 1, transfers, int(batch))


def add_planned(
    schedule: Schedule, plan: TransferPlan, hosts: Sequence[str], nbytes: int, wire: Wire, ready: Sequence[int], *, lane: object
) -> list[int]:
    """Add a call that follows the plan. What a host sends of a chunk waits for what it has received of it in earlier steps;
    returns what must have arrived when the call is over for each rank."""
    plan = plan.for_bytes(nbytes)
    begun = dict(zip(hosts, ready, strict=True))
    came: dict[tuple[int, int, str], list[int]] = {}
    of_host: dict[str, list[int]] = {host: [] for host in hosts}
    for each in sorted(plan.transfers, key=lambda transfer: transfer.step):
        source, target = each.path[0], each.path[-1]
        size = wire.message(float(plan.shares[each.tree]) * nbytes / plan.chunks)
        waits = [begun[source], *came.get((each.tree, each.chunk, source), ())]
        message = schedule.send(source, target, size, waits, lane=(lane, each.tree), pause=wire.host_s, nodes=each.path)
        came.setdefault((each.tree, each.chunk, target), []).append(message)
        of_host[target].append(message)
    return [schedule.wait([begun[host], *of_host[host]], host=host) for host in hosts]
