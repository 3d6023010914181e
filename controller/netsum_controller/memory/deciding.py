"""What becomes of a shard when devices die, return, catch up, or are to be others: one step at a time, each step an epoch. Pure.

Every acknowledged write is on all devices of its epoch's group that are members, so any member of the latest group may become the
primary. A device that still fetches may not, nor one that was thought to have the shard and has it no more.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace

from netsum_controller.memory.model import Held, Member, MemberState, Region, Shard

ShardKey = tuple[int, int]
"""A region's id and the number of a shard of it."""


@dataclass(frozen=True)
class Standing:
    """How a device is doing. ``alive`` is None as long as nobody can tell, after the controller's start; ``held`` is what it said
    last, and ``missed`` what it said before that, but no more."""

    alive: bool | None
    held: Mapping[ShardKey, Held] = field(default_factory=dict)
    missed: frozenset[ShardKey] = frozenset()
    """Not in its last two reports: one that was late must not count as a loss."""


UNKNOWN = Standing(None)
Standings = Mapping[str, Standing]


def advance(region: Region, shard: Shard, standings: Standings, loads: MutableMapping[str, int]) -> Shard:
    """The shard after the next step; itself if there is none to take. ``loads``, how many shards each host holds, is kept."""
    members = [(member, standings.get(member.host, UNKNOWN)) for member in shard.group]
    if shard.lost or any(standing.alive is None for _, standing in members):
        return shard
    key = region.id, shard.number
    shard = replace(shard, group=tuple(_learned(member, standing, key, shard.epoch) for member, standing in members))
    if any(member.state is MemberState.NEW for member in shard.group):
        return shard  # nobody has written yet
    lost = {member.host for member, standing in members if _has_lost(member, standing, key)}
    after = _without_dead(shard, key, standings, lost)
    if after is shard:
        after = _towards_target(shard, standings) if shard.target else _replenished(region, shard, standings, loads)
    return after


def _learned(member: Member, standing: Standing, key: ShardKey, epoch: int) -> Member:
    """What the device's report says of its state."""
    held = standing.held.get(key)
    if held is None or not standing.alive:
        return member
    if member.state is MemberState.MEMBER:
        return member if held.ready else Member(member.host, MemberState.JOINING)
    return Member(member.host, MemberState.MEMBER) if held.ready and held.epoch == epoch else member


def _has_lost(member: Member, standing: Standing, key: ShardKey) -> bool:
    return bool(standing.alive) and member.state is MemberState.MEMBER and key in standing.missed


def _without_dead(shard: Shard, key: ShardKey, standings: Standings, lost: set[str]) -> Shard:
    """The shard without devices that are dead or have lost it, and with a primary that has everything. If the only ones that have
    are dead, they are waited for."""
    having = [host for host, state in shard.group if state is MemberState.MEMBER and host not in lost]
    if not having:
        # Those who fetch have nobody to fetch from.
        return Shard(shard.number, shard.epoch + 1, ())
    candidates = [host for host in having if standings[host].alive]
    if not candidates:
        return shard
    primary = shard.group[0].host
    if primary not in candidates:
        primary = max(candidates, key=lambda host: _position(standings[host], key))
    rest = [member for member in shard.group if member.host != primary and member.host not in lost]
    group = [Member(primary, MemberState.MEMBER), *(member for member in rest if standings[member.host].alive)]
    return shard if tuple(group) == shard.group else replace(shard, epoch=shard.epoch + 1, group=tuple(group))


def _position(standing: Standing, key: ShardKey) -> tuple[int, int]:
    held = standing.held.get(key)
    return (-1, -1) if held is None else (held.epoch, held.position)


def _towards_target(shard: Shard, standings: Standings) -> Shard:
    """One step of a move: the new devices join; the new primary takes over; the old devices leave."""
    target, hosts = shard.target or (), shard.hosts
    new = [host for host in target if host not in hosts]
    if any(not standings.get(host, UNKNOWN).alive for host in new):
        return shard
    if new:
        joining = tuple(Member(host, MemberState.JOINING) for host in new)
        return replace(shard, epoch=shard.epoch + 1, group=shard.group + joining)
    states = dict(shard.group)
    if any(states[host] is not MemberState.MEMBER for host in target):
        return shard
    if hosts[0] != target[0]:
        ordered = sorted(shard.group, key=lambda member: member.host != target[0])  # stable
        return replace(shard, epoch=shard.epoch + 1, group=tuple(ordered))
    if set(hosts) != set(target):
        left = tuple(member for member in shard.group if member.host in target)
        return replace(shard, epoch=shard.epoch + 1, group=left, target=None)
    return replace(shard, target=None)


def _replenished(region: Region, shard: Shard, standings: Standings, loads: MutableMapping[str, int]) -> Shard:
    """With one backup more if it has too few, on the host with the fewest shards."""
    if len(shard.group) >= region.replicas or not standings.get(shard.group[0].host, UNKNOWN).alive:
        return shard
    able = [host for host in region.devices if host not in shard.hosts and standings.get(host, UNKNOWN).alive]
    if not able:
        return shard
    host = min(able, key=lambda host: loads.get(host, 0))
    loads[host] = loads.get(host, 0) + 1
    return replace(shard, epoch=shard.epoch + 1, group=(*shard.group, Member(host, MemberState.JOINING)))
