# SPDX-License-Identifier: MIT
"""The process group's calls as torch makes them, on ranks in memory. Needs PyTorch."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from tests.threads import PATIENCE, until
from tests.torch.groups import attempt, on_each_group, process_groups

pytestmark = pytest.mark.torch
RANKS = 3
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


def reduced(op: Any, tensors: list[Any]) -> Any:
    """Torch's own result for the tensors."""
    import torch

    stack = torch.stack([each.to(torch.float64) for each in tensors])
    kinds = {"SUM": stack.sum, "AVG": stack.mean, "PRODUCT": stack.prod, "MIN": stack.amin, "MAX": stack.amax}
    return kinds[op](0).to(tensors[0].dtype)


def bitwise(op: str, tensors: list[Any]) -> Any:
    result = tensors[0]
    for each in tensors[1:]:
        result = {"BAND": result & each, "BOR": result | each, "BXOR": result ^ each}[op]
    return result


def given(dtype: str, rank: int) -> Any:
    """A tensor of small whole numbers, which every type holds; no two ranks have the same."""
    import torch

    return ((torch.arange(12).reshape(3, 4) + 5 * rank) % 7 % (2 if dtype == "bool" else 7)).to(getattr(torch, dtype))


CASES = [(op, dtype) for dtype in FLOATS for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX")]
CASES += [(op, dtype) for dtype in INTEGERS for op in ("SUM", "MIN", "MAX", "BAND", "BOR", "BXOR")]
CASES += [(op, "bool") for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")]


@pytest.mark.parametrize("exact", [False, True])
def test_reductions_of_every_type_and_operation(exact: bool) -> None:
    import torch
    from torch.distributed import ReduceOp
    from torch.distributed import distributed_c10d as c10d

    def call(group: Any) -> list[Any]:
        got = []
        for op, dtype in CASES:
            every, root, part = (given(dtype, group.rank()) for _ in range(3))
            allreduce, reduce, scatter = c10d.AllreduceOptions(), c10d.ReduceOptions(), c10d.ReduceScatterOptions()
            for options in (allreduce, reduce, scatter):
                options.reduceOp = getattr(ReduceOp, op)
            reduce.rootRank = 1
            mine = torch.empty_like(part[0])
            works = [
                group.allreduce([every], allreduce),
                group.reduce([root], reduce),
                group.reduce_scatter_single(mine, part, scatter),
            ]
            assert all(work.wait() for work in works)
            got.append((every, root, mine))
        return got

    with process_groups(RANKS, exact=exact) as groups:
        outcomes = on_each_group(groups, call)
    for index, (op, dtype) in enumerate(CASES):
        tensors = [given(dtype, rank) for rank in range(RANKS)]
        as_bool = {"SUM": "BOR", "PRODUCT": "BAND", "MIN": "BAND", "MAX": "BOR"}.get(op, op)
        bits = op.startswith("B") or dtype == "bool"
        wanted = bitwise(as_bool if dtype == "bool" else op, tensors) if bits else reduced(op, tensors)
        for rank, got in enumerate(outcomes):
            every, root, mine = got[index]
            assert torch.allclose(every.double(), wanted.double(), rtol=1e-2), (op, dtype)
            assert torch.equal(every, outcomes[0][index][0]), "the same bits on every rank"
            assert torch.equal(mine, every[rank]), (op, dtype)
            assert torch.equal(root, every if rank == 1 else given(dtype, rank)), (op, dtype)


def test_a_factor_before_the_sum_and_complex_numbers() -> None:
    import torch
    from torch.distributed import distributed_c10d as c10d

    def call(group: Any) -> Any:
        options = c10d.AllreduceOptions()
        options.reduceOp = torch.distributed._make_nccl_premul_sum(0.5)
        halves, complexes = torch.full((4,), group.rank() + 1.0), torch.full((2,), 1 + 2j)
        group.allreduce([halves], options).wait()
        group.allreduce([complexes]).wait()
        return halves.tolist(), complexes.tolist()

    with process_groups(RANKS) as groups:
        assert on_each_group(groups, call) == [([3.0] * 4, [3 + 6j] * 2)] * RANKS


@pytest.mark.parametrize("dtype", ["bool", "int64", "bfloat16", "float32", "complex64", "float8_e4m3fn"])
def test_exchanges_carry_the_bytes_of_every_type(dtype: str) -> None:
    import torch
    from torch.distributed import distributed_c10d as c10d

    kind = getattr(torch, dtype)

    def tensor(*values: int) -> Any:
        return torch.tensor(values).to(kind)

    def call(group: Any) -> list[Any]:
        rank, every = group.rank(), range(RANKS)
        root = c10d.BroadcastOptions()
        root.rootRank = 2
        broadcast = tensor(rank, 1)
        rows = [torch.empty(each + 1).to(kind) for each in every]
        flat = torch.empty(RANKS, 2).to(kind)
        gathered = [torch.empty(2).to(kind) for _ in every] if rank == 0 else []
        scattered = torch.empty(2).to(kind)
        single, several = torch.empty(RANKS).to(kind), [torch.empty(rank + 1).to(kind) for _ in every]
        uneven = torch.empty(RANKS * (rank + 1)).to(kind)
        works = [
            group.broadcast([broadcast], root),
            group.allgather([rows], [tensor(*[rank] * (rank + 1))]),
            group.all_gather_single(flat, tensor(rank, rank)),
            group.gather([gathered] if gathered else [], [tensor(rank, 1)]),
            group.scatter([scattered], [[tensor(each, 1) for each in every]] if rank == 0 else []),
            group.all_to_all_single(single, tensor(*every), [], []),
            group.alltoall(several, [tensor(*[each] * (each + 1)) for each in every]),
            group.all_to_all_single(uneven, tensor(*[rank] * 6), [rank + 1] * RANKS, [each + 1 for each in every]),
        ]
        for work in works:
            work.wait()
        got = [broadcast, *rows, flat, *gathered, scattered, single, *several, uneven]
        return [each.float().tolist() if dtype.startswith("float8") else each.tolist() for each in got]

    def values(*numbers: Any) -> Any:
        return [values(*each) if isinstance(each, list) else tensor(each)[0].item() for each in numbers]

    with process_groups(RANKS) as groups:
        outcomes = on_each_group(groups, call)
    for rank, got in enumerate(outcomes):
        every = range(RANKS)
        wanted = [[2, 1], *([each] * (each + 1) for each in every), [[each, each] for each in every]]
        wanted += [[each, 1] for each in every] if rank == 0 else []
        wanted += [[rank, 1], [rank] * RANKS, *([rank] * (rank + 1) for _ in every)]
        wanted += [[each for each in every for _ in range(rank + 1)]]
        assert got == values(*wanted)


def test_views_scalars_nothing_and_leaves() -> None:
    import torch

    def call(group: Any) -> list[Any]:
        whole, leaf = torch.ones(4, 6), torch.ones(3, requires_grad=True)
        tensors = [whole.t()[::2], torch.tensor(2.0), torch.empty(0, 3), leaf, torch.ones(2, 2).t()]
        for work in [group.allreduce([each]) for each in tensors]:
            work.wait()
        group.allreduce_coalesced([leaf, whole]).wait()
        return [whole.tolist(), tensors[1].item(), leaf.tolist(), tensors[4].tolist()]

    row = [3.0 * RANKS, 3.0, 3.0 * RANKS, 3.0, 3.0 * RANKS, 3.0]
    with process_groups(RANKS) as groups:
        assert on_each_group(groups, call) == [[[row] * 4, 6.0, [9.0] * 3, [[3.0] * 2] * 2]] * RANKS


def test_what_is_refused_is_named_and_the_group_stays_usable() -> None:
    import torch
    from torch.distributed import DistBackendError

    def uneven(group: Any) -> None:
        group.allgather([[torch.empty(2)]], [torch.empty(2)]).wait()

    with process_groups(2) as groups:
        for outcome in attempt(groups, uneven):
            assert isinstance(outcome, DistBackendError)
            assert "needs 2 tensors, one for each rank; there are 1" in str(outcome)
        on_each_group(groups, lambda group: group.barrier().wait())


def test_errors_keep_their_words_in_work_and_future() -> None:
    import torch

    def call(group: Any) -> list[str]:
        options = torch.distributed.distributed_c10d.AllreduceOptions()
        options.reduceOp = torch.distributed.ReduceOp.SUM
        tensor = torch.tensor([1, 2**62])
        work = group.allreduce([tensor], options)
        until(work.is_completed)
        assert not work.is_success()
        assert tensor.tolist() == [1, 2**62]
        said = [str(work.exception())]
        for wait in (work.wait, work.get_future().wait):
            with pytest.raises(RuntimeError) as caught:
                wait()
            said.append(str(caught.value))
        return said

    with process_groups(4) as groups:
        for said in on_each_group(groups, call):
            assert all("SumOverflowError" in each and "does not fit 64 bits" in each for each in said)


def test_calls_are_under_way_at_once_and_a_wait_may_end_before_its_call() -> None:
    import torch

    def call(group: Any) -> Any:
        tensors = [torch.full((size,), float(group.rank() + 1)) for size in (1, 5000, 0, 300)]
        works = [group.allreduce([each]) for each in tensors]
        futures = [work.get_future() for work in works]
        means = [future.then(lambda done: [each / 3 for each in done.value()]) for future in futures]
        works[-1].wait()
        return [mean.wait()[0].tolist() for mean in means]

    def waits(group: Any) -> None:
        if group.rank() == 0:
            work = group.barrier()
            with pytest.raises(RuntimeError, match="still in progress"):
                work.wait(timedelta(milliseconds=1))
            asked.set()
            work.wait()
        else:
            assert asked.wait(PATIENCE)
            group.barrier().wait()

    asked = threading.Event()
    with process_groups(2) as groups:
        assert on_each_group(groups, call) == [[[1.0], [1.0] * 5000, [], [1.0] * 300]] * 2
        on_each_group(groups, waits)


def test_callbacks_run_at_once_if_the_call_was_waited_for() -> None:
    import torch

    def call(group: Any) -> list[int]:
        work = group.allreduce([torch.ones(3)])
        work.wait()
        threads: list[int] = []
        work.get_future().add_done_callback(lambda _: threads.append(threading.get_ident()))
        assert threads == [threading.get_ident()]
        halves: list[int] = work.get_future().then(lambda done: done.value()[0] / 2).wait().tolist()
        return halves

    with process_groups(2) as groups:
        assert on_each_group(groups, call) == [[1.0] * 3] * 2


def test_a_group_that_is_shut_down_leaves_no_thread_and_calls_raise() -> None:
    import torch

    before = set(threading.enumerate())
    with process_groups(2) as groups:
        first = groups[0].allreduce([torch.ones(3)])
        future = first.get_future()
        groups[0].shutdown()
        with pytest.raises(RuntimeError, match="ClosedError"):
            first.wait()
        with pytest.raises(RuntimeError, match="ClosedError"):
            future.wait()
        with pytest.raises(RuntimeError, match="ClosedError"):
            groups[0].barrier().wait()
    assert set(threading.enumerate()) <= before


def test_values_that_are_not_finite_pass_as_gradscaler_expects() -> None:
    import torch

    def call(group: Any) -> list[float]:
        tensor = torch.ones(300)
        tensor[0], tensor[1] = [float("nan"), 1.0][group.rank()], [float("inf"), 1.0][group.rank()]
        group.allreduce([tensor]).wait()
        return [*tensor[1:3].tolist(), float(tensor[0].isnan())]

    with process_groups(2) as groups:
        assert on_each_group(groups, call) == [[float("inf"), 2.0, 1.0]] * 2
