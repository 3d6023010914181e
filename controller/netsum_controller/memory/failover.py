"""Which devices make up a shard's next group: pure decisions, explored in ``tests/model/memory``.

A group is one **epoch** of a shard: the primary, and the others. A member is *joining* until the primary waits for its
acknowledgements, too; only then is it **whole**: it holds everything that a client was ever told has been done. So a primary
may follow only from among the whole members of the present group, and at least one of those stays in every group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple


class Member(NamedTuple):
    """A device in a group. ``incarnation`` is its memory's: another one means that the contents are gone."""

    host: str
    incarnation: str
    joining: bool = False


class Report(NamedTuple):
    """A living device's report on a shard; epoch and position are 0 if it does not hold it."""

    incarnation: str
    epoch: int = 0
    position: int = 0
    ready: bool = False  # it is whole in the group of ``epoch``
    vouched: int = 0  # how far it has said, in that epoch, that it has the log


@dataclass(frozen=True)
class ReplicaGroup:
    """One epoch of a shard; the first member is the primary."""

    epoch: int
    members: tuple[Member, ...]

    @property
    def primary(self) -> Member:
        return self.members[0]


class ShardLostError(Exception):
    """No device holds the shard any longer, and none can come back with it."""


def has_lost(known: Report, report: Report) -> bool:
    """Whether a device that says it is still the same has less than it has vouched for: what it has is an older copy. Within an
    epoch, and at a restart, nothing of that goes away; in a later one, what nobody was told of may."""
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
