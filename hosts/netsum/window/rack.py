"""Which packets were overtaken by later ones, and so are probably lost (RACK, RFC 8985, with a count of packets for its
reordering window). Pure.

Only packets on the same way are compared: the blocks of a job with several roots take different switches, and a slower switch
has lost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REORDERING: Final = 3
"""How many later packets may overtake one before it counts as lost."""


class RackDetector:
    """Numbers transmissions, and learns which have arrived."""

    def __init__(self, roots: Sequence[int] = ()) -> None:
        """``roots`` is the root of each stripe, numbered from 0; a block's stripe is its id modulo their number. Empty if there
        is one root."""
        self._roots = tuple(roots) or (0,)
        self.stripes = len(self._roots)  # so many blocks in a row take every way
        ways = max(self._roots) + 1
        self._late = REORDERING * ways  # the ways take turns
        self._count = 0
        self._newest = [-1] * ways  # by way, the latest transmission that got a result
        self._doubt = [-1] * ways  # the same, if the result may be for an earlier transmission of the block
        self._doubts = False  # whether there may be such

    def way(self, block_id: int) -> int:
        """The way that a block takes."""
        return self._roots[block_id % len(self._roots)]

    def next_order(self, number: int = 1) -> int:
        """The order of the next transmission, of which so many are numbered."""
        first = self._count + 1
        self._count += number
        return first

    def arrived(self, way: int, order: int) -> None:
        self._newest[way] = max(self._newest[way], order)

    def perhaps(self, way: int, order: int) -> None:
        """A block's result has arrived, but perhaps for an earlier transmission."""
        self._doubt[way] = max(self._doubt[way], order)
        self._doubts = True

    @property
    def doubtful(self) -> bool:
        """Whether a result that may be for an earlier transmission would tell something new."""
        return self._doubts and any(doubt > newest for doubt, newest in zip(self._doubt, self._newest, strict=True))

    def believe(self) -> None:
        """Assume that those results were for the latest transmission."""
        self._newest = [max(both) for both in zip(self._doubt, self._newest, strict=True)]
        self._doubts = False

    def too_young(self, order: int) -> bool:
        """Whether neither this transmission nor any later one can have been overtaken."""
        return order + self._late > max(self._newest)

    def overtaken(self, way: int, order: int) -> bool:
        """Whether a transmission was overtaken on its way."""
        return order + self._late <= self._newest[way]
