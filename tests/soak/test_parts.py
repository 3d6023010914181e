# SPDX-License-Identifier: MIT
"""The soak's pure parts: rounds follow from seeds, partial sums tell who is in them, and the judge sees what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.report import Report
from netsum_testbed.verify.cells import COLLECTIVES, Cell, groups_of
from netsum_testbed.verify.cells import CallKind as CellKind
from netsum_testbed.verify.data import Array
from netsum_testbed.verify.data import contribution as cell_contribution
from netsum_testbed.verify.run import DTYPES, FLOATS

from tests.system.faults.make import Possible
from tests.system.faults.scenario import Event, EventKind, LinkFaults, Scenario, Where
from tests.system.soak.cases import MAX_WORKERS, MIN_WORKERS, SHAPES, SITE, RoundCall, RoundPlan, make_plan
from tests.system.soak.error_attribution import History
from tests.system.soak.messages import Answer, combined, contribution, members_of
from tests.system.soak.oracle import Oracle
from tests.system.soak.run import SoakTotals

EVERYTHING = Possible(where=tuple(Where))


@given(seed=st.integers(0, 1 << 32), index=st.integers(0, 500))
def test_rounds_follow_from_the_seed(seed: int, index: int) -> None:
    plan = make_plan(seed, index, EVERYTHING)
    cells = [step.cell for step in plan.steps]
    assert plan == make_plan(seed, index, EVERYTHING)
    assert MIN_WORKERS <= plan.workers <= MAX_WORKERS
    assert (plan.block_exp_ms > 0) == (plan.quorum > 0) == plan.degrades
    assert plan.quorum <= plan.workers
    assert list(groups_of(cells))[-1].stop == len(plan.steps)
    assert len(set(plan.members)) == plan.workers
    leaves = {SITE.hosts[host].switch for host in plan.members}
    assert len(leaves) == (1 if plan.shape == "star" else 2)
    assert {event.what for event in plan.scenario.events if event.kind is EventKind.CUT_TRUNK} <= set(SITE.links)
    numbers = [number for group in groups_of(cells, 3) for number in group]
    assert numbers == list(range(3, len(plan.steps)))


def test_every_shape_and_collective_comes_up() -> None:
    plans = [make_plan(1, n, EVERYTHING) for n in range(60)]
    assert {plan.shape for plan in plans} == set(SHAPES)
    steps = [step for plan in plans for step in plan.steps]
    assert {step.cell.kind.collective for step in steps} == set(COLLECTIVES)
    assert any(step.cell.bits for step in steps)
    assert not [step for plan in plans if plan.partial for step in plan.steps if step.cell.kind.op and not step.tagged]


def test_a_given_scenario_is_what_goes_wrong() -> None:
    scenario = Scenario(links={7: LinkFaults()}, events=(Event(after=1, kind=EventKind.STALL, rank=3),))
    plan = make_plan(1, 0, EVERYTHING, scenario)
    assert plan.scenario == scenario
    assert plan.workers > 7


def degrading() -> RoundPlan:
    """A round whose job degrades."""
    return next(plan for n in range(100) if (plan := make_plan(3, n, EVERYTHING)).degrades and plan.workers == 4)


def step_of(dtype: str, op: str, count: int = 300, *, late: str = "accept") -> RoundCall:
    """An allreduce of four ranks, who tag what they give."""
    return RoundCall(Cell((1, 0, 0), 0, CellKind("allreduce", op, dtype), 4, count), late, tagged=True)


KINDS = [(dtype, op) for dtype in FLOATS for op in ("sum", "mean", "max")]
KINDS += [(dtype, op) for dtype in DTYPES if dtype not in FLOATS for op in ("sum", "max")]


@pytest.mark.parametrize(("dtype", "op"), KINDS)
def test_a_partial_result_tells_who_is_in_it(dtype: str, op: str) -> None:
    step = step_of(dtype, op)
    inputs = [contribution(step, rank) for rank in range(4)]
    for chosen in [(0, 1, 2, 3), (1, 3), (2,)]:
        members = members_of(op, inputs, combined(op, inputs, chosen), 32)
        assert members.matches.shape[1] == 10
        assert not members.unexplained.size
        assert members.exactly(chosen).all()
        if op != "max":
            assert not members.among([subset != chosen for subset in members.subsets]).any()
    wrong = combined(op, inputs, (0, 1))
    wrong[17] = -1
    assert members_of(op, inputs, wrong, 1).unexplained.tolist() == [17]
    assert members_of(op, inputs, wrong, 32).unexplained.tolist() == [0]


def answers(plan: RoundPlan, step: RoundCall, result: Array, report: Report, ranks: Sequence[int]) -> list[Answer]:
    """The same result on these ranks."""
    number = plan.steps.index(step)
    return [Answer(rank, number, 1, result.copy(), replace(report), 0.0) for rank in ranks]


def judged(plan: RoundPlan, given: Sequence[Answer], evicted: Sequence[int] = ()) -> list[str]:
    """The oracle's findings."""
    history = History(plan)
    history.begins(EventKind.EVICT, evicted, 0.0)
    judge = Oracle(plan, history)
    for answer in given:
        judge.take(answer)
    return [line for finding in judge.findings() for line in finding.complaints]


