# SPDX-License-Identifier: MIT
"""The devices of a shard's next group: pure decisions, explored in ``tests/model/memory``.

A group is one **epoch** of a shard: the primary, and the others. A member is *joining* until the primary waits for its
acknowledgments, too; only then is it **whole**: it holds everything that a client was ever told has been done. So a primary
may follow only from among the whole members of the present group, and at least one of those stays in every group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from netsum_controller.memory.model import Member, Region, RegionState, ReplicaGroup, Shard


class Report(NamedTuple):
    """A living device's report on a shard; epoch and position are 0 if it does not hold it."""

    incarnation: str
    epoch: int = 0
    position: int = 0
    ready: bool = False  # it is whole in the group of ``epoch``
    vouched: int = 0  # how far it has said, in that epoch, that it has the log


class ShardLostError(Exception):
    """No device holds the shard any longer, and none can come back with it."""


def has_lost(known: Report, report: Report) -> bool:
    """True if a device that says it is still the same has less than it has vouched for: what it has is an older copy. Within an
    epoch, and at a restart, nothing of that goes away; in a later one, what no client was told of may."""
    same = known.incarnation == report.incarnation
    return same and (report.epoch, report.position) < (known.epoch, known.vouched)


def noted(group: ReplicaGroup, reports: Mapping[str, Report]) -> ReplicaGroup:
    """The same epoch, in which members that are whole now are no longer joining; to be kept for good. ``ready`` counts only for
    the epoch of its report: in a later one, instructions may have been acknowledged without the member."""

    def whole(member: Member) -> bool:
        report = reports.get(member.host)
        return report is not None and report[:2] == (member.incarnation, group.epoch) and report.ready

    members = tuple(member._replace(joining=member.joining and not whole(member)) for member in group.members)
    return replace(group, members=members)


def next_group(group: ReplicaGroup, reports: Mapping[str, Report], wanted: Sequence[str]) -> ReplicaGroup | None:
    """The group after this one (as :func:`noted`), or None if nothing can or need be done now.

    ``reports`` are of devices that are alive; ``wanted`` the hosts to end with, the primary first. New wanted hosts join. The
    primary stays until the wanted one is whole; if it is dead, the most advanced of the living whole members follows. Unwanted
    members go once all wanted living ones are whole. Raises :class:`ShardLostError`.
    """
    members = group.members
    kept = [each for each in members if not each.joining and _may_have_it(each, reports.get(each.host))]
    alive = [each for each in kept if each.host in reports]
    if not alive:
        if kept:
            return None  # silent, but perhaps with its memory
        raise ShardLostError
    primary = _primary(group, alive, reports, wanted)
    settled = {each.host for each in alive} >= {host for host in wanted if host in reports}
    stay = [each for each in alive if each != primary and (each.host in wanted or not settled)]
    held = {primary.host, *(each.host for each in stay)}
    joining = [Member(host, reports[host].incarnation, True) for host in wanted if host in reports and host not in held]
    after = (primary, *stay, *joining)
    if primary == group.primary and set(after) == set(members):
        return None
    return ReplicaGroup(1 + max(group.epoch, *(report.epoch for report in reports.values())), after)


def _may_have_it(member: Member, report: Report | None) -> bool:
    return report is None or report.incarnation == member.incarnation


def _primary(group: ReplicaGroup, alive: list[Member], reports: Mapping[str, Report], wanted: Sequence[str]) -> Member:
    """The wanted primary if it is whole, else the present one, else the most advanced."""
    for host in (*wanted[:1], group.primary.host):
        for member in alive:
            if member.host == host:
                return member
    return max(alive, key=lambda member: reports[member.host].position)


# What happens to a shard when devices die, return, catch up or are replaced: one step at a time, each step an epoch.
# Pure.
#
# :mod:`netsum_controller.memory.failover` says who may follow; this module says who is wanted, and what a device's
# silence means.


ShardKey = tuple[int, int]
"""A region's id and the number of a shard of it."""


