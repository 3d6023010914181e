# SPDX-License-Identifier: MIT
"""Layouts: every element is in exactly one block, and no block has elements for two ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from netsum.collectives.partition import BlockPartition, Layout, chunked
from netsum.numeric.fixed_point import Array
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


def filled(counts: list[int], width: int) -> Array:
    """All blocks of the numbers from 1 on, each segment filled up with zeros."""
    rows, first = [np.zeros((0, width), np.int64)], 1
    for count in counts:
        segment = np.zeros(-(-count // width) * width, np.int64)
        segment[:count] = np.arange(first, first + count)
        rows.append(segment.reshape(-1, width))
        first += count
    return np.concatenate(rows)


@given(cuts())
def test_rows_are_filled_up_with_zeros_and_come_back(made: Made) -> None:
    counts, _, width, _, partition = made
    flat = np.arange(1, sum(counts) + 1)
    every = range(partition.number)
    rows = partition.rows(flat, every)
    assert np.array_equal(rows, filled(counts, width))
    back = np.zeros_like(flat)
    partition.place(back, rows, every)
    assert np.array_equal(back, flat)
    if partition.number:
        ones = np.full((partition.number, width), 1)
        partition.blank(ones, every)
        assert np.array_equal(ones == 0, rows == 0)


@given(cuts(), st.integers(0, 3))
def test_a_rank_has_room_for_what_it_gets(made: Made, rank: int) -> None:
    counts, owners, _, _, partition = made
    flat = np.arange(1, sum(counts) + 1)
    span, every = partition.span(rank), range(partition.number)
    result = np.zeros(span.stop - span.start, np.int64)
    partition.place(result, partition.rows(flat, every), every, partition.owned(rank, every), span.start)
    for owner, part, whole in zip(owners, partition.parts(result, rank), np.split(flat, np.cumsum(counts)[:-1]), strict=True):
        if owner in (EVERYONE, rank):
            assert np.array_equal(part, whole)
        elif len(part):
            assert not part.any()  # between two that it gets


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
    flat = np.arange(1, sum(counts) + 1)
    first = data.draw(st.integers(0, partition.number))
    numbers = range(first, data.draw(st.integers(first, partition.number)))
    rows, there = partition.rows(flat, numbers), partition.view(flat, numbers)
    expected = filled(counts, width)[numbers.start : numbers.stop]
    assert np.array_equal(rows, expected)
    assert (there is None) == (not expected.all())
    assert np.shares_memory(rows, flat) == (there is not None and len(numbers) > 0)
    picked = np.array(numbers)[:: data.draw(st.integers(1, 3))]
    if len(picked):
        assert np.array_equal(partition.rows(flat, picked), filled(counts, width)[picked])
        assert np.array_equal(partition.only(flat, picked), np.where(np.isin(flat, filled(counts, width)[picked]), flat, 0))
    copy = np.zeros_like(flat)
    partition.place(copy, rows, numbers)
    assert np.array_equal(partition.rows(copy, numbers), expected)
    assert copy.sum() == expected.sum()


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
