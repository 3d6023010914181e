# SPDX-License-Identifier: MIT
"""After the loss of a host: who takes over, the job's step then, and what must be moved first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from netsum_planner.placement.jobs import Placement
from netsum_planner.placement.search import PlacementPlan, Placer
from netsum_planner.placement.step_time import Predicted, StepEstimate, StepSimulation


@dataclass(frozen=True)
class Failover:
    """``by``: the hosts that come in. If there are none, the job goes on with a replica fewer, or stops (``after`` is None). They
    get ``nbytes`` of state in ``seconds`` from ``source``, hosts of other replicas; if there are none, from a checkpoint."""

    lost: str
    job: str
    before: Predicted
    after: Predicted | None
    placement: Placement | None
    by: tuple[str, ...]
    nbytes: float
    source: tuple[str, ...]
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        after = None if self.placement is None or self.after is None else {**self.placement.to_json(), **self.after.to_json()}
        return {
            "lost": self.lost,
            "job": self.job,
            "before_ms": self.before.step * 1e3,
            "after_ms": None if self.after is None else self.after.step * 1e3,
            "by": list(self.by),
            "state_bytes": self.nbytes,
            "from": list(self.source),
            "move_ms": None if self.seconds is None else self.seconds * 1e3,
            "after": after,
        }


def fail_over(placer: Placer, plan: PlacementPlan, lost: str) -> Failover | None:
    """The consequences when a host is lost; None if no job has it. A free host takes its place; if none is in the scope that
    its job wants, its whole tensor group moves; if there is no room for that either, its replica is left out."""
    index = next((n for n, each in enumerate(plan.placements) if lost in each.order), None)
    if index is None:
        return None
    placement, before = plan.placements[index], plan.predicted[index]
    number = placement.order.index(lost) // placement.sizes.tp
    estimate = StepEstimate(placer.topology, placer.machine)

    def with_others(other: Placement) -> list[Placement]:
        return [*plan.placements[:index], other, *plan.placements[index + 1 :]]

    best = None
    for ways in (
        _alone(placement, number, lost, plan),
        _group(placement, number, plan, placer),
        _smaller(placement, number),
    ):
        held = (with_others(each) for each in ways if each.holds(placer.scopes))
        tried = (placer.tried(each, estimate) for each in held)
        best = min((each for each in tried if each is not None), key=lambda each: each.score, default=None)
        if best is not None:
            break
    if best is None:
        return Failover(lost, placement.job.name, before, None, None, (), 0.0, (), None)
    now = best.placements[index]
    after = placer.plan(best.placements, StepSimulation(placer.topology, placer.machine)).predicted[index]
    by = tuple(host for host in now.order if host not in placement.order)
    stage, replica = divmod(number, placement.sizes.dp)
    nbytes = len(by) * placement.job.state(placement.job.stages(placement.sizes.pp)[stage], placement.sizes)
    source, seconds = _moved(placement, now, stage, replica, nbytes, estimate)
    return Failover(lost, placement.job.name, before, after, now, by, nbytes, source, seconds)


def _alone(placement: Placement, number: int, lost: str, plan: PlacementPlan) -> list[Placement]:
    """With a free host in its place."""
    group = placement.tensor_groups[number]
    return [placement.with_group(number, tuple(free if host == lost else host for host in group)) for free in plan.free]


def _group(placement: Placement, number: int, plan: PlacementPlan, placer: Placer) -> list[Placement]:
    """With another group, one from each scope that has room."""
    rooms: dict[str, list[str]] = {}
    for host in plan.free:
        rooms.setdefault(placer.scopes.at(host, placement.job.wanted.tensor), []).append(host)
    tp = placement.sizes.tp
    return [placement.with_group(number, tuple(room[:tp])) for room in rooms.values() if len(room) >= tp]


def _smaller(placement: Placement, number: int) -> list[Placement]:
    """Without the replica of this group; the others share its samples, if they have the memory."""
    dp = placement.sizes.dp
    sizes = placement.sizes._replace(dp=dp - 1)
    if dp == 1 or not placement.job.fits(sizes):
        return []
    groups = [group for n, group in enumerate(placement.tensor_groups) if n % dp != number % dp]
    return [replace(placement, sizes=sizes, order=tuple(host for group in groups for host in group))]


def _moved(
    before: Placement, after: Placement, stage: int, replica: int, nbytes: float, calls: StepEstimate
) -> tuple[tuple[str, ...], float | None]:
    """The sources of the new hosts' state, and the time until all have it: each has its part from the nearest host with the
    same part in another replica."""
    dp = before.sizes.dp
    new = after.tensor_groups[stage * dp + replica] if after.sizes == before.sizes else ()
    coming = [(t, host) for t, host in enumerate(new) if host not in before.order]
    if not coming:
        return (), 0.0
    if dp == 1:
        return (), None
    peers = [group for n, group in enumerate(before.tensor_groups[stage * dp : stage * dp + dp]) if n != replica]
    each = nbytes / len(coming)
    flows = [(min((peer[t] for peer in peers), key=lambda peer: calls.at_once([(peer, host)], each)), host) for t, host in coming]
    return tuple(one for one, _ in flows), calls.at_once(flows, each)