@dataclass(frozen=True)
class Standing:
    """A device's state. ``alive`` is None while that is unknown, after the controller's start; ``held`` is its last report on
    its shards."""

    alive: bool | None
    incarnation: str = ""
    held: Mapping[ShardKey, Report] = field(default_factory=dict)
    missed: frozenset[ShardKey] = frozenset()
    """Shards of which it has lost something: they were in an earlier report, and in the last two not, or not as far. A single one
    may have been late."""
    doubted: frozenset[ShardKey] = frozenset()
    """The same of the last report alone."""

    def report(self, key: ShardKey) -> Report:
        return self.held.get(key, Report(self.incarnation))


UNKNOWN = Standing(None)
Standings = Mapping[str, Standing]


def advance(region: Region, shard: Shard, standings: Standings, loads: MutableMapping[str, int]) -> Shard:
    """The shard after the next step; an equal one if there is none to take. ``loads``, how many shards each host has, is kept."""
    key = region.id, shard.number
    if region.state is RegionState.CREATING:
        return _made(shard, standings)
    if shard.lost or any(standings.get(host, UNKNOWN).alive is None for host in shard.hosts):
        return shard
    if is_newer(shard, (standing.report(key) for standing in standings.values())):
        return shard
    counted = {member.host for member in shard.group.members if not member.joining}
    reports = {
        host: standing.report(key)
        for host, standing in standings.items()
        if standing.alive and not (host in counted and key in standing.doubted - standing.missed)
    }
    without = {host for host in counted & reports.keys() if key in standings[host].missed}
    for host in without:  # the same incarnation, and yet the memory is gone
        reports[host] = Report("")
    group = noted(shard.group, reports)
    wanted = [host for host in _wanted(region, shard, reports, loads) if host not in without]
    try:
        after = next_group(group, reports, wanted)
    except ShardLostError:
        return replace(shard, group=replace(group, epoch=group.epoch + 1), target=None, lost=True)
    if after is None:
        return replace(shard, group=group, target=None if _is_reached(shard.target, group) else shard.target)
    for member in set(after.members) - set(group.members):
        loads[member.host] = loads.get(member.host, 0) + 1
    return replace(shard, group=after)


def is_newer(shard: Shard, reports: Iterable[Report]) -> bool:
    """True if some device was told of a later epoch than this one: then the state file is an older copy, and says nothing of who
    has the shard's memory now."""
    return any(report.epoch > shard.epoch for report in reports)


def is_made(region: Region, shard: Shard, standings: Standings) -> bool:
    """True if all devices of a new shard have it."""
    return all(
        standings.get(member.host, UNKNOWN).report((region.id, shard.number))[:2] == (member.incarnation, shard.epoch)
        and standings[member.host].report((region.id, shard.number)).ready
        for member in shard.group.members
    )


def _made(shard: Shard, standings: Standings) -> Shard:
    """A new shard, on the devices as they are now; no client has written to it yet."""
    members = tuple(
        member._replace(incarnation=standings.get(member.host, UNKNOWN).incarnation or member.incarnation)
        for member in shard.group.members
    )
    return replace(shard, group=replace(shard.group, members=members))


def _wanted(region: Region, shard: Shard, reports: Mapping[str, Report], loads: Mapping[str, int]) -> list[str]:
    """The hosts to end with, the primary first: the requested ones, or those alive (the most advanced first, if the primary is
    dead), filled up with the hosts that have the fewest shards."""
    if shard.target is not None:
        return list(shard.target)
    there = [host for host in shard.hosts if host in reports]
    if shard.hosts[0] not in reports:
        there.sort(key=lambda host: -reports[host].position)
    others = [host for host in region.devices if host in reports and host not in there]
    others.sort(key=lambda host: loads.get(host, 0))
    return there + others[: max(0, region.replicas - len(there))]


def _is_reached(target: tuple[str, ...] | None, group: ReplicaGroup) -> bool:
    if target is None or any(member.joining for member in group.members):
        return False
    return group.primary.host == target[0] and {member.host for member in group.members} == set(target)