def sum_of(chosen: Sequence[int], *, late: str = "accept") -> tuple[RoundPlan, RoundCall, Array]:
    """A round that degrades with one step, and the sum over these ranks."""
    step = step_of("float32", "sum", late=late)
    plan = replace(degrading(), steps=(step,), quorum=2)
    return plan, step, combined("sum", [contribution(step, rank) for rank in range(4)], chosen)


PARTIAL = Report(blocks=3, min_worker_cnt=3, degraded=1)


def test_the_judge_lets_pass_what_is_right() -> None:
    plan, step, whole = sum_of((0, 1, 2, 3))
    assert judged(plan, answers(plan, step, whole, Report(blocks=3, min_worker_cnt=4), range(4))) == []
    plan, step, partial = sum_of((0, 1, 3))
    late = answers(plan, step, partial, replace(PARTIAL, missed=1), [2])
    assert judged(plan, answers(plan, step, partial, PARTIAL, [0, 1, 3]) + late) == []


def test_the_judge_sees_what_is_wrong() -> None:
    plan, step, partial = sum_of((0, 1, 3))
    silent = answers(plan, step, partial, Report(blocks=3, min_worker_cnt=3), [0])
    assert "no degraded block" in judged(plan, silent)[0]
    unaware = answers(plan, step, partial, PARTIAL, [2])
    assert "without this rank's part" in judged(plan, unaware)[0]
    too_many = answers(plan, step, partial, replace(PARTIAL, min_worker_cnt=4), [0])
    assert "fewer ranks than the 4" in judged(plan, too_many)[0]
    lonely_plan, lonely_step, lonely = sum_of((1,))
    few = answers(lonely_plan, lonely_step, lonely, replace(PARTIAL, min_worker_cnt=1), [1])
    assert "quorum of 2" in judged(lonely_plan, few)[0]
    flipped = partial.copy()
    flipped[100] += 1
    assert "1 parts of" in judged(plan, answers(plan, step, flipped, PARTIAL, [0]))[0]
    apart = answers(plan, step, partial, PARTIAL, [0]) + answers(plan, step, flipped, PARTIAL, [1])
    assert "another result than rank 0" in judged(plan, apart)[0]
    firm_plan, firm_step, result = sum_of((0, 1, 3), late="wait")
    assert any("late=wait" in line for line in judged(firm_plan, answers(firm_plan, firm_step, result, PARTIAL, [0])))


