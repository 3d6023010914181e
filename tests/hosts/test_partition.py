"""Layouts: every element is in exactly one block, and no block has elements for two ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from netsum.collectives.partition import BlockPartition, Layout, chunked
from netsum.wire.schema import CHUNK_BYTES, EVERYONE

Made = tuple[list[int], list[int], int, int, BlockPartition]
"""Counts, owners, the width of a block, the bytes of a lane, and the partition made of them."""


@st.composite
def cuts(draw: st.DrawFn) -> Made:
    counts = draw(st.lists(st.integers(0, 700), min_size=1, max_size=9))
    owners = draw(st.lists(st.sampled_from([0, 1, 2, EVERYONE]), min_size=len(counts), max_size=len(counts)))
    lane_bytes = draw(st.sampled_from([1, 2, 4, 8]))
    width = draw(st.sampled_from([1, 4, 16])) * CHUNK_BYTES // lane_bytes
    return counts, owners, width, lane_bytes, Layout(counts, owners).partition(width, CHUNK_BYTES // lane_bytes)


@given(cuts())
def test_segments_come_back_and_padding_is_zero(made: Made) -> None:
    counts, _, width, _, partition = made
    flat = np.arange(1, sum(counts) + 1)
    padded = partition.padded(flat)
    assert np.array_equal(np.concatenate(partition.parts(padded)), flat)
    assert [len(part) for part in partition.parts(padded)] == counts
    if len(counts) > 1:
        assert len(padded) == partition.number * width
        assert np.array_equal(padded[padded != 0], flat)
        rows = np.full((partition.number, width), 1)
        partition.blank(rows, range(partition.number))
        assert np.array_equal(rows.reshape(-1) == 0, padded == 0)


@given(cuts())
def test_a_block_belongs_to_one_segment_and_is_as_long_as_it_needs_to_be(made: Made) -> None:
    counts, owners, width, lane_bytes, partition = made
    number = 0
    for count, owner in zip(counts, owners, strict=True):
        left = count
        while left > 0:
            lanes = min(left, width)
            assert partition.owner[number] == owner
            assert partition.sizes[number] == chunked(lanes * lane_bytes)
            assert partition.sizes[number] % CHUNK_BYTES == 0
            row = np.full((1, width), 1)
            partition.blank(row, np.array([number]))
            assert row[0].tolist() == [1] * lanes + [0] * (width - lanes)
            left -= lanes
            number += 1
    assert number == partition.number == len(partition.owner) == len(partition.sizes)


@given(cuts(), st.data())
def test_rows_are_the_arrays_own_where_it_has_all_of_them(made: Made, data: st.DataObject) -> None:
    counts, _, width, _, partition = made
    padded = partition.padded(np.arange(1, sum(counts) + 1))
    first = data.draw(st.integers(0, partition.number))
    numbers = range(first, data.draw(st.integers(first, partition.number)))
    rows, there = partition.rows(padded, numbers), partition.view(padded, numbers)
    assert (there is None) == (numbers.stop * width > len(padded))
    assert np.shares_memory(rows, padded) == (there is not None and len(numbers) > 0)
    copy = np.zeros_like(padded)
    partition.place(copy, rows, numbers)
    part = slice(numbers.start * width, numbers.stop * width)
    assert np.array_equal(copy[part], padded[part])


@given(cuts(), st.integers(0, 3))
def test_mine_is_what_the_owners_say(made: Made, rank: int) -> None:
    _, owners, _, _, partition = made
    owned = partition.owned(rank, range(partition.number))
    expected = [owner in (EVERYONE, rank) for owner in partition.owner]
    assert (owned is None) == all(owner in (EVERYONE, rank) for owner in owners)
    if owned is not None:
        assert owned.tolist() == expected
        some = np.arange(0, partition.number, 2)
        again = partition.owned(rank, some)
        assert again is not None
        assert again.tolist() == expected[::2]


@given(st.integers(0, 10_000))
def test_chunked(size: int) -> None:
    assert chunked(size) % CHUNK_BYTES == 0
    assert 0 <= chunked(size) - size < CHUNK_BYTES
