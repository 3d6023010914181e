# SPDX-License-Identifier: MIT
"""Places several jobs, one after the other, then improves that by exchanging groups of hosts; or uses another policy, to
compare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import exp
from random import Random
from typing import Any, Final, NamedTuple

from netsum.text import counted

from netsum_planner.errors import PlanError
from netsum_planner.placement.failure_domains import FailureDomains
from netsum_planner.placement.jobs import Placement, Sizes, TrainingJob
from netsum_planner.placement.step_time import Predicted, StepEstimate, StepSimulation, predicted
from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import Machine

# How a policy takes hosts for one job, always within the scopes that the job wants.


class Choice(NamedTuple):
    """A scope that can be taken: how many groups (or replicas) it has ``room`` for, how many are ``wanted`` in all and in the
    ``replica`` at hand, and its ``place`` among the scopes."""

    room: int
    wanted: int
    replica: int
    place: int


def _tightest(room: int, wanted: int) -> tuple[bool, int]:
    """The tightest scope that holds everything wanted; if none does, the largest."""
    return room < wanted, room if room >= wanted else -room


Key = Callable[[Choice, Random], Any]
"""The scope with the least is taken."""

POLICIES: Final[Mapping[str, Key]] = {
    "packed": lambda choice, _: (*_tightest(choice.room, choice.wanted), choice.place),
    "aligned": lambda choice, _: (*_tightest(choice.room, choice.replica), choice.place),
    "spread": lambda choice, _: (-choice.room, choice.place),
    "first-fit": lambda choice, _: choice.place,
    "random": lambda _, random: random.random(),
}


class _Zone:
    """A scope of a pipeline's level: its hosts, by the scope of a tensor group's level."""

    def __init__(self) -> None:
        self.rooms: dict[str, list[str]] = {}

    def groups(self, tp: int) -> int:
        return sum(len(room) // tp for room in self.rooms.values())


def fit(
    scopes: FailureDomains, free: Collection[str], job: TrainingJob, sizes: Sizes, policy: str, random: Random
) -> Placement | None:
    """Hosts for the job; None if they do not suffice. Groups of a job are alike, so counting room is exact: if it fits at all,
    every policy finds where. Cost: groups * scopes."""
    key, (tp, pp, dp) = POLICIES[policy], sizes
    zones = _area(scopes, free, job, key, sizes, random)
    if zones is None:
        return None
    replicas: list[list[tuple[str, ...]]] = []
    for left in range(dp, 0, -1):
        rooms = [(zone.groups(tp) // pp, zone) for zone in zones]
        able = [(Choice(room, left, 1, place), zone) for place, (room, zone) in enumerate(rooms) if room]
        zone = min(able, key=lambda each: key(each[0], random))[1]
        replicas.append([_group(zone, tp, (left * pp - stage, pp - stage), key, random) for stage in range(pp)])
    if policy != "random":
        # Nearby replicas have nearby numbers.
        number = {host: n for n, host in enumerate(scopes.of)}
        replicas.sort(key=lambda groups: number[groups[0][0]])
    return Placement(job, sizes, tuple(host for stage in range(pp) for groups in replicas for host in groups[stage]))


def _group(zone: _Zone, tp: int, wanted: tuple[int, int], key: Key, random: Random) -> tuple[str, ...]:
    rooms = [(len(room) // tp, name) for name, room in zone.rooms.items()]
    able = [(Choice(room, *wanted, place), name) for place, (room, name) in enumerate(rooms) if room]
    name = min(able, key=lambda each: key(each[0], random))[1]
    room = zone.rooms[name]
    taken, zone.rooms[name] = tuple(room[:tp]), room[tp:]
    return taken


def _area(
    scopes: FailureDomains, free: Collection[str], job: TrainingJob, key: Key, sizes: Sizes, random: Random
) -> list[_Zone] | None:
    """The zones of the scope that the policy takes, among scopes with room for the whole job."""
    wanted = job.wanted
    hosts = [host for host in scopes.of if host in free]
    if key is POLICIES["random"]:
        random.shuffle(hosts)
    areas: dict[str, dict[str, _Zone]] = {}
    for host in hosts:
        area, zone, inner = (scopes.at(host, level) for level in (wanted.data, wanted.pipeline, wanted.tensor))
        areas.setdefault(area, {}).setdefault(zone, _Zone()).rooms.setdefault(inner, []).append(host)
    able = []
    for place, zones in enumerate(areas.values()):
        room = sum(zone.groups(sizes.tp) // sizes.pp for zone in zones.values())
        if room >= sizes.dp:
            able.append((Choice(room, sizes.dp, sizes.dp, place), list(zones.values())))
    return min(able, key=lambda each: key(each[0], random))[1] if able else None


_OWN: Final = ("packed", "aligned", "spread")
_STARTS: Final = 4
_TRIES: Final = 200
"""From each start, in the first round."""
_EFFORT: Final = 60_000
"""Workers in all tries of a start, so that thousands of workers do not take hours."""
_HEAT: Final = 0.004
"""Loss of efficiency with which an exchange may still be kept at first."""
_SAME: Final = 9
"""Decimal places in which scores are compared."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PlacementPlan:
    """``placements`` of the jobs that got hosts, with what is ``predicted`` of each; ``waiting``: the other jobs, and why.
    ``free`` hosts are left, and those that are kept are among them."""

    scopes: FailureDomains
    placements: tuple[Placement, ...]
    predicted: tuple[Predicted, ...]
    waiting: tuple[tuple[TrainingJob, str], ...]
    free: tuple[str, ...]

    @cached_property
    def efficiency(self) -> float:
        """Of all wanted workers; those of a waiting job do nothing."""
        wanted = sum(each.job.workers for each in self.placements) + sum(job.workers for job, _ in self.waiting)
        done = sum(
            each.job.workers * predicted.efficiency for each, predicted in zip(self.placements, self.predicted, strict=True)
        )
        return done / wanted

    @cached_property
    def fragmentation(self) -> float:
        return self.scopes.fragmentation(self.free)

    @property
    def score(self) -> tuple[float, ...]:
        """Lower is better: waiting jobs count first, then efficiency, steps and fragmentation."""
        steps = sum(each.step for each in self.predicted)
        return (len(self.waiting), -round(self.efficiency, _SAME), round(steps, _SAME), self.fragmentation)

    def to_json(self) -> dict[str, Any]:
        jobs: list[dict[str, Any]] = [
            {"job": each.job.name, "workers": each.job.workers, **each.to_json(), **predicted.to_json()}
            for each, predicted in zip(self.placements, self.predicted, strict=True)
        ]
        return {
            "jobs": jobs,
            "waiting": [{"job": job.name, "workers": job.workers, "why": why} for job, why in self.waiting],
            "efficiency": self.efficiency,
            "fragmentation": self.fragmentation,
            "free": list(self.free),
        }


