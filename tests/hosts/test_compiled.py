# SPDX-License-Identifier: MIT
"""The conversions in machine code (the extra ``fast``) make the same bits as numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from netsum.numeric import compiled, exponents, fixed_point
from netsum.numeric.exponents import magnitudes
from netsum.numeric.fixed_point import Array, bias, encode_floats, floats
from netsum.wire.schema import Lane

L32 = Lane.L32
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 40))
WORKERS = st.integers(1, 255)


@pytest.fixture(autouse=True, scope="module")
def _small_ones_too() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_LARGE", 0)
        yield


def both(convert: Callable[[], Array], using: Callable[[Array], Any] | None = None) -> None:
    """The conversion gives the same bits without the kernels."""
    fast = convert()
    with pytest.MonkeyPatch.context() as patch:
        for module in (fixed_point, exponents):
            patch.setattr(module, "kernels_for", lambda *_: None)
        slow = convert()
    assert fast.dtype == slow.dtype
    assert fast.shape == slow.shape
    if using is None:
        assert fast.tobytes() == slow.tobytes()
    else:
        assert np.array_equal(using(fast), using(slow))


def test_it_is_used_here(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = compiled.kernels_for(np.ones((1, 1), np.float32))
    assert kernels is not None, "the extra fast is not installed"
    called = []
    for name in ("encode", "decode", "largest_float", "largest_integer"):
        monkeypatch.setattr(kernels, name, partial(lambda name, *_: called.append(name), name))
    ones, sums, zero = np.ones((1, 1), np.float32), np.ones((1, 1), np.int32), np.zeros(1, np.int64)
    encode_floats(ones, zero + 1, L32, 2)
    floats(sums, zero, L32, 2, np.dtype(np.float32))
    magnitudes([ones])
    magnitudes([sums])
    assert called == ["encode", "decode", "largest_float", "largest_integer"]


@given(st.data(), WORKERS)
def test_lanes_of_floats(data: st.DataObject, workers: int) -> None:
    shape = data.draw(SHAPES)
    exponent = data.draw(arrays(np.int64, shape[0], elements=st.integers(-150, 128)))
    parts = data.draw(arrays(np.float32, shape, elements=st.floats(-1, 1, width=32, exclude_min=True, exclude_max=True)))
    with np.errstate(under="ignore", over="ignore"):
        values = np.ldexp(parts, exponent[:, None].astype(np.int32))
    values[~np.isfinite(values)] = 0
    both(lambda: encode_floats(values, exponent, L32, workers))


@given(st.data(), WORKERS)
def test_floats_of_sums(data: st.DataObject, workers: int) -> None:
    shape = data.draw(SHAPES)
    largest = workers * bias(L32, workers)
    sums = data.draw(arrays(np.int32, shape, elements=st.integers(-largest, largest)))
    exponent = data.draw(arrays(np.int64, shape[0], elements=st.integers(-160, 128)))
    divisor = data.draw(st.none() | st.sampled_from([1, 2, 3, 64]))
    by = None if divisor is None else np.full(shape[0], divisor)
    both(lambda: floats(sums, exponent, L32, workers, np.dtype(np.float32), by, np.empty(shape, np.float32)))


@given(st.data())
def test_magnitudes(data: st.DataObject) -> None:
    """Of floats that are not finite, only that they are is the same."""
    shape = data.draw(SHAPES)
    values = data.draw(arrays(np.float32, shape, elements=st.floats(width=32, allow_nan=True)))
    both(lambda: magnitudes([values]), lambda found: np.where(np.isfinite(found), found, np.inf))
    integers = data.draw(arrays(np.int32, shape, elements=st.integers(1 - (1 << 31), (1 << 31) - 1)))
    both(lambda: magnitudes([integers]))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4", np.int64])
def test_other_types_are_numpy_s(dtype: Any) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    assert compiled.kernels_for(values) is None
    assert magnitudes([values]).tolist() == [2, 5]


def test_a_part_of_an_array_is_numpy_s() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)[:, :3]
    assert compiled.kernels_for(values) is None
    assert magnitudes([values]).tolist() == [2, 6, 10]


def test_small_ones_do_not_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_LARGE", 1 << 15)
    monkeypatch.setattr(compiled, "_kernels", lambda: pytest.fail("loaded"))
    assert compiled.kernels_for(np.zeros((1, 1024), np.float32)) is None
