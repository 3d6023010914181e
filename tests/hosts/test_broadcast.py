# SPDX-License-Identifier: MIT
"""broadcast: the root's array, bit for bit, on every rank."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator

from tests.hosts.calls import good, on_each, over_a_bad_network, ranks
from tests.hosts.combiners import combiner, make_network  # noqa: F401 - each test by a switch and without
from tests.hosts.stragglers import stragglers

TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", ">f8", "datetime64[s]", "S5",
)  # fmt: skip


def noise(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    """Bytes of every kind: among floats also NaNs with a payload, infinities and negative zeros."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int)) * kind.itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 256, count, dtype=np.uint8)
    return raw.view(kind).reshape(shape)


def broadcast(arrays: list[Any], root: int, comm: Communicator) -> Any:
    return comm.broadcast(arrays[comm.rank], root)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("root", [0, 2])
def test_every_type(dtype: str, root: int) -> None:
    arrays = [noise(dtype, (13, 7), rank) for rank in range(3)]
    with ranks(3) as communicators:
        result = good(on_each(communicators, partial(broadcast, arrays, root)))
        assert (result.dtype, result.shape) == (np.dtype(dtype).newbyteorder("="), (13, 7))
        assert result.tobytes() == arrays[root].astype(result.dtype).tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 0)])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    arrays = [np.full(shape, rank, np.float32) for rank in range(2)]
    with ranks(2) as communicators:
        result = good(on_each(communicators, lambda comm: comm.broadcast(arrays[comm.rank], 1)))
        assert result.shape == shape
        assert result.tobytes() == arrays[1].tobytes()


def test_arrays_that_are_not_contiguous_and_results_in_place() -> None:
    base = [np.arange(6000).reshape(60, 100) * (rank + 1) for rank in range(3)]
    with ranks(3) as communicators:
        result = good(on_each(communicators, lambda comm: comm.broadcast(base[comm.rank].T[::3, ::-2], 1)))
        np.testing.assert_array_equal(result, base[1].T[::3, ::-2])
        outs = [array.copy() for array in base]

        def into(comm: Communicator) -> bool:
            mine = outs[comm.rank][::2]
            return comm.broadcast(mine, 2, out=mine) is mine

        assert on_each(communicators, into) == [True] * 3
        for rank in range(3):
            np.testing.assert_array_equal(outs[rank][::2], base[2][::2])
            np.testing.assert_array_equal(outs[rank][1::2], base[rank][1::2])


def test_what_the_others_hold_does_not_count() -> None:
    arrays = [np.array([1.0, 2.0]), np.array([np.nan, np.inf])]
    with ranks(2) as communicators:
        assert good(on_each(communicators, lambda comm: comm.broadcast(arrays[comm.rank]))).tolist() == [1.0, 2.0]
        held = good(on_each(communicators, lambda comm: comm.broadcast(arrays[comm.rank], 1)))
        assert held.tobytes() == arrays[1].tobytes()


@pytest.mark.full
def test_packets_that_are_lost_doubled_and_reordered() -> None:
    arrays = [noise("uint8", (50_000,), rank) for rank in range(3)]
    with over_a_bad_network(make_network(3), 0.1) as communicators:
        for root in range(3):
            result = good(on_each(communicators, partial(broadcast, arrays, root)))
            assert result.tobytes() == arrays[root].tobytes()


def test_it_waits_for_every_rank_also_in_a_job_that_degrades() -> None:
    """Nothing can stand in for the root's part, and a rank without it would go on with other values."""
    with stragglers(3) as (network, communicators), network.aging():
        works = [comm.broadcast_async(np.full(900, comm.rank), 2) for comm in communicators[:2]]
        assert not any(work.finished(0.2) for work in works)
        last = communicators[2].broadcast(np.full(900, 2), 2)
        assert set(good([*[work.wait() for work in works], last]).tolist()) == {2}
        assert all(comm.stats.degraded == 0 for comm in communicators)
