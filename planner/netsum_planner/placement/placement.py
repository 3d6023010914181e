"""The hosts of one job, in the order of its ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from netsum_planner.placement.failure_domains import FailureDomains
from netsum_planner.placement.jobs import Job, Sizes


@dataclass(frozen=True)
class Placement:
    """``order``: the host of each rank. Ranks count tensor parallel first, then data parallel, then stages, as those of
    Megatron-LM and DeepSpeed do: rank (p * dp + d) * tp + t is part t of stage p in replica d."""

    job: Job
    sizes: Sizes
    order: tuple[str, ...]

    @property
    def tensor_groups(self) -> list[tuple[str, ...]]:
        """Hosts that share a layer; the group of stage p in replica d is the (p * dp + d)-th."""
        tp = self.sizes.tp
        return [self.order[first : first + tp] for first in range(0, len(self.order), tp)]

    @property
    def data_groups(self) -> list[tuple[str, ...]]:
        """Hosts that sum the same gradients."""
        tp, _, dp = self.sizes
        return [
            self.order[first : first + dp * tp][t::tp]
            for first in range(0, len(self.order), dp * tp)
            for t in range(tp)
        ]

    @property
    def passes(self) -> list[tuple[str, str]]:
        """Who sends activations to whom."""
        return list(zip(self.order, self.order[self.sizes.dp * self.sizes.tp :], strict=False))

    @property
    def replicas(self) -> list[tuple[str, ...]]:
        """The hosts of each, stage after stage."""
        groups, dp = self.tensor_groups, self.sizes.dp
        return [tuple(host for group in groups[d::dp] for host in group) for d in range(dp)]

    def with_group(self, number: int, hosts: tuple[str, ...]) -> Placement:
        """Other hosts for one tensor group."""
        groups = self.tensor_groups
        groups[number] = hosts
        return replace(self, order=tuple(host for group in groups for host in group))

    def holds(self, scopes: FailureDomains) -> bool:
        """Whether every group is in one scope of the level that its job wants."""
        wanted = self.job.wanted
        return (
            all(scopes.together(group, wanted.tensor) for group in self.tensor_groups)
            and all(scopes.together(replica, wanted.pipeline) for replica in self.replicas)
            and scopes.together(self.order, wanted.data)
        )

    def to_json(self) -> dict[str, Any]:
        tp, pp, dp = self.sizes
        return {"tensor_parallel": tp, "pipeline_parallel": pp, "data_parallel": dp, "order": list(self.order)}
