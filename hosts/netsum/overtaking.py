"""Which packets were overtaken by later ones, and so are probably lost (RACK, RFC 8985, with a count of packets for its
reordering window). Pure.

Only packets of one way: the blocks of a job with several roots go over different switches, and one that is slower loses
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REORDERING: Final = 3
"""How many packets a packet may be late on the way before it is taken for lost."""


class Overtaking:
    """Numbers transmissions; learns which have arrived."""

    def __init__(self, roots: Sequence[int] = ()) -> None:
        """``roots``: the root of each stripe, numbered from 0; a block's stripe is its id modulo their number. None: one
        root."""
        self._roots = tuple(roots) or (0,)
        ways = max(self._roots) + 1
        self._late = REORDERING * ways  # their packets are sent by turns
        self._count = 0
        self._newest = [-1] * ways  # by way, the latest transmission that a result was for
        self._doubt = [-1] * ways  # the same, where the result may have been for an earlier transmission of the block

    def way(self, block_id: int) -> int:
        """Which way a block goes."""
        return self._roots[block_id % len(self._roots)]

    def next_order(self) -> int:
        self._count += 1
        return self._count

    def arrived(self, way: int, order: int) -> None:
        self._newest[way] = max(self._newest[way], order)

    def perhaps(self, way: int, order: int) -> None:
        """The result of a block has come; the transmission may be an earlier one."""
        self._doubt[way] = max(self._doubt[way], order)

    @property
    def doubtful(self) -> bool:
        """Whether there is such a one that would tell something."""
        return any(doubt > newest for doubt, newest in zip(self._doubt, self._newest, strict=True))

    def believe(self) -> None:
        """Take those for certain."""
        self._newest = [max(both) for both in zip(self._doubt, self._newest, strict=True)]

    def too_young(self, order: int) -> bool:
        """Whether neither this transmission nor any later one can have been overtaken."""
        return order + self._late > max(self._newest)

    def overtaken(self, way: int, order: int) -> bool:
        """Whether a transmission on its way was."""
        return order + self._late <= self._newest[way]
