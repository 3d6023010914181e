"""A plan as JSON. netsum's hosts carry it out (:mod:`netsum.peers.plans.from_file`), and the controller takes its roots."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from netsum.peers.plans.from_file import VERSION

from netsum_planner.optimum.optimum import Collective, optimum
from netsum_planner.topologies.files import to_network
from netsum_planner.topologies.model import Topology
from netsum_planner.trees.many_roots import pack_all
from netsum_planner.trees.schedule import Schedule, many_to_many
from netsum_planner.trees.stripes import stripes


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
