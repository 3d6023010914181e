# SPDX-License-Identifier: MIT
"""Floats that are added as they are, in the order of the chain."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np
import pytest
from netsum import AbortedError, Communicator, NotFiniteError, UnsupportedError
from netsum.peers.chain_route import ChainRoute
from netsum.peers.rings import rings_of
from netsum.wire.schema import EVERYONE, Op

from tests.hosts.calls import Array, closing_all, good, on_each
from tests.hosts.peers import ChainNetwork, PeerNetwork


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("algorithm", ["chain", "chain:2x2"])
def test_floats_are_added_in_the_order_of_the_chain(dtype: str, algorithm: str) -> None:
    rng = np.random.default_rng(2)
    arrays = [(rng.standard_normal(2000) * 10.0 ** rng.integers(-6, 6, 2000)).astype(dtype) for _ in range(4)]
    network = ChainNetwork(4, algorithm=algorithm)
    with closing_all(network.communicators()) as comms:
        sums = on_each(comms, lambda comm: comm.allreduce(arrays[comm.rank], scale="float"))
        again = on_each(comms, lambda comm: comm.allreduce(arrays[comm.rank], scale="float"))
        mean = good(on_each(comms, lambda comm: comm.allreduce(arrays[comm.rank], "mean", scale="float")))
    assert len({each.tobytes() for each in (*sums, *again)}) == 1
    lanes = 1024 // arrays[0].itemsize
    expected = []
    for start in range(0, 2000, lanes):
        way = ChainRoute.of(start // lanes, Op.SUM, EVERYONE, EVERYONE, rings_of(algorithm, range(4)))
        expected.append(reduce(np.add, [arrays[rank][start : start + lanes] for rank in way.sums]))
    assert sums[0].tobytes() == np.concatenate(expected).tobytes()
    np.testing.assert_allclose(mean, sum(arrays) / 4, rtol=1e-4, atol=1e-2)


def test_floats_that_are_not_finite() -> None:
    arrays = [np.array([1.0, np.inf, np.nan], np.float32), np.array([1.0, -np.inf, 0.0], np.float32)]

    def ones_or(rank: int) -> Array:
        return np.ones(3, np.float32) if rank else arrays[0]

    with closing_all(ChainNetwork(2).communicators()) as comms:
        outcomes = on_each(comms, lambda comm: comm.allreduce(ones_or(comm.rank), scale="float"))
        assert [type(each) for each in outcomes] == [NotFiniteError, AbortedError]
        passed = good(on_each(comms, lambda comm: comm.allreduce(arrays[comm.rank], scale="float", nonfinite="propagate")))
        assert passed[0] == 2.0
        assert np.isnan(passed[1:]).all()


def test_only_chains_add_floats() -> None:
    with closing_all(PeerNetwork(2).communicators()) as comms:
        outcomes = on_each(comms, lambda comm: comm.allreduce(np.ones(3, np.float32), scale="float"))
        assert all(isinstance(each, UnsupportedError) for each in outcomes)
        assert "job create --algorithm chain" in str(outcomes[0])
    with closing_all(ChainNetwork(2).communicators()) as comms:
        outcomes = on_each(comms, lambda comm: comm.allreduce(np.ones(3, np.float16), scale="float"))
        assert all(isinstance(each, UnsupportedError) for each in outcomes)
        options: dict[str, Any]
        for options in ({"bits": 8}, {"exact": True}, {"residual": np.zeros(3, np.float32)}):
            ask = partial(Communicator.allreduce, x=np.ones(3, np.float32), scale="float", **options)
            outcomes = on_each(comms, ask)
            assert all(isinstance(each, UnsupportedError | AbortedError) for each in outcomes), options
