# SPDX-License-Identifier: MIT
"""Workers that train with the optimizer at a device in this process: the same bits as in one process, over bad links too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.core.progress import Flow
from netsum.errors import CallTimeoutError, MismatchError, UnsupportedError
from netsum.memory.parameters import Parameters, PushResult
from netsum.memory.run import Task
from netsum.transports import Transport
from netsum.wire.memory import Instruction, LaneType, MemoryHeader
from netsum_memory.optimizer_rules import Floats, LocalOptimizer, OptimizerOptions, elastic
from netsum_memory.parameters import ParameterBlock, ParametersKind

from tests.hosts.calls import allreduce, on_each, ranks, running
from tests.hosts.network import MemoryNetwork
from tests.hosts.stragglers import stragglers
from tests.memory.inside import Inside
from tests.threads import returned, together, until

SHAPES = ((50, 60), (60,), (60, 70))
SETTINGS = [(0.5,), (0.5,), (0.5,)]


def model(seed: int = 1) -> list[Floats]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]


def gradients(worker: int, step: int) -> list[Floats]:
    return model(1000 * worker + step + 10)


def begun(inside: Inside, number: int, links: Sequence[Transport] | None = None) -> list[Parameters]:
    """Workers over new links, or these, who are ready for the first step."""
    workers = [Parameters(inside.opened(link), model(), worker=worker) for worker, link in enumerate(links or [None] * number)]
    assert [mine.begin() for mine in workers] == [0] * number
    return workers


def train(workers: Sequence[Parameters], first: int, last: int) -> None:
    for step in range(first, last + 1):
        made = returned([partial(mine.step, gradients(mine.worker, step)) for mine in workers])
        assert made == [(step, len(workers))] * len(workers)


def local_steps(options: dict[str, Any], workers: int, steps: int) -> list[Floats]:
    """The parameters after so many steps in one process."""
    local = model()
    reference = LocalOptimizer(OptimizerOptions.of(options), local)
    for step in range(1, steps + 1):
        reference.step([gradients(worker, step) for worker in range(workers)])
    return local


def same(ours: Sequence[Floats], theirs: Sequence[Floats]) -> None:
    for mine, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        {"optimizer": "adamw"},
        {"optimizer": "lamb", "trust": 0.5},
    ],
    ids=lambda options: options["optimizer"],
)
def test_workers_have_the_bits_of_one_process(options: dict[str, Any]) -> None:
    options = {"lr": 0.1, "weight_decay": 0.01, "workers": 3, **options}
    inside = Inside("parameters", options)
    local = model()
    reference = LocalOptimizer(OptimizerOptions.of(options), local)
    workers = begun(inside, 3)

    def steps(mine: Parameters) -> None:
        for step in range(1, 4):
            made = mine.step(gradients(mine.worker, step), SETTINGS if step == 2 else None)
            assert made == (step, 3)

    returned([partial(steps, mine) for mine in workers])
    for step in range(1, 4):
        reference.step([gradients(worker, step) for worker in range(3)], SETTINGS if step == 2 else ())
    for mine in workers:
        same(mine.layers, local)
    late = Parameters(inside.opened(), model(7), worker=2)
    assert late.begin() == 3
    same(late.layers, local)


@pytest.mark.parametrize("parity", [0, 1])
def test_a_device_that_is_killed_goes_on_where_it_was(tmp_path: Path, parity: int) -> None:
    """Also in the midst of a step, for which a worker waits."""
    options = {"optimizer": "adam", "lr": 0.1, "workers": 2}
    inside = Inside("parameters", options, folder=tmp_path)
    first, second = begun(inside, 2)
    for step in range(1, 6):

        def push(step: int = step) -> None:
            until(lambda: bool(blocks(inside)) and all(0 in block.gradients for block in blocks(inside)))
            if step % 2 == parity:
                inside.checkpoint()
            inside.kill()
            second.step(gradients(1, step))

        returned([partial(first.step, gradients(0, step)), push])
        same(first.layers, local_steps(options, 2, step))
    same(second.layers, first.layers)


def blocks(inside: Inside) -> list[ParameterBlock]:
    kinds = [holding.shard.kind for holding in inside.device.holdings.all()]
    return [block for kind in kinds if isinstance(kind, ParametersKind) for block in list(kind.blocks.values())]


def test_workers_that_died_in_a_step_take_it_up_again() -> None:
    inside = Inside("parameters", {"lr": 1.0, "workers": 1})
    (first,) = begun(inside, 1)
    first.step(gradients(0, 1))
    partly = Parameters(inside.opened(), first.layers[:1], worker=0)
    partly.begin()
    partly.step(gradients(0, 2)[:1])  # the others of the model are a step behind now
    again = Parameters(inside.opened(), model(), worker=0)
    assert again.begin() == 2
    same(again.layers, [partly.layers[0], *first.layers[1:]])
    assert again.step(gradients(0, 2)) == (2, 1)  # in those alone
    same(again.layers[:1], partly.layers)
    assert again.step(gradients(0, 3)) == (3, 1)
    assert {block.applied for block in blocks(inside)} == {3}


def test_a_quorum_goes_on_and_the_late_one_follows() -> None:
    inside = Inside("parameters", {"lr": 1.0, "workers": 2, "quorum": 1})
    first, second = begun(inside, 2)
    for step in (1, 2):
        assert first.step(gradients(0, step)) == (step, 1)
    assert second.step(gradients(1, 1)) == (2, 0)
    same(second.layers, first.layers)
    assert second.step(gradients(1, 3)) == (3, 1)


def test_a_late_worker_finishes_a_layer_whose_workers_died() -> None:
    inside = Inside("parameters", {"optimizer": "lars", "lr": 1.0, "workers": 2, "quorum": 1})
    first, second = begun(inside, 2)

    def die(task: Task, arguments: Any, answers: Any) -> Flow:
        """Tell one block of the first layer and no more."""
        rows = {row: share for row, share in answers.shares.items() if first._blocks.layer_of[row] == 0}
        norms = first._blocks.totals(np.array(sorted(rows)), rows)[:1]
        header = MemoryHeader(Instruction.OPTIMIZE, length=16, lane=LaneType.FLOAT64)
        fields = {"data": norms.reshape(-1).view(np.uint8), "arguments": arguments[:1], "on_reply": lambda *_: None}
        first.memory.client.submit(first.memory.run(task, header, first._blocks.addresses[:1], **fields))
        yield task.done

    first._finish_layers = die  # type: ignore[method-assign]
    first.step(gradients(0, 1))
    assert sorted({block.applied for block in blocks(inside)}) == [0, 1]
    assert second.step(gradients(1, 1)) == (1, 0)
    assert {block.applied for block in blocks(inside)} == {1}
    same(second.layers, local_steps({"optimizer": "lars", "lr": 1.0}, 1, 1))


def test_stale_workers_run_ahead_no_further_than_agreed() -> None:
    inside = Inside("parameters", {"lr": 1.0, "workers": 2, "mode": "stale", "staleness": 2})
    first, second = begun(inside, 2)
    for step in (1, 2):
        assert first.step(gradients(0, step)) == (step, 1)
    with pytest.raises(CallTimeoutError):
        first.step(gradients(0, 3), timeout=0.2)
    second.step(gradients(1, 1))
    second.leave()
    again = Parameters(inside.opened(), model(), worker=0)
    assert again.begin() == 3  # it was done
    assert again.step(gradients(0, 4)) == (4, 1)
    expected = [layer.astype(np.float64) for layer in model()]
    for pushed in (gradients(0, 1), gradients(0, 2), gradients(0, 3), gradients(1, 1), gradients(0, 4)):
        expected = [layer - gradient for layer, gradient in zip(expected, pushed, strict=True)]
    for layer, wanted in zip(again.layers, expected, strict=True):
        np.testing.assert_allclose(layer, wanted, rtol=1e-5, atol=1e-5)


def test_elastic_workers_and_the_memory_attract_each_other() -> None:
    options = {"mode": "elastic", "moving_rate": 0.3, "workers": 2}
    inside = Inside("parameters", options)
    (first,) = begun(inside, 1)
    second = Parameters(inside.opened(), model(), worker=1)
    center, others = model(), model(5)
    for layer, other in zip(second.layers, others, strict=True):
        layer[...] = other
    for _ in range(3):
        second.average()
        for layer, other in zip(center, others, strict=True):
            elastic(OptimizerOptions.of(options), layer, other)
        same(second.layers, others)
    first.load()
    same(first.layers, center)
    with pytest.raises(UnsupportedError, match=r"average\(\)"):
        first.step(gradients(0, 1))


@pytest.mark.parametrize("optimizer", ["sgd", "lamb"])
def test_gradients_that_the_switch_has_summed(optimizer: str) -> None:
    """Rank 0 pushes the sum, and all ranks get the parameters by multicast."""
    inside = Inside("parameters", {"optimizer": optimizer, "lr": 0.1})
    with ranks(3) as communicators:
        members = [Parameters(inside.opened(), model(1 + comm.rank), comm=comm) for comm in communicators]
        returned([member.begin for member in members])
        local = model()
        reference = LocalOptimizer(OptimizerOptions.of({"optimizer": optimizer, "lr": 0.1}), local)
        for step in (1, 2):
            summed = allreduce(communicators, [flat(rank, step) for rank in range(3)], op="mean")
            returned([partial(member.step, gradients(rank, step)) for rank, member in enumerate(members)])
            parts = model()
            members[0]._blocks.part(summed[0], parts)
            reference.step([parts])
        for member in members:
            same(member.layers, local)


def members_of(inside: Inside, communicators: Sequence[Communicator]) -> list[Parameters]:
    """All ranks' models, whose gradients the switch sums."""
    members = [Parameters(inside.opened(), model(), comm=comm) for comm in communicators]
    returned([member.begin for member in members])
    return members


