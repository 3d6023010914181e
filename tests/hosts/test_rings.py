# SPDX-License-Identifier: MIT
"""The rings along which chains go: over direct links, each as often as any other."""

from __future__ import annotations

from collections import Counter
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netsum.descriptor import CHAIN, MULTICAST, check_torus, is_algorithm, of_some, torus_sides, without_switch
from netsum.peers.chain_route import ChainRoute
from netsum.peers.rings import Ring, rings_of, torus_rings
from netsum.wire.schema import EVERYONE, Op
from netsum_planner.topologies.shapes import torus


def loads(rings: tuple[Ring, ...]) -> Counter[tuple[int, int]]:
    """The number of rings on each link, in each direction."""
    return Counter(ends for ring in rings for ends in zip(ring, ring[1:] + ring[:1], strict=True))


@pytest.mark.parametrize(
    "sides", [(2, 2), (2, 3), (3, 3), (2, 4), (4, 4), (3, 5), (2, 2, 2), (2, 2, 3), (3, 3, 3), (2, 3, 4), (2, 2, 2, 2)]
)
def test_every_link_of_a_torus_has_the_same_load(sides: tuple[int, ...]) -> None:
    rings, ranks = torus_rings(sides), range(prod(sides))
    assert all(sorted(ring) == list(ranks) for ring in rings)
    found = loads(rings)
    assert len(set(found.values())) == 1
    if len(sides) <= 3:
        links = {(int(link.source[1:]) - 1, int(link.target[1:]) - 1) for link in torus(sides, 1).links}
        assert set(found) == links, "all links, and no others"


@settings(max_examples=15)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3).filter(lambda sides: prod(sides) <= 16))
def test_rings_are_through_all_ranks_on_any_torus(sides: list[int]) -> None:
    rings = torus_rings(tuple(sides))
    assert rings
    assert all(sorted(ring) == list(range(prod(sides))) for ring in rings)
    assert max(loads(rings).values()) <= 2


def test_absent_ranks_are_passed_by() -> None:
    assert rings_of("chain", [0, 2, 3]) == ((0, 2, 3),)
    assert {tuple(sorted(ring)) for ring in rings_of("chain:2x2", [0, 1, 3])} == {(0, 1, 3)}


@given(st.integers(2, 9), st.integers(0, 200))
def test_the_way_of_a_packet(ranks: int, number: int) -> None:
    rings = rings_of("chain", range(ranks))
    to_all = ChainRoute.of(number, Op.SUM, EVERYONE, EVERYONE, rings)
    assert sorted(to_all.sums) == sorted(to_all.stores) == list(range(ranks))
    assert to_all.sums[-1] == to_all.stores[0] == number % ranks
    to_one = ChainRoute.of(number, Op.SUM, 1, EVERYONE, rings)
    assert (to_one.sums[-1], to_one.stores) == (1, (1,))
    copy = ChainRoute.of(number, Op.COPY, EVERYONE, 1, rings)
    assert (copy.sums, copy.stores[0], len(copy.stores)) == ((), 1, ranks)


def test_names_of_chains() -> None:
    assert all(is_algorithm(name) and without_switch(name) for name in (CHAIN, MULTICAST, "chain:4", "chain:2x2x2"))
    assert not any(map(is_algorithm, ("chain:", "chain:0x2", "chain:2x", "chain:x2", "chain:2*2", "chains")))
    assert (torus_sides("chain:3x4"), torus_sides(CHAIN), torus_sides(MULTICAST)) == ((3, 4), (), ())
    assert [of_some(name) for name in ("chain:2x2", "ring", "plan:x.json")] == [CHAIN, "ring", "auto"]
    with pytest.raises(ValueError, match="chain:2x2 is for 4 ranks"):
        check_torus("chain:2x2", 3)
