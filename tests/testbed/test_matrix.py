# SPDX-License-Identifier: MIT
"""`make matrix` itself: what it covers, what it prints, how it ends, and that a wrong result does not pass."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from netsum import AbortedError, Communicator
from netsum.collectives.options import TYPES as SUPPORTED
from netsum.wire.schema import HEADER_BYTES
from netsum_testbed.checking import Screen
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import open_fabric
from netsum_testbed.verify.cells import COLLECTIVES, KINDS, REDUCTIONS, SIZES, CallKind, Cell
from netsum_testbed.verify.check import reduced
from netsum_testbed.verify.data import contribution

from tests.system.matrix.command import MatrixOptions, MatrixTotals, make_cells, matrix, run
from tests.system.traffic.costs import COSTS, Place, headers

SHORT = MatrixOptions(jobs=2, seed=4, workers=(3,), sizes=(0, 65, 700), loss=(0.0,))


def test_the_kinds_are_those_that_the_library_has() -> None:
    for name in REDUCTIONS:
        kinds = {(kind.op, kind.dtype) for kind in KINDS if kind.collective == name}
        assert kinds == {
            (op, dtype) for op, types in SUPPORTED.items() for dtype in types if name == "allreduce" or op != "product"
        }
    assert len(set(KINDS)) == len(KINDS)
    assert {kind.collective for kind in KINDS} == set(COLLECTIVES)
    assert all(hasattr(Communicator, name) and hasattr(Communicator, f"{name}_async") for name in COLLECTIVES)


def some_cells(number: int, workers: int) -> tuple[Cell, ...]:
    return make_cells(3, 0, number, workers=workers, most_packets=5000)


def test_kinds_come_once_before_one_comes_again_and_sizes_all_come() -> None:
    made = some_cells(2 * len(KINDS), 4)
    for deal in (made[: len(KINDS)], made[len(KINDS) :]):
        assert {cell.kind for cell in deal} == set(KINDS)
    assert {cell.size for cell in made} == set(SIZES)
    assert max(cell.packets for cell in made) <= 5000
    assert made == some_cells(2 * len(KINDS), 4)
    drawn = Counter((cell.even, cell.in_place, cell.strided, cell.joined) for cell in made)
    assert len(drawn) == 16


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_counts_are_rows_that_there_are(workers: int) -> None:
    for cell in some_cells(len(KINDS), workers):
        if cell.kind.collective == "all_to_all":
            assert [sum(row) for row in cell.counts] == [cell.size] * workers
        elif cell.counts:
            assert sum(map(sum, cell.counts)) == cell.size
        if cell.kind.dtype and cell.size < 2000:
            for rank in range(workers):
                given = contribution(cell, rank)
                assert (given.shape, given.dtype.name) == ((cell.rows(rank),), cell.kind.dtype)
                assert given.tobytes() == contribution(cell, rank).tobytes()


@pytest.mark.parametrize(
    ("op", "inputs", "result"),
    [
        ("min", [[0.0, 2.0], [-0.0, 1.0]], [-0.0, 1.0]),
        ("max", [[-0.0, 2.0], [0.0, -1.0]], [0.0, 2.0]),
        ("product", [[2.0, 3.0], [4.0, -0.0]], [8.0, -0.0]),
    ],
)
def test_reference_of_floats(op: str, inputs: list[list[float]], result: list[float]) -> None:
    for dtype in ("float16", "bfloat16", "float64"):
        got = reduced(op, [np.array(each, dtype) for each in inputs])
        assert got.tobytes() == np.array(result, dtype).tobytes()


def test_reference_of_integers() -> None:
    top = np.array([2**64 - 1, 5], np.uint64)
    other = np.array([1, 3], np.uint64)
    for op, result in (
        *(("max", [2**64 - 1, 5]), ("min", [1, 3]), ("and", [1, 1]), ("or", [2**64 - 1, 7])),
        *(("xor", [2**64 - 2, 6]), ("product", [2**64 - 1, 15])),
    ):
        assert reduced(op, [top, other]).tolist() == result
    signed = [np.array(each, np.int8) for each in ([-3, 3, 127, -128], [0, 0, 127, -128], [0, 0, 126, -127])]
    assert reduced("integer_mean", signed).tolist() == [-1, 1, 126, -127]
    assert reduced("integer_mean", signed[:2]).tolist() == [-1, 1, 127, -128]


@pytest.fixture(scope="module")
def small() -> Iterator[Fabric]:
    """A fabric of three hosts."""
    with open_fabric("embedded", hosts=3, rootless=True) as fabric:
        yield fabric


def run_short(fabric: Fabric) -> tuple[MatrixTotals, list[str]]:
    said: list[str] = []
    totals = MatrixTotals("embedded", seed=SHORT.seed)
    run(fabric, SHORT, totals, Screen(said.append), "star")
    return totals, said


def test_a_wrong_result_is_counted_and_how_to_see_it_again_is_said(small: Fabric) -> None:
    honest = Communicator.reduce_scatter

    def off_by_one_bit(self: Communicator, x: Any, *args: Any, **options: Any) -> Any:
        result = honest(self, x, *args, **options)
        result.view(np.uint8)[:1] ^= 1
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Communicator, "reduce_scatter", off_by_one_bit)
        totals, said = run_short(small)
    assert totals.by_collective["reduce_scatter"].wrong == totals.wrong > 0
    assert totals.exit_code == 1
    assert totals.by_topology["star"].wrong == totals.wrong
    assert any("reduce_scatter" in line and line.startswith("star, job ") and "(3 ranks" in line for line in said)
    assert any("elements differ" in line for line in said)
    again = 'make matrix SWITCH=embedded SEED=4 ARGS="--topology star --only 0 --workers 3 --sizes 0,65,700 --loss 0.0"'
    assert any(again in line for line in said)


def test_a_call_that_raises_is_wrong(small: Fabric) -> None:
    def give_up(*_: Any, **__: Any) -> Any:
        raise AbortedError("for a test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Communicator, "broadcast", give_up)
        totals, said = run_short(small)
    # The job is over where a call raises on every rank; the cells before it were right.
    assert 0 < totals.by_collective["broadcast"].wrong == totals.wrong <= 2
    assert any("AbortedError: for a test" in line for line in said)


@pytest.mark.full
def test_the_last_line_is_one_json_object_with_every_collective_and_its_bytes() -> None:
    words = ["--switch", "embedded", "--rootless", "--seed", "2", "--jobs", "1", "--sizes", "1,65,1025",
             "--topology", "star,tree,leaf-spine"]  # fmt: skip
    ran = CliRunner().invoke(matrix, words)
    assert ran.exit_code == 0, ran.output
    last = json.loads(ran.output.splitlines()[-1])
    assert (last["switch"], last["seed"], last["wrong"], last["cases"], last["jobs"]) == ("embedded", 2, 0, 72, 3)
    assert list(last["by_collective"]) == list(COLLECTIVES)
    assert sum(each["cases"] for each in last["by_collective"].values()) == 72
    assert last["by_topology"] == {name: {"cases": 24, "wrong": 0} for name in ("star", "tree", "leaf-spine")}
    assert last["kinds"] == [72, len(KINDS)]
    assert [(each["collective"], each["who"]) for each in last["bytes"]] == [
        (cost.collective, who) for cost in COSTS for who in cost.ranks
    ]
    for each in last["bytes"]:
        for way in ("sent", "received"):
            assert each[way]["measured"] >= each[way]["expected"]
    assert any("all_to_all" in line and "S(n-1)/n" in line for line in ran.output.splitlines()[:-1])


def test_the_formulas() -> None:
    by_name = {
        (cost.collective, who): tuple(
            int(formula.share(Place(4)) * 2**18) + headers(cost, 4, 1 << 18, 4096) for formula in formulas
        )
        for cost in COSTS
        for who, formulas in cost.ranks.items()
    }
    opening, three_parts = 256 + HEADER_BYTES, 3 * 64 * HEADER_BYTES
    assert by_name["allreduce", "each"] == (2**18 + 64 * HEADER_BYTES + opening,) * 2
    assert by_name["allreduce bits=8", "each"] == (2**16 + 16 * HEADER_BYTES + opening,) * 2
    assert by_name["gather", "others"] == (2**18 + three_parts + opening, three_parts + opening)
    assert by_name["barrier", "each"] == (opening, opening)


@pytest.mark.parametrize("words", [["--workers", "0"], ["--sizes", "many"], ["--loss", "2"], ["--topology", "ring"]])
def test_what_cannot_be_is_a_usage_error(words: list[str]) -> None:
    ran = CliRunner().invoke(matrix, words)
    assert ran.exit_code == 2
    assert words[1] in ran.output


def test_a_cell_says_what_it_is() -> None:
    cell = Cell((1, 2, 3), 3, CallKind("reduce_scatter", "sum", "int8"), 2, 9, counts=((4, 5),), even=False, joined=True)
    assert cell.describe() == "reduce_scatter sum of int8[9] counts ((4, 5),), async"
    assert Cell((1, 2, 3), 3, CallKind("barrier"), 2, 0).describe() == "barrier"