def test_after_an_eviction_the_gradients_of_those_left_count() -> None:
    inside = Inside("parameters", {"lr": 0.1})
    with running(MemoryNetwork(3)) as (network, communicators):
        members = members_of(inside, communicators)
        assert returned([partial(member.step, gradients(0, 1)) for member in members]) == [(1, 3)] * 3
        with network.lock:
            network.evict(2)
        for step, pushed in (
            (2, gradients(0, 2)),
            (3, [np.zeros_like(layer) for layer in model()]),
        ):  # zeros are not sent
            assert returned([partial(member.step, pushed) for member in members[:2]]) == [(step, 2)] * 2


def test_a_late_ranks_gradient_does_not_count() -> None:
    inside = Inside("parameters", {"lr": 0.1})
    with stragglers(3) as (network, communicators):
        members = members_of(inside, communicators)
        blocks = 1 + -(-flat(0, 1).nbytes // 1024)  # that tell the call, and that carry it

        def step(comm: Communicator) -> PushResult:
            until(lambda: comm.rank != 1 or communicators[0].stats.degraded == blocks)
            return members[comm.rank].step(gradients(comm.rank, 1))

        with network.aging():
            steps = on_each(communicators, step)
        assert steps == [(1, 2), (1, 0), (1, 2)]
        assert returned([partial(member.step, gradients(rank, 2)) for rank, member in enumerate(members)]) == [(2, 3)] * 3


def test_ranks_whose_layers_have_other_shapes_are_told() -> None:
    inside = Inside("parameters", {})
    with ranks(2) as communicators:
        layers = [np.ones((4, 3), np.float32), np.ones((3, 4), np.float32)]
        members = [Parameters(inside.opened(), [layers[comm.rank]], comm=comm) for comm in communicators]
        assert [type(each) for each in together([member.begin for member in members])] == [MismatchError] * 2


def flat(rank: int, step: int) -> Floats:
    return np.concatenate([layer.reshape(-1) for layer in gradients(rank, step)])


@pytest.mark.parametrize(
    ("layers", "more", "word"),
    [
        ([np.zeros(4)], {}, "layer 0 is a float64 array"),
        ([np.zeros((4, 4), np.float32).T[:2]], {}, "C-contiguous"),
        ([np.zeros(1 << 21, np.float32)], {}, "these layers need"),
        ([np.zeros(4, np.float32)], {"worker": 2}, "worker is 0 to 1"),
    ],
)
def test_what_does_not_fit_is_said(layers: list[Any], more: dict[str, Any], word: str) -> None:
    inside = Inside("parameters", {"workers": 2})
    with pytest.raises(UnsupportedError, match=word):
        Parameters(inside.opened(), layers, **more)


def test_an_mtu_that_carries_no_block_is_said() -> None:
    inside = Inside("parameters", {})
    with pytest.raises(UnsupportedError, match="option block=1024"):
        Parameters(inside.opened(piece=1024), model())
    options = {"block": 1024, "optimizer": "lamb"}
    mine = Parameters(Inside("parameters", options).opened(piece=1024), model())
    mine.begin()
    mine.step(gradients(0, 1))
    same(mine.layers, local_steps(options, 1, 1))


def test_other_shapes_and_settings_are_refused() -> None:
    inside = Inside("parameters", {"workers": 2})
    first = Parameters(inside.opened(), model())
    with pytest.raises(UnsupportedError, match="shapes are"):
        first.step([np.zeros(3, np.float32)])
    with pytest.raises(UnsupportedError, match="gradients are float32"):
        first.step([layer.astype(np.float64) for layer in model()])
    with pytest.raises(UnsupportedError, match="finite and not negative"):
        first.step(gradients(0, 1), [(-1.0,)] * 3)


def test_workers_that_do_not_agree_are_told() -> None:
    inside = Inside("parameters", {"workers": 2, "quorum": 1})
    _, second = begun(inside, 2)
    second._steps += np.uint64(4)
    with pytest.raises(UnsupportedError, match=r"another step than this worker.*begin\(\) again"):
        second.step(gradients(1, 5))
    second.begin()
    assert second.step(gradients(1, 1)) == (1, 1)
