# SPDX-License-Identifier: MIT
"""Which reductions are defined for which types of torch, and what the tensors of a call must have in common: the rest is refused
on every rank. Needs PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.torch.groups import attempt, on_each_group, process_groups

pytestmark = pytest.mark.torch
RANKS = 3
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
COMPLEX = ("complex64", "complex128")
REAL, BITS = {"PRODUCT", "MIN", "MAX"}, {"BAND", "BOR", "BXOR"}
DEFINED = {
    **{dtype: {"SUM", "AVG", "PREMUL_SUM"} | REAL for dtype in FLOATS},
    **{dtype: {"SUM", "AVG"} | REAL | BITS for dtype in INTEGERS},
    **{dtype: {"SUM", "AVG", "PREMUL_SUM"} for dtype in COMPLEX},
    "bool": {"SUM"} | REAL | BITS,
    "float8_e4m3fn": set(),
    "float8_e5m2": set(),
}
OPERATIONS = {"SUM", "AVG", "PREMUL_SUM"} | REAL | BITS
CALLS = ("allreduce", "coalesced", "reduce", "reduce_scatter", "reduce_scatter_single")


def reduce_op(name: str, factor: Any = 0.5) -> Any:
    import torch

    if name == "PREMUL_SUM":
        return torch.distributed._make_nccl_premul_sum(factor)
    return getattr(torch.distributed.ReduceOp, name)


def reduction(group: Any, call: str, tensor: Any, op: Any) -> Any:
    """Make a reduction of a tensor whose length is a multiple of the ranks'; returns this rank's result: all of it, except for
    those that scatter, and for ranks 1 and 2 of a reduce to rank 0 what they gave."""
    import torch
    from torch.distributed import distributed_c10d as c10d

    if call in ("allreduce", "coalesced"):
        options = c10d.AllreduceOptions()
        options.reduceOp = op
        before = [torch.ones(2)] if call == "coalesced" and not tensor.is_complex() else []
        group.allreduce([tensor, *before], options).wait()
        return tensor
    if call == "reduce":
        options = c10d.ReduceOptions()
        options.reduceOp = op
        group.reduce([tensor], options).wait()
        return tensor
    options = c10d.ReduceScatterOptions()
    options.reduceOp = op
    parts = list(tensor.chunk(group.size()))
    output = torch.empty_like(parts[0])
    if call == "reduce_scatter":
        group.reduce_scatter([output], [parts], options).wait()
    else:
        group.reduce_scatter_single(output, tensor, options).wait()
    return output


def shares(got: list[Any], whole: Any, given: list[Any], call: str) -> bool:
    """True if the ranks have what the call gives each of the whole result."""
    import torch

    if call in ("allreduce", "coalesced"):
        return all(torch.equal(each, whole) for each in got)
    if call == "reduce":
        return all(torch.equal(each, wanted) for each, wanted in zip(got, [whole, *given[1:]], strict=True))
    return bool(torch.equal(torch.cat(got), whole))


def test_the_mean_of_integers_is_truncated_as_nccl_truncates_it() -> None:
    import torch

    def given(dtype: str, rank: int) -> Any:
        limits = np.iinfo(dtype)
        low = 0 if dtype.startswith("u") else -(limits.max // (RANKS if limits.bits == 64 else 1))
        top = limits.max // (2 * RANKS) if limits.bits == 64 else limits.max
        row = [[0, 1, 2, 7, top, low], [0, 0, 1, 6, top, low], [0, 0, 1, 4, top - 1, low + 2]][rank]
        if not dtype.startswith("u"):
            row = [*row, *(-each for each in row[:4]), -top, 5]
        return torch.from_numpy(np.array(row, dtype))

    def call(group: Any) -> list[Any]:
        average = reduce_op("AVG")
        return [
            reduction(group, name, given(dtype, group.rank()), average)
            for dtype in INTEGERS
            for name in CALLS
            if name != "coalesced"
        ]

    with process_groups(RANKS) as groups:
        outcomes = iter(zip(*on_each_group(groups, call), strict=True))
    for dtype in INTEGERS:
        tensors = [given(dtype, rank) for rank in range(RANKS)]
        sums = [sum(column) for column in zip(*(each.tolist() for each in tensors), strict=True)]
        wanted = torch.from_numpy(np.array([abs(each) // RANKS * (1 if each > 0 else -1) for each in sums], dtype))
        for name in CALLS:
            if name != "coalesced":
                assert shares(list(next(outcomes)), wanted, tensors, name), (dtype, name)


@pytest.mark.parametrize("call", CALLS)
def test_what_is_not_defined_is_refused_by_the_name_of_the_type(call: str) -> None:
    import torch

    undefined = [(op, dtype) for dtype, known in DEFINED.items() for op in sorted(OPERATIONS - known)]

    def refused(group: Any) -> list[str]:
        said = []
        for op, dtype in undefined:
            tensor = (torch.arange(6) % 2).to(getattr(torch, dtype))
            kept = tensor.float() if "float8" in dtype else tensor.clone()
            with pytest.raises(RuntimeError, match=rf"torch\.{dtype}\b") as caught:
                reduction(group, call, tensor, reduce_op(op))
            assert torch.equal(tensor.float() if "float8" in dtype else tensor, kept)
            said.append(str(caught.value))
        group.barrier().wait()
        return said

    with process_groups(RANKS) as groups:
        said = on_each_group(groups, refused)
    assert said == [said[0]] * RANKS
    assert all("UnsupportedError" in each for each in said[0])


@pytest.mark.parametrize("call", [each for each in CALLS if each != "coalesced"])
@pytest.mark.parametrize("dtype", COMPLEX)
def test_sums_and_means_of_complex_numbers(call: str, dtype: str) -> None:
    import torch

    def given(rank: int) -> Any:
        return torch.tensor([1 + 2j, 3, -4j, 1 - 1j, 0, 8 + 8j], dtype=getattr(torch, dtype)) * (rank + 1)

    def reduced(op: str, group: Any) -> Any:
        return reduction(group, call, given(group.rank()), reduce_op(op))

    tensors = [given(rank) for rank in range(RANKS)]
    with process_groups(RANKS) as groups:
        for op, factor in (("SUM", 6), ("AVG", 2), ("PREMUL_SUM", 3)):
            got = on_each_group(groups, partial(reduced, op))
            assert shares(got, tensors[0] * factor, tensors, call), op


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_factor_of_a_premultiplied_sum_is_a_real_number(dtype: str) -> None:
    import torch

    kind = getattr(torch, dtype)
    ones = {"dtype": torch.float32, "requires_grad": True}
    good = [0.5, torch.tensor(0.5), torch.tensor([0.5], dtype=torch.bfloat16), torch.tensor([[0.5]], **ones)]

    def call(group: Any) -> list[Any]:
        with pytest.raises(RuntimeError, match=r"must be real, and this is a torch\.complex64"):
            reduction(group, "allreduce", torch.ones(3, dtype=kind), reduce_op("PREMUL_SUM", torch.tensor(1 + 1j)))
        return [
            reduction(group, "allreduce", torch.full((3,), group.rank() + 1).to(kind), reduce_op("PREMUL_SUM", factor))
            for factor in good
        ]

    with process_groups(RANKS) as groups:
        for got in on_each_group(groups, call):
            assert all(torch.equal(each, torch.full((3,), 3).to(kind)) for each in got)


def test_the_mean_of_integers_is_not_the_call_that_their_sum_is() -> None:
    import torch

    def call(group: Any) -> Any:
        op = "AVG" if group.rank() == 1 else "SUM"
        return reduction(group, "allreduce", torch.ones(3, dtype=torch.int32), reduce_op(op))

    with process_groups(2) as groups:
        assert all("MismatchError" in str(each) for each in attempt(groups, call))


def lists(group: Any) -> Any:
    import torch

    sizes = [[2, 1], [1, 2]][group.rank()]
    expected = [[2, 2], [1, 2]][group.rank()]
    tensors = [torch.ones(each) for each in sizes]
    return group.alltoall([torch.zeros(each) for each in expected], tensors)


def single(group: Any) -> Any:
    import torch

    given, expected = [[2, 1], [1, 2]][group.rank()], [[2, 2], [1, 2]][group.rank()]
    output = torch.zeros(sum(expected), 3)
    return group.all_to_all_single(output, torch.ones(3, 3), expected, given)


@pytest.mark.parametrize(("call", "sizes"), [(lists, (1, 2)), (single, (3, 6))])
def test_sizes_of_an_all_to_all_that_do_not_agree_are_named_on_every_rank(
    call: Callable[[Any], Any], sizes: tuple[int, int]
) -> None:
    with process_groups(2) as groups:
        for outcome in attempt(groups, lambda group: call(group).wait()):
            assert f"rank 1 has {sizes[0]} elements for rank 0, which expects {sizes[1]} of it" in str(outcome)
        on_each_group(groups, lambda group: group.barrier().wait())


def test_sizes_whose_sum_is_right_are_still_compared() -> None:
    import torch

    def call(group: Any) -> Any:
        sent = [[1, 2, 0], [1, 1, 1], [1, 1, 1]][group.rank()]
        expected = [[2, 1, 0], [2, 1, 1], [0, 1, 1]][group.rank()]
        return group.all_to_all_single(torch.zeros(sum(expected)), torch.ones(3), expected, sent).wait()

    with process_groups(RANKS) as groups:
        for outcome in attempt(groups, call):
            assert "rank 0 has 1 elements for rank 0, which expects 2 of it" in str(outcome)


def scattered(group: Any, sizes: list[int]) -> Any:
    import torch
    from torch.distributed import distributed_c10d as c10d

    options = c10d.ReduceScatterOptions()
    options.reduceOp = c10d.ReduceOp.PRODUCT
    parts = list(torch.arange(1.0, 1 + sum(sizes)).split(sizes))
    output = torch.zeros(sizes[group.rank()])
    group.reduce_scatter([output], [parts], options).wait()
    return output.tolist()


def test_uneven_parts_of_a_product_are_compared() -> None:
    with process_groups(2) as groups:
        assert on_each_group(groups, lambda group: scattered(group, [1, 3])) == [[1.0], [4.0, 9.0, 16.0]]
        for outcome in attempt(groups, lambda group: scattered(group, [[1, 3], [3, 1]][group.rank()])):
            assert "rank 1 scatters [3, 1] elements to the ranks, and rank 0 [1, 3]" in str(outcome)
        on_each_group(groups, lambda group: group.barrier().wait())


@pytest.mark.parametrize(
    ("one", "other"),
    [("bfloat16", "int16"), ("float8_e4m3fn", "uint8"), ("float8_e4m3fn", "float8_e5m2"), ("bfloat16", "float16")],
)
@pytest.mark.parametrize("collective", ["broadcast", "all_gather", "all_to_all", "gather", "scatter"])
def test_types_of_one_width_are_not_taken_for_each_other(one: str, other: str, collective: str) -> None:
    import torch

    def call(group: Any) -> Any:
        kind = getattr(torch, [one, other][group.rank()])
        tensor, room = torch.ones(4).to(kind), torch.zeros(8).to(kind)
        here = group.rank() == 0
        calls: dict[str, Callable[[], Any]] = {
            "broadcast": lambda: group.broadcast([tensor]),
            "all_gather": lambda: group.all_gather_single(room, tensor),
            "all_to_all": lambda: group.all_to_all_single(room, torch.ones(8).to(kind), [], []),
            "gather": lambda: group.gather([list(room.chunk(2))] if here else [], [tensor]),
            "scatter": lambda: group.scatter([tensor], [list(room.chunk(2))] if here else []),
        }
        return calls[collective]().wait()

    with process_groups(2) as groups:
        assert all("MismatchError" in str(each) for each in attempt(groups, call))


def ones(*sizes: int, dtype: str = "float32") -> Any:
    import torch

    made = [torch.ones(size, dtype=getattr(torch, dtype)) for size in sizes]
    return made if len(made) > 1 else made[0]


def calls_of(group: Any, wrong: bool) -> dict[str, tuple[Callable[[], Any], str]]:
    """Calls, which are right or ``wrong``, and what is said of those that are."""
    import torch

    root, extra, kind = group.rank() == 0, 1 if wrong else 0, torch.float64 if wrong else torch.float32
    odd = torch.ones(2, dtype=kind)
    fp8 = ones(2).to(torch.float8_e5m2) if wrong else ones(2)
    return {
        "all_reduce": (lambda: group.allreduce([fp8]), "torch.float8_e5m2 cannot be reduced"),
        "all_reduce, coalesced": (
            lambda: group.allreduce_coalesced([ones(3), fp8, ones(4)]),
            "torch.float8_e5m2 cannot be reduced",
        ),
        "reduce": (lambda: group.reduce([fp8]), "torch.float8_e5m2 cannot be reduced"),
        "reduce_scatter": (
            lambda: group.reduce_scatter([ones(2 + extra)], [ones(2, 2)]),
            "a tensor of 2 elements in the place of one that has 3",
        ),
        "reduce_scatter, types": (
            lambda: group.reduce_scatter([ones(2)], [[odd, ones(2)]]),
            "torch.float32 and torch.float64",
        ),
        "reduce_scatter_single": (
            lambda: group.reduce_scatter_single(ones(2), ones(4 + extra)),
            "a tensor of 4 elements in the place of one that has 5",
        ),
        "all_gather": (lambda: group.allgather([ones(2, 2)], [ones(2 + extra)]), "of 3 elements in the place of one"),
        "all_gather, types": (lambda: group.allgather([ones(2, 2)], [odd]), "torch.float64 and torch.float32"),
        "all_gather_single": (lambda: group.all_gather_single(ones(4 + extra), ones(2)), "of 4 elements in the place"),
        "all_gather_single, types": (lambda: group.all_gather_single(ones(4), odd), "torch.float32 and torch.float64"),
        "gather": (lambda: group.gather([ones(2, 2 + extra)] if root else [], [ones(2)]), "of 2 elements in the place"),
        "gather, tensors": (
            lambda: group.gather([ones(2, 2)[: 2 - extra]] if root else [], [ones(2)]),
            "gather needs 2 tensors, one for each rank; there are 1",
        ),
        "gather, types": (
            lambda: group.gather([[odd, ones(2)]] if root else [], [ones(2)]),
            "float32 and torch.float64",
        ),
        "scatter": (
            lambda: group.scatter([ones(2)], [ones(2 + extra, 2 - extra)] if root else []),
            "of 2 elements in the place of one that has 3",
        ),
        "scatter, types": (lambda: group.scatter([ones(2)], [[odd, odd]] if root else []), "float32 and torch.float64"),
        "all_to_all": (
            lambda: group.alltoall(ones(1, 1)[: 2 - extra], ones(1, 1)),
            "all_to_all needs 2 tensors, one for each rank; there are 1",
        ),
        "all_to_all_single": (
            lambda: group.all_to_all_single(ones(4), ones(4), [2, 2], [2, 2 + extra]),
            r"the input of all_to_all has 4 rows, and its split sizes are \[2, 3\]",
        ),
        "all_to_all_single, negative": (
            lambda: group.all_to_all_single(ones(4), ones(4), [2 + 3 * extra, 2 - 3 * extra], [2, 2]),
            r"the output of all_to_all has 4 rows, and its split sizes are \[5, -1\]",
        ),
        "all_to_all_single, equally": (
            lambda: group.all_to_all_single(ones(4), ones(4 + extra), [], []),
            "has 5 rows, which 2 ranks cannot share equally",
        ),
        "all_to_all_single, types": (
            lambda: group.all_to_all_single(ones(2), odd, [], []),
            "torch.float32 and torch.float64",
        ),
    }


def test_who_is_wrong_says_so_and_the_others_are_told_at_once() -> None:
    def wrong_on_one(name: str, group: Any) -> Any:
        call, words = calls_of(group, wrong=group.rank() == 0)[name]
        with pytest.raises(RuntimeError, match=words if group.rank() == 0 else "AbortedError"):
            call().wait()
        calls_of(group, wrong=False)[name][0]().wait()

    with process_groups(2) as groups:
        for name in calls_of(groups[0], wrong=False):
            on_each_group(groups, partial(wrong_on_one, name))
