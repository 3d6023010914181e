# SPDX-License-Identifier: MIT
"""A block takes pushes: whose gradients make a step, in which order they are summed, who waits, and what outlives a restart."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.memory import LaneType, MemoryStatus
from netsum_memory.optimizer_rules import LocalOptimizer, OptimizerOptions, elastic
from netsum_memory.parameters import LEAVE, QUERY, Answer

from tests.examples import one_in
from tests.memory.blocks import SIZES, Memory, model, synchronous_step

OPTIMIZERS: list[dict[str, Any]] = [
    {"optimizer": "sgd", "lr": 0.1, "mean": False},
    {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.01},
    {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.01},
    {"optimizer": "lars", "lr": 1.0, "momentum": 0.9, "weight_decay": 1e-4},
    {"optimizer": "lamb", "lr": 0.01, "weight_decay": 0.01, "bias_correction": True},
]


def argument(answer: Answer) -> tuple[int, int]:
    return answer.argument >> 32, answer.argument & 0xFFFFFFFF


def floats(answer: Answer) -> list[float]:
    return [float(value) for value in np.frombuffer(answer.payload, np.float32)]


def one_block(**options: Any) -> Memory:
    return Memory(OptimizerOptions.of({"lr": 1.0, **options}), [np.zeros(2, np.float32)])


def values(*given: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(given, np.float32)


@pytest.mark.parametrize("options", OPTIMIZERS, ids=lambda options: options["optimizer"])
@given(seed=st.integers(0, 2**32 - 1), workers=st.integers(1, 5))
@one_in(8)
def test_steps_are_bit_equal_to_one_process_in_any_order(options: dict[str, Any], seed: int, workers: int) -> None:
    rng, randoms = Random(seed), np.random.default_rng(seed)
    given_options = OptimizerOptions.of({**options, "workers": workers})
    local = model(seed)
    memory = Memory(given_options, local)
    reference = LocalOptimizer(given_options, local)
    for step in range(1, 4):
        # A schedule; the second layer is a bias, without decay and layer-wise scaling.
        settings = [(options["lr"] / step,), (options["lr"] / step, 0.0, 0.0), (options["lr"] / step,)]
        gradients = [[randoms.normal(size=size).astype(np.float32) for size in SIZES] for _ in range(workers)]
        synchronous_step(memory, step, gradients, rng, settings)
        reference.step(gradients, settings)
        for mine, theirs in zip(memory.whole(), local, strict=True):
            np.testing.assert_array_equal(mine.view(np.uint32), theirs.view(np.uint32))
    for answer in memory.answers.values():
        assert (answer.status, argument(answer)) == (MemoryStatus.OK, (3, workers))


def test_a_step_waits_for_all_and_answers_all() -> None:
    memory = one_block(workers=3, mean=False)
    assert memory.push(0, 2, 1, values(1, 2)) == []
    assert memory.push(0, 0, 1, values(1, 2)) == []
    answers = memory.push(0, 1, 1, values(1, 2))
    assert sorted(answer.client for answer in answers) == [0, 1, 2]
    assert all((floats(answer), argument(answer)) == ([-3.0, -6.0], (1, 3)) for answer in answers)


def test_a_quorum_makes_the_step_and_the_late_one_is_told() -> None:
    memory = one_block(workers=3, quorum=2)
    memory.push(0, 1, 1, values(2, 2))
    assert len(memory.push(0, 2, 1, values(4, 4))) == 2
    (late,) = memory.push(0, 0, 1, values(100, 100))
    assert (floats(late), argument(late)) == ([-3.0, -3.0], (1, 0))


def test_who_is_ahead_of_the_block_is_refused() -> None:
    memory = one_block(workers=2, quorum=1)
    (refused,) = memory.push(0, 0, 2, values(1, 1))
    assert (refused.status, argument(refused)) == (MemoryStatus.MISMATCH, (0, 0))
    assert len(memory.push(0, 0, 1, values(1, 1))) == 1


def test_a_worker_that_comes_again_is_counted_once() -> None:
    memory = one_block(workers=2, mean=False)
    memory.push(0, 0, 1, values(1, 1))
    memory.push(0, 0, 1, values(50, 50))  # its second life
    answers = memory.push(0, 1, 1, values(1, 1))
    assert [argument(answer) for answer in answers] == [(1, 2), (1, 0), (1, 2)]
    assert {tuple(floats(answer)) for answer in answers} == {(-2.0, -2.0)}


def test_who_leaves_is_not_waited_for() -> None:
    memory = one_block(workers=3, mean=False)
    memory.push(0, 0, 1, values(1, 1))
    memory.push(0, 1, 1, values(1, 1))
    left, *released = memory.push(0, 2, LEAVE, None)
    assert (left.client, left.payload) == (2, bytes(8))
    assert [floats(answer) for answer in released] == [[-2.0, -2.0]] * 2
    memory.push(0, 2, 2, values(1, 1))  # and comes back
    assert memory.push(0, 0, 2, values(1, 1)) == []


def test_workers_must_agree_on_a_steps_settings() -> None:
    memory = one_block(workers=2)
    memory.push(0, 0, 1, values(1, 1), (0.5,))
    (refused,) = memory.push(0, 1, 1, values(1, 1), (0.25,))
    assert refused.status == MemoryStatus.MALFORMED
    assert len(memory.push(0, 1, 1, values(1, 1), (0.5,))) == 2


def test_the_step_so_far_is_told() -> None:
    memory = one_block()
    for step in (1, 2):
        memory.push(0, 0, step, values(1, 1))
    (answer,) = memory.push(0, 0, QUERY, None)
    assert (argument(answer), answer.payload) == ((2, 0), (2).to_bytes(8, "little"))


def test_a_layer_waits_for_its_norms_and_anyone_may_bring_them() -> None:
    """A worker that is late for the first phase learns the shares, and finishes the step where no other client has."""
    options = OptimizerOptions.of({"optimizer": "lars", "lr": 1.0, "workers": 2, "quorum": 1})
    memory = Memory(options, [np.ones(SIZES[0], np.float32)])
    for address in (0, 1):
        (answer,) = memory.push(address, 0, 1, np.ones_like(memory.parameters[address]))
        assert (answer.lane, argument(answer)) == (LaneType.FLOAT64, (1, 1))
    totals = memory.layer_totals([0, 1], 0)
    memory.send(0, 0, 1, LaneType.FLOAT64, totals)  # and dies
    memory.restart()
    (late,) = memory.push(0, 1, 1, np.ones_like(memory.parameters[0]))
    assert (late.lane, argument(late)) == (LaneType.FLOAT32, (1, 0))
    memory.push(0, 1, 1, None)
    memory.push(1, 1, 1, np.ones_like(memory.parameters[1]))
    assert memory.layer_totals([0, 1], 1) == totals
    (finished,) = memory.send(1, 1, 1, LaneType.FLOAT64, totals)
    assert argument(finished) == (1, 1)
    assert {block.applied for block in memory.blocks.values()} == {1}
    (again,) = memory.send(1, 0, 1, LaneType.FLOAT64, totals)
    assert again.payload == finished.payload
    (ahead,) = memory.send(1, 0, 3, LaneType.FLOAT64, totals)
    assert ahead.status == MemoryStatus.MISMATCH


def test_stale_gradients_are_applied_at_once_and_the_fast_wait() -> None:
    memory = one_block(workers=2, mode="stale", staleness=1)
    (first,) = memory.push(0, 0, 1, values(1, 0))
    assert (floats(first), argument(first)) == ([-1.0, 0.0], (1, 1))
    assert memory.push(0, 0, 2, values(1, 0)) == []  # two ahead of the other
    memory.restart()
    other, waited = memory.push(0, 1, 1, values(0, 1))
    assert (other.client, waited.client) == (1, 0) or (other.client, waited.client) == (0, 1)
    assert floats(other) == floats(waited) == [-2.0, -1.0]
    (again,) = memory.push(0, 1, 1, values(0, 1))  # its second life has made this step already
    assert (floats(again), argument(again)) == ([-2.0, -1.0], (1, 0))
    memory.push(0, 0, 3, values(0, 0))
    assert [answer.client for answer in memory.push(0, 1, LEAVE, None)] == [1, 0]


def test_elastic_averaging_pulls_both_ways() -> None:
    options = OptimizerOptions.of({"mode": "elastic", "moving_rate": 0.25, "workers": 2})
    center = np.zeros(2, np.float32)
    memory = Memory(options, [center])
    workers = [values(4, 8), values(-4, 0)]
    for step in (1, 2):
        for number, mine in enumerate(workers):
            (answer,) = memory.push(0, number, step, mine)
            elastic(options, center, mine)
            assert floats(answer) == mine.tolist()
            assert memory.parameters[0].tolist() == center.tolist()


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"optimizer": "rmsprop"}, "optimizer is one of sgd"),
        ({"learning_rate": 0.1}, "no option 'learning_rate'"),
        ({"lr": "0.1"}, "lr is"),
        ({"lr": float("nan")}, "finite"),
        ({"lr": -1.0}, "lr is 0 or more"),
        ({"workers": True}, "workers is int"),
        ({"workers": 2, "quorum": 3}, "quorum is 1 to"),
        ({"mode": "stale", "optimizer": "lamb"}, "norms of whole layers"),
        ({"mode": "stale", "workers": 2, "quorum": 1}, "no client waits"),
        ({"mode": "later"}, "mode is one of"),
        ({"nesterov": True}, "nesterov needs"),
        ({"block": 1000}, "block is a power of two from 64 to 8192 bytes"),
        ({"beta1": 1.0}, "beta1 is from 0 to 1"),
    ],
)
def test_wrong_options_are_named(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        OptimizerOptions.of(wrong)
