"""How a policy takes hosts for one job, always within the scopes that the job wants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from netsum_planner.placement.failure_domains import FailureDomains
from netsum_planner.placement.jobs import Job, Sizes
from netsum_planner.placement.placement import Placement


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
    scopes: FailureDomains, free: Collection[str], job: Job, sizes: Sizes, policy: str, random: Random
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
    scopes: FailureDomains, free: Collection[str], job: Job, key: Key, sizes: Sizes, random: Random
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
