# SPDX-License-Identifier: MIT
"""Every dtype, operation and size class, bit for bit, through the whole stack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum_testbed.verify.cells import FLOAT_FILLS, INTEGER_FILLS, CallKind, Cell
from netsum_testbed.verify.check import Checker
from netsum_testbed.verify.data import start
from netsum_testbed.verify.run import DTYPES, FLOATS

from tests.full.calls import on_all, results
from tests.full.conftest import FABRICS, Members
from tests.threads import PATIENCE

SIZES = [0, 1, 63, 64, 65, 511, 1023, 1024, 1025, 5000]
SHAPES: list[tuple[int, ...]] = [(), (1,), (3, 0, 2), (7, 11), (2, 3, 5)]
OPERATIONS = [(dtype, op) for dtype in DTYPES for op in (("sum", "mean", "max") if dtype in FLOATS else ("sum", "max"))]

# A wire knows nothing of types: all combinations of type, size, shape and values are tried on one fabric, and each of them
# once on every fabric.
ON_ONE_FABRIC = pytest.mark.parametrize("fabric", FABRICS[:1], indirect=True)
EVERY_FABRIC = [FABRICS[0], pytest.param("namespace-embedded", marks=pytest.mark.root), FABRICS[2]]


def fills_of(dtype: str) -> Sequence[str]:
    """The kinds of values that a type has."""
    return FLOAT_FILLS if dtype in FLOATS else INTEGER_FILLS


def call_of(workers: int, dtype: str, op: str = "sum", shape: tuple[int, ...] = (1500,), **options: Any) -> Cell:
    """An allreduce; ``options`` are fields of :class:`Cell`."""
    cell = Cell((11, 0, 0), 0, CallKind("allreduce", op, dtype), workers, math.prod(shape), shape=shape)
    return replace(cell, **options)


def check(communicators: list[Communicator], *calls: Cell, chunks: int = 16) -> None:
    """Make the calls on every rank and hold the results to the reference. Calls with predicted scales need a job of their
    own: they depend on those before."""
    checker = Checker(256 * chunks)
    for index, call in enumerate(calls):
        cell = replace(call, seed=(11, 0, index), index=index)
        found = results(on_all(communicators, lambda comm, cell=cell: start(comm, cell, PATIENCE)()[0]))  # type: ignore[misc]
        assert checker.complaints(cell, found) == [], cell.describe()


@pytest.mark.parametrize("fabric", EVERY_FABRIC, indirect=True)
@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.full), "float32"])
def test_exact_sums_lose_nothing(four: list[Communicator], dtype: str) -> None:
    """Huge numbers cancel out, and what is left is what was added beside them, to the last bit."""
    huge, tiny = np.finfo(dtype).max, np.arange(2500, dtype=dtype) * np.finfo(dtype).smallest_subnormal
    arrays = [np.full(2500, huge), tiny, -np.full(2500, huge), tiny]
    for got in results(on_all(four, lambda comm: comm.allreduce(arrays[comm.rank], exact=True))):
        np.testing.assert_array_equal(got, 2 * tiny)
    for got in results(on_all(four, lambda comm: comm.allreduce(arrays[comm.rank], "mean", exact=True))):
        np.testing.assert_array_equal(got, (tiny.astype(np.float64) / 2).astype(dtype))


@pytest.mark.parametrize("fabric", EVERY_FABRIC, indirect=True)
@pytest.mark.parametrize("number", range(len(OPERATIONS)), ids=["-".join(operation) for operation in OPERATIONS])
def test_each_type_operation_size_and_kind_of_values(four: list[Communicator], number: int) -> None:
    dtype, op = OPERATIONS[number]
    fills = fills_of(dtype)
    layout = {"in_place": number % 2 == 0, "strided": number % 3 == 0}
    check(four, call_of(4, dtype, op, (SIZES[number % len(SIZES)],), fill=fills[number % len(fills)], **layout))


@ON_ONE_FABRIC
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("in_place", [False, True], ids=["out-of-place", "in-place"])
@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
def test_shapes_and_layouts(four: list[Communicator], shape: tuple[int, ...], in_place: bool, strided: bool) -> None:
    check(four, call_of(4, "float32", "sum", shape, in_place=in_place, strided=strided))


@ON_ONE_FABRIC
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["sum", pytest.param("mean", marks=pytest.mark.full)])
def test_predicted_scales_through_values_of_every_size(members: Members, dtype: str, op: str) -> None:
    # Each kind of values after each other kind: growing ones are done again, shrinking ones keep the coarser scale.
    fills = [fill for first in FLOAT_FILLS for fill in (first, *FLOAT_FILLS)]
    with members(3, chunks=2) as communicators:
        check(communicators, *(call_of(3, dtype, op, (600,), fill=fill, scale="predicted") for fill in fills), chunks=2)
        assert communicators[0].stats.redone > 0


@ON_ONE_FABRIC
@pytest.mark.parametrize(("dtype", "fill"), [(dtype, fill) for dtype in DTYPES for fill in fills_of(dtype)])
def test_values_of_every_kind(four: list[Communicator], dtype: str, fill: str) -> None:
    check(four, call_of(4, dtype, fill=fill))


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
def test_numbers_of_workers(members: Members, workers: int) -> None:
    with members(workers) as communicators:
        for dtype in ("float32", "float64", "int8", "int64"):
            check(communicators, call_of(workers, dtype, shape=(3000,)))


@pytest.mark.parametrize(("chunks", "window"), [(1, 1), (1, 64), (5, 3), (16, 1), (8, 128)])
def test_block_sizes_and_windows(members: Members, chunks: int, window: int) -> None:
    with members(3, chunks=chunks, window=window) as communicators:
        check(communicators, call_of(3, "float32", shape=(2999,)), chunks=chunks)
        check(communicators, call_of(3, "int16", shape=(2999,)), chunks=chunks)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_million_elements(four: list[Communicator], dtype: str) -> None:
    check(four, call_of(4, dtype, shape=(1 << 20,)))


def test_a_barrier_holds_everyone_until_the_last_has_come(four: list[Communicator]) -> None:
    arrived: list[int] = []

    def make(comm: Communicator) -> int:
        arrived.append(comm.rank)
        comm.barrier()
        return len(arrived)

    assert results(on_all(four, make)) == [4, 4, 4, 4]


def test_values_that_are_not_finite(four: list[Communicator]) -> None:
    arrays = [np.linspace(-1, 1, 5000, dtype=np.float32) * 10.0**rank for rank in range(4)]
    zeroed = [array.copy() for array in arrays]
    places = {0: (0, np.nan), 1: (700, np.inf), 2: (700, -np.inf), 3: (4999, -np.inf)}
    for rank, (index, value) in places.items():
        arrays[rank][index], zeroed[rank][index] = value, 0
    clean = results(on_all(four, lambda comm: comm.allreduce(zeroed[comm.rank])))[0]
    clean[[0, 700]], clean[4999] = np.nan, -np.inf
    for scale in ("agreed", "predicted", "predicted"):
        found = results(
            on_all(four, lambda comm: comm.allreduce(arrays[comm.rank], scale=scale, nonfinite="propagate"))  # noqa: B023
        )
        assert all(each.tobytes() == found[0].tobytes() for each in found)
        assert np.array_equal(np.isnan(found[0]), np.isnan(clean))
        finite = np.isfinite(clean)
        assert np.array_equal(found[0][~finite], clean[~finite], equal_nan=True)
        assert np.allclose(found[0][finite], clean[finite], rtol=0, atol=1e-4 if scale == "predicted" else 0)
