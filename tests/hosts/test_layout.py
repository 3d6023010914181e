"""Layouts: every element is in exactly one block, and no block has elements for two ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from netsum.collectives.partition import BlockPartition, Layout, chunked
from netsum.wire.schema import CHUNK_BYTES, EVERYONE

Made = tuple[list[int], list[int], int, int, BlockPartition]
"""Counts, owners, the width of a block, the bytes of a lane, and the cut made of them."""


@st.composite
def cuts(draw: st.DrawFn) -> Made:
    counts = draw(st.lists(st.integers(0, 700), min_size=1, max_size=9))
    owners = draw(st.lists(st.sampled_from([0, 1, 2, EVERYONE]), min_size=len(counts), max_size=len(counts)))
    lane_bytes = draw(st.sampled_from([1, 2, 4, 8]))
    width = draw(st.sampled_from([1, 4, 16])) * CHUNK_BYTES // lane_bytes
    return counts, owners, width, lane_bytes, Layout(counts, owners).cut(width, CHUNK_BYTES // lane_bytes)


@given(cuts())
def test_segments_come_back_and_padding_is_zero(made: Made) -> None:
    counts, _, width, _, cut = made
    flat = np.arange(1, sum(counts) + 1)
    padded = cut.padded(flat)
    assert np.array_equal(np.concatenate(cut.parts(padded)), flat)
    assert [len(part) for part in cut.parts(padded)] == counts
    if len(counts) > 1:
        assert len(padded) == cut.number * width
        assert np.array_equal(padded[padded != 0], flat)
        rows = np.full((cut.number, width), 1)
        cut.blank(rows, range(cut.number))
        assert np.array_equal(rows.reshape(-1) == 0, padded == 0)


@given(cuts())
def test_a_block_belongs_to_one_segment_and_is_as_long_as_it_needs_to_be(made: Made) -> None:
    counts, owners, width, lane_bytes, cut = made
    number = 0
    for count, owner in zip(counts, owners, strict=True):
        left = count
        while left > 0:
            lanes = min(left, width)
            assert cut.owner[number] == owner
            assert cut.sizes[number] == chunked(lanes * lane_bytes)
            assert cut.sizes[number] % CHUNK_BYTES == 0
            row = np.full((1, width), 1)
            cut.blank(row, np.array([number]))
            assert row[0].tolist() == [1] * lanes + [0] * (width - lanes)
            left -= lanes
            number += 1
    assert number == cut.number == len(cut.owner) == len(cut.sizes)


@given(cuts(), st.data())
def test_rows_are_the_arrays_own_where_it_has_all_of_them(made: Made, data: st.DataObject) -> None:
    counts, _, width, _, cut = made
    padded = cut.padded(np.arange(1, sum(counts) + 1))
    first = data.draw(st.integers(0, cut.number))
    numbers = range(first, data.draw(st.integers(first, cut.number)))
    rows, there = cut.rows(padded, numbers), cut.view(padded, numbers)
    assert (there is None) == (numbers.stop * width > len(padded))
    assert np.shares_memory(rows, padded) == (there is not None and len(numbers) > 0)
    copy = np.zeros_like(padded)
    cut.place(copy, rows, numbers)
    part = slice(numbers.start * width, numbers.stop * width)
    assert np.array_equal(copy[part], padded[part])


@given(cuts(), st.integers(0, 3))
def test_mine_is_what_the_owners_say(made: Made, rank: int) -> None:
    _, owners, _, _, cut = made
    mine = cut.mine(rank, range(cut.number))
    expected = [owner in (EVERYONE, rank) for owner in cut.owner]
    assert (mine is None) == all(owner in (EVERYONE, rank) for owner in owners)
    if mine is not None:
        assert mine.tolist() == expected
        some = np.arange(0, cut.number, 2)
        again = cut.mine(rank, some)
        assert again is not None
        assert again.tolist() == expected[::2]


@given(st.integers(0, 10_000))
def test_chunked(size: int) -> None:
    assert chunked(size) % CHUNK_BYTES == 0
    assert 0 <= chunked(size) - size < CHUNK_BYTES