def _score(plan: PlacementPlan) -> tuple[float, ...]:
    return plan.score


@dataclass(frozen=True)
class Placer:
    """Places ``jobs`` on the hosts of a topology that have a link and are not taken. Of every rack, ``spare`` hosts are kept
    free. ``errors``: by job, why the network could not serve it on hosts that would have sufficed."""

    topology: Topology
    scopes: FailureDomains
    jobs: tuple[TrainingJob, ...]
    machine: Machine
    spare: int = 0
    errors: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for job in self.jobs:
            if not any(job.sizes()):
                raise PlanError(f"job {job.name}: {_too_large(job)}")

    @cached_property
    def free(self) -> tuple[str, ...]:
        up = {host for host in self.topology.hosts if self.topology.neighbors[host]}
        return tuple(host for host in self.scopes.of if host in up - self.scopes.taken)

    @cached_property
    def usable(self) -> tuple[str, ...]:
        """The free hosts without the spare ones, the last of each rack."""
        racks = self.scopes.racks(self.free).values()
        kept = {host for rack in racks for host in rack[max(0, len(rack) - self.spare) :]}
        return tuple(host for host in self.free if host not in kept)

    def place(self, seed: int = 1, progress: Progress = lambda _: None) -> PlacementPlan:
        """The best that was found; by the simulated steps it is never worse than ``first-fit``. Jobs choose in their order, each
        the sizes and hosts with which all jobs so far do best; then groups are exchanged. :class:`PlanError` if no job fits.

        Cost: 2,400 estimates at most, which look at every flow once, and two simulations."""
        random, estimate = Random(seed), StepEstimate(self.topology, self.machine)
        start = self._one_by_one(_OWN, random, estimate)
        if not start.placements:
            raise PlanError("; ".join(f"job {job.name}: {self._why(job, self.usable)}" for job in self.jobs))
        # Successive halving: the better half of the starts gets twice as many tries.
        plans, tries = self._other_sizes(start, random, estimate)[:_STARTS], _TRIES
        while tries:
            plans = sorted((self._improved(each, tries, random, estimate, progress) for each in plans), key=_score)
            tries = 2 * tries if len(plans) > 1 else 0
            plans = plans[: (len(plans) + 1) // 2]
        best = plans[0]
        progress("simulating what was found")
        found = (best, self._one_by_one(("first-fit",), random, estimate))
        return min((self._simulated(each) for each in found), key=_score)

    def by_policy(self, policy: str, seed: int = 1) -> PlacementPlan:
        """The placements of another policy: hosts as it takes them, and the best sizes for that."""
        return self._simulated(self._one_by_one((policy,), Random(seed), StepEstimate(self.topology, self.machine)))

    def plan(self, placements: Sequence[Placement], calls: StepEstimate) -> PlacementPlan:
        """The prediction for these placements."""
        steps = tuple(predicted(each, calls, [other for other in placements if other is not each]) for each in placements)
        taken = {host for each in placements for host in each.order}
        free = tuple(host for host in self.free if host not in taken)
        placed = {each.job.name for each in placements}
        waiting = tuple((job, self._why(job, free)) for job in self.jobs if job.name not in placed)
        return PlacementPlan(self.scopes, tuple(placements), steps, waiting, free)

    def tried(self, placements: Sequence[Placement], calls: StepEstimate, job: TrainingJob | None = None) -> PlacementPlan | None:
        """None if hosts cannot reach each other, or no switch can sum for them; that is noted for this ``job``."""
        try:
            return self.plan(placements, calls)
        except PlanError as error:
            if job is not None:
                self.errors[job.name] = str(error)
            return None

    def _simulated(self, found: PlacementPlan) -> PlacementPlan:
        return self.plan(found.placements, StepSimulation(self.topology, self.machine))

    def _one_by_one(self, policies: Sequence[str], random: Random, calls: StepEstimate) -> PlacementPlan:
        found = self.plan((), calls)
        usable = set(self.usable)
        for job in self.jobs:
            able = (fit(self.scopes, usable, job, sizes, policy, random) for sizes in job.sizes() for policy in policies)
            plans = [self.tried((*found.placements, each), calls, job) for each in able if each is not None]
            found = min((each for each in plans if each is not None), key=_score, default=found)
            usable -= {host for each in found.placements for host in each.order}
        return found

    def _other_sizes(self, start: PlacementPlan, random: Random, calls: StepEstimate) -> list[PlacementPlan]:
        """The start, and its best variant with other sizes of each job, the best first."""
        found = {tuple(each.sizes for each in start.placements): start}
        usable = set(self.usable) & set(start.free)
        for n, each in enumerate(start.placements):
            for sizes, policy in product(each.job.sizes(), _OWN):
                other = fit(self.scopes, {*usable, *each.order}, each.job, sizes, policy, random)
                if other is None:
                    continue
                plan = self.tried((*start.placements[:n], other, *start.placements[n + 1 :]), calls)
                if plan is not None:
                    key = tuple(each.sizes for each in plan.placements)
                    found[key] = min(found.get(key, plan), plan, key=_score)
        return sorted(found.values(), key=_score)

    def _improved(
        self, best: PlacementPlan, tries: int, random: Random, calls: StepEstimate, progress: Progress
    ) -> PlacementPlan:
        """Exchange groups, or move them to free hosts, at first even if that is a little worse (simulated annealing)."""
        tries = min(tries, _EFFORT // sum(each.job.workers for each in best.placements))
        usable, now = set(self.usable), best
        for number in range(tries):
            progress(f"{number} of {tries} exchanges tried, {best.efficiency:.1%} efficient")
            moved = _moved(now.placements, [host for host in now.free if host in usable], self.scopes, random)
            if moved is None or not all(each.holds(self.scopes) for each in moved):
                continue
            plan = self.tried(moved, calls)
            if plan is None:
                continue
            worse = now.efficiency - plan.efficiency
            if plan.score <= now.score or random.random() < exp(-max(worse, 0) / _HEAT / (1 - number / tries)):
                now = plan
                best = min(best, now, key=_score)
        return best

    def _why(self, job: TrainingJob, free: Collection[str]) -> str:
        scopes = ", ".join(
            f"{key} in one {level}"
            for key, level in (
                ("tensor", job.wanted.tensor),
                ("pipeline", job.wanted.pipeline),
                ("data", job.wanted.data),
            )
            if level is not None
        )
        kept = f", {self.spare} of each rack to be kept" if self.spare else ""
        shortage = f"{counted(job.workers, 'host')} wanted, {len(free)} free{kept}"
        if job.name in self.errors and job.workers <= len(free):
            return self.errors[job.name]
        return shortage if job.workers > len(free) or not scopes else f"{shortage}, none of its sizes fits ({scopes})"


def _too_large(job: TrainingJob) -> str:
    """The reason why there are no sizes."""
    freed = job._replace(wanted=job.wanted.model_copy(update={"memory_gbytes": None}))
    least = min((job.memory(sizes) for sizes in freed.sizes()), default=None)
    if least is None:
        return f"pp is {job.wanted.pp}, and its training has {counted(len(job.training.layers), 'layer')}"
    more = "" if job.wanted.activation_mbytes else "; with activation_MB, its layers can be spread over several workers"
    return f"needs {least / 1e9:.1f} GB a worker at least, and memory_GB is {job.wanted.memory_gbytes:g}{more}"


def _moved(
    placements: Sequence[Placement], free: Sequence[str], scopes: FailureDomains, random: Random
) -> tuple[Placement, ...] | None:
    """One group somewhere else, or two groups of the same size in each other's place."""
    found = list(placements)
    groups = [(n, number) for n, each in enumerate(found) for number in range(len(each.tensor_groups))]
    n, number = random.choice(groups)
    placement = found[n]
    tp = placement.sizes.tp
    if free and random.random() < 0.5:
        level = placement.job.wanted.tensor
        scope = scopes.at(random.choice(free), level)
        room = [host for host in free if scopes.at(host, level) == scope]
        if len(room) < tp:
            return None
        found[n] = placement.with_group(number, tuple(room[:tp]))
        return tuple(found)
    other, its = random.choice([(m, each) for m, each in groups if found[m].sizes.tp == tp])
    if (other, its) == (n, number):
        return None
    one, two = placement.tensor_groups[number], found[other].tensor_groups[its]
    found[n] = found[n].with_group(number, two)
    found[other] = found[other].with_group(its, one)
    return tuple(found)
