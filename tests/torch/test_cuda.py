# SPDX-License-Identifier: MIT
"""Tensors on a GPU: through pinned memory to netsum and back, in the order of their streams. Needs PyTorch and a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.torch.groups import on_each_group, process_groups

pytestmark = [pytest.mark.torch, pytest.mark.cuda]
RANKS = 3


def late(values: Any) -> Any:
    """A copy of a tensor that the GPU still has much to do for when this returns."""
    import torch

    slow = torch.ones(2048, 2048, device="cuda")
    for _ in range(20):
        slow = slow @ slow / 2048
    return values + slow.mean() - 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64", "bool"])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_tensor_is_lent_through_pinned_memory(dtype: str, transposed: bool) -> None:
    import torch
    from netsum.torch.numpy_view import lend

    tensor = torch.arange(12, device="cuda").reshape(3, 4).to(getattr(torch, dtype))
    given = tensor.t() if transposed else tensor
    lent = lend(given)
    assert lent.copied == 2 * tensor.nbytes
    wanted = given.cpu().contiguous().view(torch.uint8).flatten().numpy()
    np.testing.assert_array_equal(lent.array.view(np.uint8), wanted)
    lent.array.view(np.uint8)[...] = 0
    lent.give_back()
    assert not tensor.any()


def test_a_sum_waits_for_the_gpu_and_the_gpu_for_the_sum() -> None:
    import torch

    def call(group: Any) -> Any:
        tensor = late(torch.full((5000,), group.rank() + 1.0, device="cuda"))
        group.allreduce([tensor]).wait()
        doubled = tensor * 2  # no synchronization of our own
        return doubled.unique().tolist()

    with process_groups(RANKS) as groups:
        assert on_each_group(groups, call) == [[12.0]] * RANKS


def test_a_sum_on_a_side_stream_comes_back_on_it() -> None:
    import torch

    def call(group: Any) -> Any:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            tensor = late(torch.full((5000,), group.rank() + 1.0, device="cuda"))
            group.allreduce([tensor]).wait()
            tensor += 1
        stream.synchronize()
        return tensor.unique().tolist()

    with process_groups(RANKS) as groups:
        assert on_each_group(groups, call) == [[7.0]] * RANKS


def test_a_future_holds_tensors_on_the_gpu() -> None:
    import torch

    def call(group: Any) -> Any:
        tensor = torch.full((8,), group.rank() + 1.0, device="cuda")
        halved = group.allreduce([tensor]).get_future().then(lambda ended: ended.value()[0] / 2)
        found = halved.wait()
        return found.device.type, found.tolist()

    with process_groups(RANKS) as groups:
        assert on_each_group(groups, call) == [("cuda", [3.0] * 8)] * RANKS


def test_exchanges_of_tensors_on_the_gpu() -> None:
    import torch
    from torch.distributed import distributed_c10d as c10d

    def call(group: Any) -> list[Any]:
        rank = group.rank()
        root = c10d.BroadcastOptions()
        root.rootRank = 1
        sent = torch.tensor([rank, 7], device="cuda")
        gathered = torch.empty(RANKS, 2, dtype=torch.int64, device="cuda")
        swapped = torch.empty(RANKS, dtype=torch.int64, device="cuda")
        works = [
            group.all_gather_single(gathered, sent.clone()),
            group.all_to_all_single(swapped, torch.arange(RANKS, device="cuda") + 10 * rank, [], []),
            group.broadcast([sent], root),
        ]
        for work in works:
            work.wait()
        return [each.tolist() for each in (gathered, swapped, sent)]

    with process_groups(RANKS) as groups:
        for rank, got in enumerate(on_each_group(groups, call)):
            assert got == [[[each, 7] for each in range(RANKS)], [rank + 10 * each for each in range(RANKS)], [1, 7]]
