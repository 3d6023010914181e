# SPDX-License-Identifier: MIT
"""Which packets count as lost because later ones have arrived."""

from __future__ import annotations

from netsum.core.retransmit import REORDERING, RackDetector


def send(overtaking: RackDetector, number: int) -> list[int]:
    return [overtaking.next_order() for _ in range(number)]


def test_what_later_packets_have_overtaken_is_lost() -> None:
    overtaking = RackDetector()
    first, *later = send(overtaking, 1 + REORDERING)
    overtaking.arrived(0, later[-2])
    assert overtaking.too_young(first)
    overtaking.arrived(0, later[-1])
    assert not overtaking.too_young(first)
    assert overtaking.overtaken(0, first)
    assert overtaking.too_young(later[0])


def test_roots_do_not_overtake_each_other() -> None:
    """Blocks take turns between two roots; one of them is slow."""
    overtaking = RackDetector((0, 1, 0, 1))
    assert [overtaking.path(block) for block in range(6)] == [0, 1, 0, 1, 0, 1]
    orders = send(overtaking, 40)
    overtaking.arrived(0, orders[-1])
    assert not overtaking.too_young(orders[0])
    assert not overtaking.overtaken(1, orders[0])
    assert overtaking.overtaken(0, orders[0])
    overtaking.arrived(1, orders[2 * REORDERING])
    assert overtaking.overtaken(1, orders[0])
    assert not overtaking.overtaken(1, orders[1])


def test_weights_may_be_uneven() -> None:
    overtaking = RackDetector((0, 0, 0, 1))
    assert [overtaking.path(block) for block in (0, 2, 3, 7, (1 << 32) - 1)] == [0, 0, 1, 1, 1]


def test_ambiguous_results_count_only_once_resolved() -> None:
    overtaking = RackDetector()
    orders = send(overtaking, 10)
    overtaking.arrived_ambiguously(0, orders[-1])
    assert (overtaking.ambiguous, overtaking.overtaken(0, orders[0])) == (True, False)
    overtaking.resolve()
    assert (overtaking.ambiguous, overtaking.overtaken(0, orders[0])) == (False, True)
    assert overtaking.overtaken(0, orders[0])
