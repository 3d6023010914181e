# SPDX-License-Identifier: MIT
"""Calls of training loops without DistributedDataParallel, and sparse gradients: the same bits everywhere. Needs PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum import AbortedError, Communicator, MismatchError, NotFiniteError, UnsupportedError

from tests.hosts.calls import on_each, ranks
from tests.torch.groups import attempt, on_each_group, process_groups

pytestmark = pytest.mark.torch


def model(seed: int) -> Any:
    """A small model of mixed types, one part frozen and one without a gradient, with gradients that follow from the seed."""
    import torch

    torch.manual_seed(seed)
    made = torch.nn.ModuleList(
        [
            torch.nn.Linear(30, 20),
            torch.nn.Linear(5, 3, bias=False),
            torch.nn.Linear(4, 4).double(),
            torch.nn.Linear(6, 2).to(torch.bfloat16),
        ]
    )
    for parameter in made.parameters():
        parameter.grad = torch.randn(parameter.shape).to(parameter.dtype)
    made[1].weight.requires_grad_(False)
    made[0].bias.grad = None if seed == 1 else made[0].bias.grad
    return made


def gradients(made: Any) -> list[Any]:
    import torch

    return [
        np.zeros(parameter.shape) if parameter.grad is None else parameter.grad.to(torch.float64).numpy()
        for parameter in made.parameters()
    ]


@pytest.mark.parametrize("bucket_bytes", [*(pytest.param(size, marks=pytest.mark.full) for size in (1, 1000)), 25 << 20])
def test_gradients_become_their_mean_on_every_rank(bucket_bytes: int) -> None:
    from netsum.torch import average_gradients

    models = [model(seed) for seed in range(3)]
    before = [gradients(each) for each in models]
    with ranks(3) as communicators:
        outcomes = on_each(communicators, lambda comm: average_gradients(models[comm.rank], comm, bucket_bytes=bucket_bytes))
    assert outcomes == [None] * 3
    after = [gradients(each) for each in models]
    frozen = [not parameter.requires_grad for parameter in models[0].parameters()]
    for index, still in enumerate(frozen):
        if still:
            assert all(np.array_equal(old[index], new[index]) for old, new in zip(before, after, strict=True))
            continue
        mean = np.mean([each[index] for each in before], axis=0)
        assert all(np.array_equal(each[index], after[0][index]) for each in after)
        assert np.allclose(after[0][index], mean, rtol=1e-2, atol=1e-6)


def test_a_gradient_that_is_not_finite_changes_nothing_anywhere() -> None:
    from netsum.torch import average_gradients

    models = [model(seed) for seed in (2, 3)]
    models[1][2].weight.grad[1, 1] = float("nan")
    before = [gradients(each) for each in models]

    def average(comm: Communicator) -> None:
        average_gradients(models[comm.rank], comm, bucket_bytes=1000)

    with ranks(2) as communicators:
        assert [type(each) for each in on_each(communicators, average)] == [AbortedError, NotFiniteError]
        on_each(communicators, Communicator.barrier)
    for old, new in zip(before, [gradients(each) for each in models], strict=True):
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(old, new, strict=True))


def test_every_rank_begins_with_the_roots_parameters_and_buffers() -> None:
    import torch
    from netsum.torch import broadcast_parameters

    def made(seed: int) -> Any:
        torch.manual_seed(seed)
        mixed = torch.nn.ModuleList([torch.nn.Linear(7, 5).to(torch.bfloat16), torch.nn.BatchNorm1d(3)])
        mixed[1].running_mean += seed
        mixed[1].num_batches_tracked += seed
        mixed.register_buffer("view", torch.full((2, 3), float(seed)).t())
        mixed.register_buffer("flags", torch.tensor([True, seed == 1]))
        return mixed

    models = [made(seed) for seed in range(3)]
    with ranks(3) as communicators:
        told = on_each(communicators, lambda comm: broadcast_parameters(models[comm.rank], comm, 1))
    assert told == [None] * 3
    for each in models:
        for name, tensor in made(1).state_dict().items():
            assert torch.equal(each.state_dict()[name], tensor), name


def embedding(rank: int) -> Any:
    """A sparse gradient with rows of its own, rows that others have, and one that is there twice."""
    import torch

    made = torch.nn.Embedding(1000, 3, sparse=True)
    torch.manual_seed(rank)
    made(torch.tensor([7, 7, 100 * rank, 999])).mul(torch.randn(4, 3)).sum().backward()
    return made


def test_sparse_gradients_send_only_the_rows_that_some_rank_has() -> None:
    import torch
    from netsum.torch import average_gradients

    models = [embedding(rank) for rank in range(3)]
    dense = torch.stack([each.weight.grad.to_dense() for each in models]).mean(0)
    with ranks(3) as communicators:
        assert on_each(communicators, lambda comm: average_gradients(models[comm.rank], comm)) == [None] * 3
        assert all(comm.stats.bytes_sent < 1000 * 3 * 4 / 2 for comm in communicators)
    for each in models:
        assert each.weight.grad.is_sparse
        assert sorted(each.weight.grad.coalesce().indices()[0].tolist()) == [0, 7, 100, 200, 999]
        assert torch.equal(each.weight.grad.to_dense(), models[0].weight.grad.to_dense())
        torch.testing.assert_close(each.weight.grad.to_dense(), dense)


def rows_of(rows: int, shape: tuple[int, ...] = (3,), dtype: str = "float32") -> Any:
    import torch

    return torch.sparse_coo_tensor(
        [[0]], torch.ones(1, *shape, dtype=getattr(torch, dtype)), (rows, *shape), check_invariants=True
    )


@pytest.mark.parametrize(
    ("tensor", "op"),
    [
        (partial(rows_of, 997), "sum"),
        (partial(rows_of, 1000, (3, 1)), "sum"),
        (partial(rows_of, 1000), "mean"),
        (partial(rows_of, 1000, dtype="float64"), "sum"),
        (lambda: rows_of(1000).to_dense().to_sparse(2), "sum"),
    ],
    ids=["rows", "columns", "op", "type", "sparse dimensions"],
)
def test_sparse_tensors_that_differ_are_compared(tensor: Any, op: str) -> None:
    """Also where their marks fit into as many bytes, and their rows are as many."""
    from netsum.torch.sparse import reduce_sparse

    calls = [(lambda: rows_of(1000), "sum"), (tensor, op), (lambda: rows_of(1000), "sum")]
    with ranks(3) as communicators:
        got = on_each(communicators, lambda comm: reduce_sparse(comm, calls[comm.rank][0](), calls[comm.rank][1]))
    assert [type(each) for each in got] == [MismatchError] * 3, got


def test_the_ranks_are_told_what_is_wrong_with_a_sparse_tensor_of_one() -> None:
    from netsum.torch.sparse import reduce_sparse

    with ranks(2) as communicators:
        for op, dtype in (("max", "float32"), ("mean", "int32")):
            calls = [("sum", "float32"), (op, dtype)]
            got = on_each(
                communicators,
                lambda comm: reduce_sparse(comm, rows_of(9, (), calls[comm.rank][1]), calls[comm.rank][0]),  # noqa: B023
            )
            assert [type(each) for each in got] == [AbortedError, UnsupportedError], got
        total = on_each(communicators, lambda comm: reduce_sparse(comm, rows_of(9), "sum").to_dense()[0].tolist())
        assert total == [[2.0] * 3] * 2


def test_models_of_other_shapes_are_compared() -> None:
    """A model whose parameters together are as many."""
    import torch
    from netsum.torch import average_gradients, broadcast_parameters

    models = [torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 3, bias=False)]
    for call in (average_gradients, broadcast_parameters):
        with ranks(2) as communicators:
            got = on_each(communicators, lambda comm: call(models[comm.rank], comm))  # noqa: B023
        assert [type(each) for each in got] == [MismatchError] * 2, got
        assert "average_gradients" in str(got[0]) or "broadcast_parameters" in str(got[0])


def test_a_process_group_sums_sparse_tensors() -> None:
    import torch
    from torch.distributed import distributed_c10d as c10d

    torch.sparse.check_sparse_tensor_invariants.disable()  # torch warns those who have not said

    def call(group: Any) -> Any:
        rank = group.rank()
        tensor = torch.sparse_coo_tensor([[0, 2], [rank, 1]], [1.0, 2.0 + rank], (3, 4))
        group.allreduce([tensor]).wait()
        nothing = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0), (5,))
        group.allreduce([nothing]).wait()
        return tensor.to_dense().tolist(), nothing.to_dense().tolist()

    def largest(group: Any) -> None:
        options = c10d.AllreduceOptions()
        options.reduceOp = c10d.ReduceOp.MAX
        group.allreduce([torch.ones(3).to_sparse()], options).wait()

    with process_groups(2) as groups:
        wanted = [[1.0, 1.0, 0.0, 0.0], [0.0] * 4, [0.0, 5.0, 0.0, 0.0]]
        assert on_each_group(groups, call) == [(wanted, [0.0] * 5)] * 2
        assert all("a sum or mean, not 'max'" in str(each) for each in attempt(groups, largest))
