"""What happens to a shard when devices die, return, catch up or are replaced: one step at a time, each step an epoch. Pure.

:mod:`netsum_controller.memory.failover` says who may follow; this module says who is wanted, and what a device's silence
means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace

from netsum_controller.memory.failover import ReplicaGroup, Report, ShardLostError, next_group, noted
from netsum_controller.memory.model import Region, RegionState, Shard

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
    """Whether some device was told of a later epoch than this one: then the state file is an older copy, and says nothing of who
    has the shard's memory now."""
    return any(report.epoch > shard.epoch for report in reports)


def is_made(region: Region, shard: Shard, standings: Standings) -> bool:
    """Whether all devices of a new shard have it."""
    return all(
        standings.get(member.host, UNKNOWN).report((region.id, shard.number))[:2] == (member.incarnation, shard.epoch)
        and standings[member.host].report((region.id, shard.number)).ready
        for member in shard.group.members
    )


def _made(shard: Shard, standings: Standings) -> Shard:
    """A new shard, on the devices as they are now; nobody has written to it yet."""
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
