# SPDX-License-Identifier: MIT
"""Recognizes a path between a rank and its switch on which nothing comes through in one direction. Pure.

What the rank reports and what the switch counts are compared from look to look. Time alone proves nothing: a rank may be slow, a
machine busy. So the rank must have sent its block again many times. Then the path to the switch is blocked if the switch has
counted no packet of it meanwhile, although others' come; and the path back is blocked if the switch has counted them, has the
block's result, with which it answers each, and the rank has received no packet meanwhile. If only large packets may be lost, the
reason may be an MTU, and the path is not blocked (:func:`may_be_mtu`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from netsum.wire.schema import EVERYONE, HEADER_BYTES, Op

from netsum_controller.entries import BlockRecord
from netsum_controller.monitoring.paths import SMALL

MANY: Final = 5
"""Times that a block is sent between the first look and the last, and is lost each time. It was lost several times before."""
LOOKS: Final = 3
"""Least number of looks, each after another report of the rank."""


class Direction(Enum):
    TO_SWITCH = auto()
    FROM_SWITCH = auto()


class PathState(NamedTuple):
    """One look at the path between a rank and the switch of the ``block`` that it waits for. The rank has reported that it has
    ``sent`` the block this number of times, and has ``received`` this number of packets in the epoch. The switch has let in
    ``packets`` of the rank, and the job's switches ``others`` of the other ranks. They have ``rejected`` packets that may be the
    rank's. ``is_done`` says that the switch had the block's result before it counted."""

    block: int
    sent: int
    received: int
    packets: int
    others: int
    rejected: int
    is_done: bool


class Blocked(NamedTuple):
    """The path of a rank in a direction: nothing has come through while the rank sent its block ``times`` times."""

    rank: int
    direction: Direction
    times: int


@dataclass
class _Since:
    """A ``first`` look, which was ``at`` a time, and since which nothing has come through; this look is the last of ``looks``."""

    first: PathState
    at: float
    looks: int = 1
    none_arrives: bool = False
    """True if the rank has sent its block many times meanwhile, and none of its packets has come."""


class BlockedPaths:
    """The looks since which nothing has come through, by epoch, rank and direction."""

    def __init__(self, after: float) -> None:
        """``after``: seconds for which nothing must come through."""
        self._after = after
        self._since: dict[tuple[int, int, Direction], _Since] = {}

    def keep(self, epochs: Collection[int]) -> None:
        """Forget all epochs but these."""
        self._since = {key: since for key, since in self._since.items() if key[0] in epochs}

    def look(self, epoch: int, states: Mapping[int, PathState], now: float) -> list[Blocked]:
        """Take the states of the ranks that have reported since the last look; returns which of their paths are blocked."""
        found = []
        for rank, state in states.items():
            to_switch = self._compare(epoch, rank, Direction.TO_SWITCH, state, now)
            first = to_switch.first
            to_switch.none_arrives = state.sent - first.sent >= MANY
            if to_switch.none_arrives and (state.others > first.others or self._also_blocked(epoch, rank)):
                found.append((Blocked(rank, Direction.TO_SWITCH, state.sent - first.sent), to_switch))
            from_switch = self._compare(epoch, rank, Direction.FROM_SWITCH, state, now)
            first = from_switch.first
            if min(state.sent - first.sent, state.packets - first.packets) >= MANY:
                found.append((Blocked(rank, Direction.FROM_SWITCH, state.sent - first.sent), from_switch))
        return [blocked for blocked, since in found if since.looks >= LOOKS and now - since.at >= self._after]

    def _compare(self, epoch: int, rank: int, direction: Direction, state: PathState, now: float) -> _Since:
        key = (epoch, rank, direction)
        since = self._since.get(key)
        if since is None or not _PERSISTS[direction](since.first, state):
            since = self._since[key] = _Since(state, now)
        else:
            since.looks += 1
        return since

    def _also_blocked(self, epoch: int, rank: int) -> bool:
        """True if packets of another rank do not come, either."""
        return any(
            since.none_arrives
            for (number, other, direction), since in self._since.items()
            if (number, direction) == (epoch, Direction.TO_SWITCH) and other != rank
        )


def _nothing_arrived(first: PathState, now: PathState) -> bool:
    return (first.block, first.packets, first.rejected) == (now.block, now.packets, now.rejected)


def _nothing_returned(first: PathState, now: PathState) -> bool:
    return first.is_done and (first.block, first.received) == (now.block, now.received)


_PERSISTS: Final = {Direction.TO_SWITCH: _nothing_arrived, Direction.FROM_SWITCH: _nothing_returned}


def may_be_mtu(
    direction: Direction, state: PathState, octets: int, source: int, ahead: int, records: Mapping[int, BlockRecord]
) -> bool:
    """True if packets of ``octets`` bytes (of UDP's payload) may be lost because they are large. Not if nothing at all has come
    through in the epoch; nor if a packet as large has, since ``records`` (by how many blocks after the epoch's first) show that
    a block before the one that is waited for, which is ``ahead``, was as large, and has the contribution of the rank, whose
    source id is ``source``: the rank holds its result."""
    ever = state.packets if direction is Direction.TO_SWITCH else state.received
    if not ever or octets <= SMALL:
        return False
    return not any(
        before < ahead
        and record.seen >> source & 1
        and record.op != Op.COPY
        and record.dest == EVERYONE
        and record.data_cnt == record.worker_cnt
        and HEADER_BYTES + (record.lane_cnt << record.lane) >= octets
        for before, record in records.items()
    )
