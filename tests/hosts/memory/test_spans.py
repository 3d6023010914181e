# SPDX-License-Identifier: MIT
"""Indices against numpy's, and what instructions make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.errors import UnsupportedError
from netsum.memory.spans import cut, cut_pair, spans


def parts(length: int) -> st.SearchStrategy[Any]:
    return st.one_of(st.slices(length), st.integers(-length, length - 1) if length else st.nothing())


@st.composite
def indexed(draw: st.DrawFn) -> tuple[tuple[int, ...], Any]:
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    number = draw(st.integers(0, len(shape)))
    index: list[Any] = [draw(parts(length)) for length in shape[:number]]
    way = draw(st.sampled_from(["plain", "listed", "dotted"]))
    if index and way == "listed":
        index[0] = draw(st.lists(st.integers(-shape[0], shape[0] - 1), max_size=6).map(lambda x: np.array(x, int)))
        index[1:] = [part for part in index[1:] if isinstance(part, slice)]  # numpy moves axes where both are mixed
    elif way == "dotted":
        index.append(...)
    return shape, tuple(index)


@given(indexed())
def test_an_index_selects_what_numpy_does(given_: tuple[tuple[int, ...], Any]) -> None:
    shape, index = given_
    whole = np.arange(int(np.prod(shape)))
    wanted = whole.reshape(shape)[index]
    found = spans(index, shape)
    got = np.concatenate([whole[start : start + found.length] for start in found.starts] or [whole[:0]])
    assert found.shape == wanted.shape
    assert (got.reshape(found.shape) == wanted).all()
    singly = found.singly()
    assert singly.starts.tolist() == wanted.reshape(-1).tolist()


def test_neighbors_are_one_span() -> None:
    for index, shape in [
        (..., (4, 5, 6)),
        (slice(1, 3), (4, 5, 6)),
        ((2, slice(1, 4)), (4, 5, 6)),
        ((1, 1, 1), (4, 5, 6)),
    ]:
        assert len(spans(index, shape).starts) == 1


@pytest.mark.parametrize(
    ("index", "kind", "message"),
    [
        (4, IndexError, "index 4 is out of bounds for axis 0 with size 4"),
        ((0, -6), IndexError, "axis 1 with size 5"),
        ((0, 0, 0), IndexError, "too many indices"),
        (1.5, UnsupportedError, "ints and slices"),
        ((0, [1, 2]), UnsupportedError, "axis 1"),
        (np.array([True, False, True, True]), UnsupportedError, "ints and slices"),
    ],
)
def test_other_indices_are_an_error_that_says_so(index: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        spans(index, (4, 5))


@given(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.integers(1, 100), st.integers(3, 6).map(lambda x: 1 << x))
def test_pieces_cover_the_spans_and_cross_nothing(starts: list[int], length: int, piece: int) -> None:
    base = 1 << 40
    cuts = cut(np.array(starts, np.uint64) + np.uint64(base), length, piece)
    got: dict[int, int] = {}
    for part in cuts:
        for address, offset in zip(part.addresses.tolist(), part.offsets.tolist(), strict=True):
            assert address // piece == (address + part.length - 1) // piece
            for at in range(part.length):
                assert offset + at not in got
                got[offset + at] = address + at
    assert got == {row * length + at: base + start + at for row, start in enumerate(starts) for at in range(length)}


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200))
def test_neither_end_of_a_copy_crosses_anything(to: int, source: int, length: int) -> None:
    piece, got = 16, {}
    for part, sources in cut_pair(to, source, length, piece):
        for address, here in zip(part.addresses.tolist(), sources.tolist(), strict=True):
            assert address // piece == (address + part.length - 1) // piece
            assert here // piece == (here + part.length - 1) // piece
            got.update({address + at: here + at for at in range(part.length)})
    assert got == {to + at: source + at for at in range(length)}
