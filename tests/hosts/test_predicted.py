# SPDX-License-Identifier: MIT
"""``scale="predicted"``: no round trip while values change slowly, and results are never coarser than documented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.collectives.call import Context
from netsum.collectives.one_block import OneBlock
from netsum.communicator import Communicator
from netsum.core.progress import Flow
from netsum.numeric.exponents import coarseness
from netsum.numeric.fixed_point import float_lane, scale_bits
from netsum.transports.base import Packet, Transport
from netsum.wire.schema import Lane

from tests.hosts.calls import Array, allreduce, data, good, ranks
from tests.hosts.combiners import combiner  # noqa: F401 - each test by a switch and without
from tests.hosts.network import Around
from tests.hosts.patience import patient_ranks

LANES = {8: Lane.L8, 16: Lane.L16}


def predicted(communicators: list[Communicator], arrays: list[Any], **options: Any) -> Array:
    return good(allreduce(communicators, arrays, scale="predicted", **options))


def block_exponents(arrays: list[Array], width: int) -> Array:
    """Per element the smallest e with all magnitudes of its block below 2^e; very small for a block of zeros."""
    top = np.max(np.abs(np.stack(arrays).astype(np.float64)), axis=0)
    padded = np.zeros(-(-len(top) // width) * width)
    padded[: len(top)] = top
    largest = padded.reshape(-1, width).max(axis=1)
    return np.repeat(np.where(largest == 0, -2000, np.frexp(largest)[1]), width)[: len(top)]


FACTORS = st.sampled_from([0.0, 1.0, 1.5, 0.1, 2.0**-7, 1e4, 1e-4, 1e8, 1e-8, 1e-30])


@given(
    st.integers(1, 5),
    st.sampled_from(["float16", "float32", "float64"]),
    st.sampled_from([None, 8, 16]),
    st.sampled_from(["nearest", "stochastic"]),
    st.sampled_from(["sum", "mean"]),
    st.lists(st.lists(FACTORS, min_size=5, max_size=5), min_size=2, max_size=6),
    st.integers(0, 1000),
)
def test_the_error_is_within_the_bound_of_the_values_own_exponent(
    workers: int, dtype: str, bits: int | None, rounding: str, op: str, steps: list[list[float]], seed: int
) -> None:
    """``steps``: by what every rank multiplies its values in each call; some fall, some rise, some cancel out."""
    size = 700
    lane = float_lane(np.dtype(dtype)) if bits is None else LANES[bits]
    half = 0.5 if rounding == "nearest" else 1.0
    rank_quanta = half * (workers if op == "sum" else 1)
    with ranks(workers) as communicators:
        for step, factors in enumerate(steps):
            arrays = data("float64", (size,), seed + step % 2, 1) * workers
            arrays = [(-1) ** rank * each * factors[rank] for rank, each in enumerate(arrays)]
            arrays = [np.clip(each, -8000, 8000).astype(dtype) for each in arrays]
            result = predicted(communicators, arrays, op=op, bits=bits, rounding=rounding).astype(np.float64)
            true = np.sum(np.stack(arrays).astype(np.longdouble), axis=0) / (workers if op == "mean" else 1)
            own = block_exponents(arrays, 1024 // lane.bytes)
            tolerance = np.abs(true) * 2.0 ** (-11 if dtype == "float16" else -24 if dtype == "float32" else -51) + 1e-7 * (
                dtype == "float16"
            )
            error = np.abs(result - true)
            quanta = np.ldexp(1.0, own + coarseness(lane, workers) - scale_bits(lane, workers))
            assert np.all(error <= rank_quanta * quanta + tolerance)
            for comm in communicators:
                assert comm.report.quantum <= quanta.max(initial=0.0)
                assert np.all(error <= rank_quanta * comm.report.quantum + tolerance)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_small_values_after_large_ones_are_not_rounded_away(dtype: str) -> None:
    with ranks(2) as communicators:
        for values in (3e4, 1.0, 2.0**-14):
            ones = [np.full(5, values, dtype)] * 2
            assert predicted(communicators, ones).tolist() == (2.0 * ones[0].astype(np.float64)).astype(dtype).tolist()
            assert 0 < communicators[0].report.quantum < values * 2.0**-15


def test_values_that_cancel_out_are_not_sent_again() -> None:
    """Their sums say nothing of their scale: the ranks agree on that, and it was right. Nor does a rank with small values make
    the others repeat."""
    with ranks(2) as communicators:
        for _ in range(4):
            large = np.full(5, 1e8, np.float32)
            assert predicted(communicators, [large, -large]).tolist() == [0.0] * 5
            predicted(communicators, [large, np.full(5, 1e-8, np.float32)], op="mean")
        assert [comm.stats.redone for comm in communicators] == [0, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_while_values_change_slowly_nothing_is_done_again_and_no_round_is_added(dtype: str) -> None:
    arrays = data(dtype, (3000,), 3, 4)
    blocks = 3000 * np.dtype(dtype).itemsize // 1024 + 1  # and no opening
    with patient_ranks(4) as communicators:
        predicted(communicators, arrays)
        for factor in (0.7, 1.2, 0.4, 1.0, 0.5, 0.25, 0.125):
            before = communicators[0].stats.packets_sent
            predicted(communicators, [(each * factor).astype(dtype) for each in arrays])
            assert communicators[0].stats.packets_sent - before == blocks, factor
        assert communicators[0].stats.redone == 0


class Counted(Around):
    """``before[i]``: how many packets had been received when packet i was sent."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.received, self.before = 0, list[int]()

    def send(self, packets: Sequence[Packet]) -> None:
        self.before += [self.received] * len(packets)
        super().send(packets)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        packets = super().recv(timeout)
        self.received += len(packets)
        return packets


