# SPDX-License-Identifier: MIT
"""A plan as JSON. netsum's hosts carry it out (:mod:`netsum.peers.schedule_files`), and the controller takes its roots."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from netsum.peers.schedule_files import VERSION

from netsum_planner.errors import PlanError
from netsum_planner.optimum.optimum import Collective, optimum
from netsum_planner.topologies.files import to_network
from netsum_planner.topologies.model import Pair, Topology
from netsum_planner.trees.many_roots import pack_all
from netsum_planner.trees.packing import Packing, Path
from netsum_planner.trees.stripes import stripes

# Schedules from trees: who sends what to whom, and when, in pipelined chunks.
#
# One-to-many (broadcast) is the trees; many-to-one (reduce) is the trees reversed, with sums where they join; many-to-
# many (allreduce) is the second and then the first, chunk by chunk.


@dataclass(frozen=True)
class Transfer:
    """In ``step``, the source of ``path`` sends a chunk of a tree's share to its end, which keeps it or, if ``combine``, adds
    it to its own."""

    step: int
    tree: int
    chunk: int
    path: Path
    combine: bool


@dataclass(frozen=True)
class Schedule:
    """``shares``: of the array, that each tree carries; each is cut into ``chunks``. ``transfers`` are in the order of steps, and
    what a host sends in a step it has received in an earlier one."""

    packing: Packing
    collective: str
    chunks: int
    shares: tuple[Fraction, ...]
    transfers: tuple[Transfer, ...]

    @property
    def steps(self) -> int:
        return 1 + max(transfer.step for transfer in self.transfers)

    @property
    def rate(self) -> Fraction:
        """GB/s once the pipeline is full: what trees carry, divided among their ways up and down on the busiest link."""
        topology = self.packing.topology
        rates = (topology.reversed() if self.collective == Collective.REDUCE_SCATTER else topology).rates
        loads: dict[Pair, Fraction] = {}
        for each in self.transfers:
            for ends in pairwise(each.path):
                loads[ends] = loads.get(ends, Fraction(0)) + self.packing.trees[each.tree].rate / self.chunks
        return self.packing.rate / max(Fraction(1), *(load / rates[ends] for ends, load in loads.items()))

    def to_json(self) -> dict[str, Any]:
        return {
            "topology": self.packing.topology.name,
            "collective": self.collective,
            "root": self.packing.root,
            "chunks": self.chunks,
            "shares": [str(share) for share in self.shares],
            "GBps": float(self.rate),
            "steps": self.steps,
            "transfers": [
                {
                    "step": each.step,
                    "tree": each.tree,
                    "chunk": each.chunk,
                    "path": list(each.path),
                    "op": "combine" if each.combine else "copy",
                }
                for each in self.transfers
            ],
        }


def one_to_many(packing: Packing, chunks: int) -> Schedule:
    return _schedule(packing, "broadcast", chunks, up=False, down=True)


def many_to_one(packing: Packing, chunks: int) -> Schedule:
    """:class:`PlanError` if a link that a tree takes has no way back, or less rate there."""
    return _schedule(packing, "reduce", chunks, up=True, down=False)


def many_to_many(packing: Packing, chunks: int) -> Schedule:
    """As :func:`many_to_one`. A chunk comes down as soon as all of it is at the root, while others still go up."""
    return _schedule(packing, "allreduce", chunks, up=True, down=True)


def all_to_all(topology: Topology, collective: Collective, chunks: int) -> Schedule:
    """An allgather or a reduce_scatter, from all hosts at once: the second is the first of the network turned round, reversed.
    Raises what :func:`pack_all` raises."""
    if collective is not Collective.REDUCE_SCATTER:
        return _schedule(pack_all(topology, collective), str(collective), chunks, up=False, down=True)
    turned = pack_all(topology.reversed(), Collective.ALLGATHER)
    return _schedule(turned, str(collective), chunks, up=True, down=False)


def _schedule(packing: Packing, name: str, chunks: int, *, up: bool, down: bool) -> Schedule:
    if chunks < 1:
        raise PlanError(f"a tree's share is cut into 1 chunk or more, not {chunks}")
    if up and packing.root:  # trees of an allreduce, which have several roots, fit both ways already
        _require_way_back(packing)
    transfers = []
    for number, tree in enumerate(packing.trees):
        depths = tree.depths
        deepest = max(depths.values())
        for chunk in range(chunks):
            for path in tree.paths:
                depth = depths[path[-1]]
                if up:
                    transfers.append(Transfer(chunk + deepest - depth, number, chunk, path[::-1], True))
                if down:
                    transfers.append(Transfer(chunk + (deepest if up else 0) + depth - 1, number, chunk, path, False))
    transfers.sort(key=lambda each: (each.step, each.tree, each.chunk))
    shares = tuple(tree.rate / packing.rate for tree in packing.trees)
    return Schedule(packing, name, chunks, shares, tuple(transfers))


def _require_way_back(packing: Packing) -> None:
    rates = packing.topology.rates
    for (one, other), rate in rates.items():
        if rates.get((other, one), 0) < rate and any(
            (one, other) in pairwise(path) for tree in packing.trees for path in tree.paths
        ):
            raise PlanError(f"{packing.topology.name}: trees cannot be reversed: {other} -> {one} has less rate than back")


@dataclass(frozen=True)
class CollectivePlan:
    """``schedule``: an allreduce between hosts; ``roots``: the weights of the switches that make results, which reach
    ``in_network`` GB/s where ``optimum`` are possible; none if there are no such switches."""

    schedule: Schedule
    roots: dict[str, int]
    in_network: Fraction
    optimum: Fraction
    chunk_bytes: int | None = None

    def to_json(self, before: CollectivePlan | None = None) -> dict[str, Any]:
        """``before``: the plan of the whole network, if this is one of what is left of it."""
        hosts = self.schedule.packing.topology.hosts
        number = {host: rank for rank, host in enumerate(hosts)}
        parts: list[dict[str, Any]] = [
            {"share": str(share), "root": tree.root, "transfers": []}
            for share, tree in zip(self.schedule.shares, self.schedule.packing.trees, strict=True)
        ]
        for each in self.schedule.transfers:
            parts[each.tree]["transfers"].append(
                {
                    "step": each.step,
                    "from": number[each.path[0]],
                    "to": number[each.path[-1]],
                    "op": "combine" if each.combine else "copy",
                    "path": list(each.path),
                }
            )
        return {
            "version": VERSION,
            "topology": self.schedule.packing.topology.name,
            "collective": "allreduce",
            "hosts": list(hosts),
            **({"chunk_bytes": self.chunk_bytes} if self.chunk_bytes else {}),
            **self._rates(),
            **({"roots": self.roots} if self.roots else {}),
            **({} if before is None else {"whole": before._rates()}),
            "network": to_network(self.schedule.packing.topology),
            "parts": parts,
        }

    def _rates(self) -> dict[str, float]:
        found = {"GBps": float(self.schedule.rate), "optimum_GBps": float(self.schedule.packing.optimum)}
        if self.roots:
            found |= {"in_network_GBps": float(self.in_network), "in_network_optimum_GBps": float(self.optimum)}
        return found


def plan_allreduce(topology: Topology, chunk_bytes: int | None = None) -> CollectivePlan:
    """Raises what :func:`~netsum_planner.trees.many_roots.pack_all` raises. Ranks are the hosts in the topology's order."""
    schedule = many_to_many(pack_all(topology, Collective.ALLREDUCE), 1)
    roots, rate = stripes(topology)
    best = optimum(topology, Collective.ALLREDUCE).in_network.rate if roots else Fraction(0)
    return CollectivePlan(schedule, roots, rate, best, chunk_bytes)
