"""A plan as messages: trees with their chunks, as `netsum plan trees --json` writes them, or parts of an array, as netsum's hosts
read them (:mod:`netsum.peers.plans.from_file`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from netsum.peers.wire import LONGEST
from netsum_controller.errors import InputError

from netsum_planner.simulator.collectives import MOST
from netsum_planner.simulator.schedules import Schedule
from netsum_planner.simulator.wire import Wire
from netsum_planner.topologies.model import Topology


@dataclass(frozen=True)
class Transfer:
    """A chunk of a tree's share goes along ``path`` in ``step``."""

    step: int
    tree: int
    chunk: int
    path: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """``shares``: of the array, that each tree carries, in ``chunks``. A plan that netsum's hosts read is for one batch, and they
    carry it out for each ``batch_bytes``."""

    shares: tuple[Fraction, ...]
    chunks: int
    transfers: tuple[Transfer, ...]
    batch_bytes: int | None = None

    def for_bytes(self, nbytes: int) -> Plan:
        """The plan with every batch's transfers, as far as they are not too many; later batches come later."""
        if self.batch_bytes is None:
            return self
        batches = max(1, min(-(-nbytes // self.batch_bytes), MOST // max(1, len(self.transfers))))
        steps = 1 + max(each.step for each in self.transfers)
        later = [
            replace(each, step=each.step + batch * steps, chunk=batch)
            for batch in range(batches)
            for each in self.transfers
        ]
        return replace(self, chunks=batches, transfers=tuple(later), batch_bytes=None)


def read_plan(path: Path, topology: Topology) -> Plan:
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


def _of_trees(data: Any) -> Plan:
    transfers = tuple(
        Transfer(int(each["step"]), int(each["tree"]), int(each["chunk"]), tuple(map(str, each["path"])))
        for each in data["transfers"]
    )
    return Plan(tuple(Fraction(share) for share in data["shares"]), int(data["chunks"]), transfers)


def _of_parts(data: Any) -> Plan:
    transfers = tuple(
        Transfer(int(each["step"]), number, 0, tuple(map(str, each["path"])))
        for number, part in enumerate(data["parts"])
        for each in part["transfers"]
    )
    batch = data.get("chunk_bytes") or LONGEST * Wire.block_bytes
    return Plan(tuple(Fraction(part["share"]) for part in data["parts"]), 1, transfers, int(batch))


def add_planned(
    schedule: Schedule, plan: Plan, hosts: Sequence[str], nbytes: int, wire: Wire, ready: Sequence[int], *, lane: object
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