def test_an_evicted_rank_may_be_missing_in_silence() -> None:
    step = step_of("int32", "sum")
    scenario = Scenario(events=(Event(after=0, kind=EventKind.EVICT, rank=2),))
    plan = replace(degrading(), steps=(step,), block_exp_ms=0.0, quorum=0, scenario=scenario)
    result = combined("sum", [contribution(step, rank) for rank in range(4)], (0, 1, 3))
    given = answers(plan, step, result, Report(blocks=2, min_worker_cnt=3), [0, 1, 3])
    assert judged(plan, given, evicted=[2]) == []
    assert [line[:16] for line in judged(plan, given, evicted=[1])] == ["ranks [0, 1, 3]:"]


def test_what_was_carried_over_is_in_the_next_call_of_the_kind() -> None:
    first, second = step_of("float32", "sum", late="carry"), step_of("float32", "sum", late="carry")
    second = replace(second, cell=replace(second.cell, seed=(1, 0, 1), index=1))
    plan = replace(degrading(), steps=(first, second), quorum=1)
    inputs = [[contribution(step, rank) for rank in range(4)] for step in (first, second)]
    without = combined("sum", inputs[0], (0, 1, 3))
    report = replace(PARTIAL, missed=3)
    later = [own + (rest if rank == 2 else 0) for rank, (own, rest) in enumerate(zip(inputs[1], inputs[0], strict=True))]
    whole = Report(blocks=3, min_worker_cnt=4)
    right = [
        *answers(plan, first, without, report, [2]),
        *answers(plan, second, combined("sum", later, range(4)), whole, [2]),
    ]
    assert judged(plan, right) == []
    lost = combined("sum", inputs[1], range(4))
    assert "no sum" in judged(plan, [*right[:1], *answers(plan, second, lost, whole, [2])])[0]


def test_exact_jobs_are_checked_by_the_reference_of_verify() -> None:
    plan = next(p for n in range(100) if not (p := make_plan(3, n, EVERYTHING)).partial and p.workers == 3)
    steps = (step for step in plan.steps if step.cell.kind.collective == "allreduce" and step.cell.size > 10)
    step = next(step for step in steps if step.cell in plan.base.calls)
    plan = replace(plan, steps=(step,))
    result = np.zeros(step.cell.form, step.cell.kind.dtype)
    result.reshape(-1)[:] = 1
    assert judged(plan, answers(plan, step, result, Report(), range(3)))


def test_cells_are_checked_where_a_rank_has_a_result() -> None:
    kind = CellKind("all_gather", "", "int32")
    cell = Cell((1, 0, 0), 0, kind, 3, 6, counts=((1,), (2,), (3,)), even=False)
    plan = next(p for n in range(100) if (p := make_plan(3, n, EVERYTHING)).workers == 3)
    step = RoundCall(cell)
    plan = replace(plan, steps=(step,))
    right = np.concatenate([cell_contribution(cell, rank) for rank in range(3)])
    assert judged(plan, answers(plan, step, right, Report(), [0, 2])) == []
    assert "differ" in judged(plan, answers(plan, step, right[::-1].copy(), Report(), [1]))[0]
    without = right[[0, 3, 4, 5]]
    gone = Report(evicted=(1,))
    assert judged(plan, answers(plan, step, without, gone, [0, 2]), evicted=[1]) == []
    assert "do not say so" in judged(plan, answers(plan, step, without, Report(), [0, 2]), evicted=[1])[0]
    assert "int32[4]" in judged(plan, answers(plan, step, without, gone, [0, 2]))[0]


@pytest.mark.parametrize("name", ["wrong", "hangs", "late_errors", "blamed"])
def test_anything_wrong_is_exit_code_1(name: str) -> None:
    totals = SoakTotals("embedded", calls=5)
    assert totals.exit_code == 0
    setattr(totals, name, 1)
    assert totals.exit_code == 1
    assert SoakTotals("embedded").exit_code == 1


def test_calls_are_described() -> None:
    step = step_of("int8", "sum", late="wait")
    step = replace(step, cell=replace(step.cell, kind=CellKind("reduce", "sum", "int8"), root=1))
    assert step.describe() == "reduce sum of int8[300] root 1, late=wait"
