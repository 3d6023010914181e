"""The way of a block that goes by chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from netsum.peers.rings import Ring
from netsum.wire.schema import EVERYONE, Op


@dataclass(frozen=True, slots=True)
class ChainRoute:
    """The ranks that a block's packets visit, in order: the first of ``sums`` sends its contribution, the last has the sum. The
    first of ``stores`` has the result, the others get it."""

    sums: Ring
    stores: Ring

    @classmethod
    def of(cls, number: int, op: int, dest: int, source: int, rings: Sequence[Ring]) -> ChainRoute:
        """The way of the packet with this number. ``dest`` gets the result, and ``source`` has a COPY's payload; both are
        ranks of the rings, or EVERYONE."""
        ring = rings[number % len(rings)]
        owner = dest if op == Op.SUM else source
        at = number // len(rings) % len(ring) if owner == EVERYONE else ring.index(owner)
        return _way(ring, at, op == Op.SUM, dest == EVERYONE)


@lru_cache(maxsize=4096)
def _way(ring: Ring, owner: int, sums: bool, for_all: bool) -> ChainRoute:
    from_owner = ring[owner:] + ring[:owner]
    return ChainRoute((*from_owner[1:], from_owner[0]) if sums else (), from_owner if for_all else from_owner[:1])