@pytest.mark.parametrize("scale", ["predicted", "agreed"])
def test_at_predicted_scales_a_call_is_one_round_trip(scale: str) -> None:
    """All that a rank sends is in progress before anything comes back; where scales are agreed on first, it is not."""
    made: list[Counted] = []

    def wrap(transport: Transport, _rank: int) -> Counted:
        made.append(Counted(transport))
        return made[-1]

    arrays = data("float32", (1000,), 3, 2)
    with patient_ranks(2, wrap) as communicators:
        for _ in range(2):  # the first call learns
            begun = [(len(each.before), each.received) for each in made]
            good(allreduce(communicators, arrays, scale=scale))
    for each, (first, received) in zip(made, begun, strict=True):
        sent = each.before[first:]
        assert len(sent) == 4 + (scale == "agreed")  # four blocks of 1 KiB, and where something is agreed on the opening
        assert (sent == [received] * len(sent)) is (scale == "predicted")


def test_zeros_cost_one_round_once() -> None:
    with patient_ranks(2) as communicators:
        predicted(communicators, [np.ones(5, np.float32)] * 2)
        packets = []
        for _ in range(4):
            before = communicators[0].stats.packets_sent
            assert predicted(communicators, [np.zeros(5, np.float32)] * 2).tolist() == [0.0] * 5
            packets.append(communicators[0].stats.packets_sent - before)
            assert communicators[0].report.quantum == 0.0
        assert packets == [2, 1, 1, 1]


def test_the_report_says_the_quantum() -> None:
    with ranks(2) as communicators:
        good(allreduce(communicators, [np.array([1.5, 2.0**-20], np.float32)] * 2))
        assert communicators[0].report.quantum == 2.0 ** (1 - 29)
        good(allreduce(communicators, [np.array([100, 200])] * 2))
        assert communicators[0].report.quantum == 0.0
        good(allreduce(communicators, [np.array([1.5, 2.0**-20], np.float32)] * 2, bits=8, op="mean"))
        assert communicators[0].report.quantum == 2.0 ** (1 - 5)


@given(
    st.integers(1, 4),
    st.sampled_from(["sum", "mean"]),
    st.sampled_from([None, 8, 16]),
    st.sampled_from([1, 100, 256]),
    st.lists(st.lists(FACTORS, min_size=4, max_size=4), min_size=3, max_size=6),
    st.integers(0, 1000),
)
def test_one_block_is_summed_as_many_are(
    workers: int, op: str, bits: int | None, size: int, steps: list[list[float]], seed: int
) -> None:
    """The same calls, where every other rank does not know that one block is simple, have the same bits and reports."""
    outcomes = []
    for simple in (lambda _rank: True, lambda rank: rank % 2 == 0, lambda _rank: False):
        with pytest.MonkeyPatch.context() as patch, ranks(workers) as communicators:
            of = OneBlock.of

            def some(context: Context, *rest: Any, simple: Any = simple, of: Any = of) -> OneBlock | None:
                return of(context, *rest) if simple(context.rank) else None

            patch.setattr(OneBlock, "of", some)
            said: list[Any] = []
            for factors in steps:
                arrays = [data("float32", (size,), seed, workers)[rank] * np.float32(factors[rank]) for rank in range(workers)]
                said.append(predicted(communicators, arrays, op=op, bits=bits).tobytes())
                said += [(comm.report, comm.stats.redone) for comm in communicators]
        outcomes.append(said)
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize(
    ("array", "simple"),
    [
        (np.linspace(-1, 1, 100, dtype="f4"), True),
        (np.linspace(-1, 1, 257, dtype="f4"), False),  # two blocks
        (np.full(100, 1e30, "f4"), False),  # a scale that could underflow
        (np.linspace(-1, 1, 100, dtype="f8"), False),
        (np.linspace(-1, 1, 100, dtype="f2"), False),
    ],
)
def test_what_is_not_simple_is_left_to_the_sum_of_many_blocks(
    array: Array, simple: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[OneBlock] = []
    send = OneBlock.send

    def noted(block: OneBlock) -> Flow:
        made.append(block)
        return send(block)

    monkeypatch.setattr(OneBlock, "send", noted)
    with ranks(2) as communicators:
        for _ in range(2):
            predicted(communicators, [array] * 2)
    assert len(made) == 2 * simple  # the first call has no prediction
