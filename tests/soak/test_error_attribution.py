# SPDX-License-Identifier: MIT
"""Ranks that an error may name, and what it may say: every kind of false attribution is detected, and a true one accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from netsum.report import Report
from netsum_testbed.verify.cells import CallKind as CellKind
from netsum_testbed.verify.cells import Cell

from tests.system.faults.make import Possible
from tests.system.faults.scenario import EventKind
from tests.system.soak.cases import RoundPlan, make_plan
from tests.system.soak.error_attribution import BAD_LINK, BUSY, History
from tests.system.soak.messages import Answer, Began, Failure, Left, NotJoined, Resynced, Resyncing, WorkerMessage


def plan_of(*, degrades: bool = False) -> RoundPlan:
    """A round of four ranks in which no rank sleeps."""
    plans = (make_plan(3, n, Possible()) for n in range(200))
    plan = next(plan for plan in plans if plan.degrades == degrades and plan.workers == 4)
    awake = [replace(step, cell=replace(step.cell, delays=(0.0,) * 4), late="accept") for step in plan.steps]
    return replace(plan, steps=tuple(awake))


def failed(name: str, text: str = "", missing: Sequence[int] = (), *, rank: int = 0, step: int = 5) -> Answer:
    """A call that began at 100 and gave up at 105."""
    return Answer(rank, step, 1, None, Report(), 100.0, Failure(name, True, text, tuple(missing)), when=105.0)


def began(rank: int, when: float, step: int = 5) -> Began:
    """A rank begins a step alone."""
    return Began(rank, step, 5.0, step + 1, when=when)


def done(rank: int, when: float, step: int = 5) -> Answer:
    """A rank has a step's result."""
    return Answer(rank, step, 1, None, Report(), when, when=when)


def history_of(words: Sequence[WorkerMessage], plan: RoundPlan | None = None) -> History:
    """Four ranks, all in call 5 at time 100, and what they say then."""
    history = History(plan or plan_of())
    for rank in range(4):
        history.take(began(rank, 100.0))
    for word in words:
        history.take(word)
    return history


def told(history: History) -> str:
    """All complaints."""
    return "\n".join(history.complaints())


TIMEOUT = failed("CallTimeoutError", "no result", [2])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "rank 2 is named, and it was in the same call"),
        ([done(2, 101.0)], "rank 2 is named, and it had gone on"),
        ([done(2, 101.0), began(2, 101.1, step=6)], "rank 2 is named, and it had gone on"),
        ([began(2, 100.2, step=4)], "rank 2 is named, and nothing had happened to any rank"),
    ],
)
def test_a_rank_that_keeps_up_must_not_be_named(words: Sequence[WorkerMessage], why: str) -> None:
    assert why in told(history_of([*words, TIMEOUT]))


@pytest.mark.parametrize("kind", [EventKind.STALL, EventKind.CUT, EventKind.KILL, EventKind.EVICT, BAD_LINK])
def test_a_delayed_rank_may_be_named(kind: str) -> None:
    history = history_of([TIMEOUT])
    history.begins(kind, [2], 101.0)
    assert told(history) == ""


@pytest.mark.parametrize("kind", [EventKind.RESTART_CONTROLLER, EventKind.HANG_CONTROLLER])
def test_calls_do_not_need_the_controller_and_joining_does(kind: str) -> None:
    resync = Resynced(1, 105.0, Failure("CallTimeoutError", True, "", (2,)), when=135.0)
    history = history_of([TIMEOUT, Resyncing(2, when=106.0), resync])
    history.begins(kind, None, 100.0).over = 100.5
    assert "rank 0, call 5: rank 2 is named" in told(history)
    assert "rank 1, resync" in told(history)
    history.begins(kind, None, 110.0)
    assert "rank 1, resync" not in told(history)


@pytest.mark.parametrize("kind", [EventKind.RESTART_SWITCH, EventKind.MOVE, BUSY])
def test_any_rank_may_be_named_when_the_path_of_all_was_down(kind: str) -> None:
    history = history_of([TIMEOUT])
    history.begins(kind, None, 101.0).over = 102.0
    assert told(history) == ""


def test_a_trouble_of_another_or_long_ago_or_later_is_no_excuse() -> None:
    history = history_of([TIMEOUT])
    history.begins(EventKind.STALL, [1], 101.0)
    history.begins(EventKind.CUT, [2], 20.0).over = 30.0
    history.begins(EventKind.CUT, [2], 105.5)
    history.begins(EventKind.RESTART_SWITCH, (), 101.0)  # a switch that the job does not use
    assert "rank 2 is named" in told(history)


def test_who_waits_behind_one_that_was_held_up_may_be_named_with_it() -> None:
    history = history_of([failed("CallTimeoutError", "no result", [1, 2])])
    history.begins(EventKind.STALL, [1], 101.0)
    assert told(history) == ""
    gone_on = history_of([done(2, 101.0), failed("CallTimeoutError", "no result", [1, 2])])
    gone_on.begins(EventKind.STALL, [1], 101.0)
    assert "rank 2 is named, and it had gone on" in told(gone_on)
    behind = history_of([began(2, 100.2, step=4), TIMEOUT])
    behind.begins(EventKind.STALL, [3], 101.0)
    assert told(behind) == ""


def test_a_rank_must_not_name_itself() -> None:
    assert "rank 0 is named, and it is the one that raises" in told(history_of([failed("CallTimeoutError", "", [0])]))


def test_whom_the_words_name_counts_too() -> None:
    text = "its switch has restarted, and ranks 1, 3 must still rejoin"
    history = history_of([failed("CallTimeoutError", text)])
    assert "rank 1 is said to be waited for" in told(history)
    assert "rank 3 is said to be waited for" in told(history)
    history.begins(EventKind.RESTART_SWITCH, None, 99.0)
    assert told(history) == ""


def test_a_resync_must_not_name_who_is_in_it() -> None:
    resync = Resynced(0, 105.0, Failure("CallTimeoutError", True, "", (2,)), when=135.0)
    assert "it was in its resync, too" in told(history_of([Resyncing(2, when=106.0), resync]))
    late = history_of([resync])
    late.begins(EventKind.STALL, [1], 103.0)
    assert told(late) == ""


def test_mismatch_and_others_never_come() -> None:
    for name in ("MismatchError", "RejectedError", "CommunicatorError", "NotFiniteError"):
        assert f"{name} should not have been raised" in told(history_of([failed(name)]))


def test_an_eviction_is_said_of_whom_it_happened_to() -> None:
    words = [failed("EvictedError"), failed("CallTimeoutError", "rank 3 was evicted", rank=1)]
    history = history_of(words)
    assert "rank 0, call 5: it was not: EvictedError" in told(history)
    assert "rank 3 was not evicted" in told(history)
    history.begins(EventKind.EVICT, [0], 99.0)
    history.begins(EventKind.EVICT, [3], 99.0)
    assert told(history) == ""


def test_aborted_needs_one_that_was_to_give_something_and_was_evicted() -> None:
    plan = plan_of()
    cell = Cell((1, 0, 0), 5, CellKind("broadcast", "", "int8"), 4, 10, root=2)
    steps = [*plan.steps[:5], replace(plan.steps[5], cell=cell)]
    history = history_of([failed("AbortedError")], replace(plan, steps=tuple(steps)))
    history.begins(EventKind.EVICT, [1], 99.0)
    assert "was evicted" in told(history)
    history.begins(EventKind.EVICT, [2], 99.0)
    assert told(history) == ""


@pytest.mark.parametrize("name", ["ResultLostError", "DegradedError"])
def test_being_late_is_for_jobs_that_degrade_and_calls_that_ask(name: str) -> None:
    assert "waits for every rank" in told(history_of([failed(name)]))
    history = history_of([failed(name)], plan_of(degrades=True))
    assert ("had not asked" in told(history)) == (name == "DegradedError")
    history = history_of([Resynced(0, 104.0, Failure(name, True, ""), when=105.0)], plan_of(degrades=True))
    assert "a resync waits for every rank" in told(history)


@pytest.mark.parametrize("degrades", [False, True])
def test_an_epoch_ends_for_a_reason(*, degrades: bool) -> None:
    def history(*words: WorkerMessage) -> History:
        return history_of([*words, failed("DesynchronizedError")], plan_of(degrades=degrades))

    assert "nothing had happened that ends an epoch" in told(history())
    assert told(history(Resyncing(1, when=103.0))) == ""
    assert told(history(Resyncing(1, when=103.0), Resyncing(0, when=105.1))) == "", "its own, which follows"
    before = history(Resyncing(1, when=50.0), Resyncing(0, when=52.0))
    assert "nothing had happened that ends an epoch" in told(before)
    restarted = history()
    restarted.begins(EventKind.RESTART_SWITCH, None, 101.0)
    assert ("nothing" in told(restarted)) == (not degrades), "a job that waits goes on after a restart"
    late = history_of([failed("DesynchronizedError", "this rank was so late that")], plan_of(degrades=degrades))
    assert ("nothing" in told(late)) == (not degrades)
    killed = history()
    killed.begins(EventKind.KILL, [3], 101.0)
    assert told(killed) == ""


def test_closed_follows_an_error_and_present_ranks_have_not_left() -> None:
    assert "no error had ended it" in told(history_of([failed("ClosedError")]))
    earlier = replace(failed("ClosedError", rank=0), when=105.1)
    assert told(history_of([failed("CallTimeoutError"), earlier])) == ""
    left = failed("CallTimeoutError", "waiting for rank 2 (h3), which has left", [2])
    history = history_of([left])
    history.begins(EventKind.STALL, [2], 101.0)
    assert "rank 2 had not left" in told(history)
    history.take(Left(2, None, 0, 0, when=104.0))  # type: ignore[arg-type]
    assert told(history) == ""


def test_the_controller_makes_no_member_wait_for_nothing() -> None:
    assert "nothing had happened" in told(history_of([failed("NotReadyError")]))
    assert told(history_of([Resyncing(1, when=103.0), failed("NotReadyError")])) == ""


@pytest.mark.parametrize("kind", [EventKind.RESTART_CONTROLLER, EventKind.HANG_CONTROLLER, BUSY])
def test_a_rank_is_not_let_in_for_a_reason(kind: str) -> None:
    refused = NotJoined(3, Failure("NotReadyError", True, "does not answer"), 60.0, when=90.0)
    assert "rank 3, join: nothing had happened" in told(history_of([refused]))
    history = history_of([refused])
    history.begins(kind, None, 70.0).over = 71.0
    assert told(history) == ""


def test_a_busy_machine_makes_no_rank_late() -> None:
    history = history_of([])
    history.begins(BUSY, None, 98.0).over = 101.0
    history.begins(BUSY, None, 104.0).over = 104.5
    history.begins(EventKind.STALL, [1], 102.0).over = 103.0
    assert history.busy(100.0, 105.0) == 1.5


def test_a_complaint_says_what_was_going_on() -> None:
    history = history_of([TIMEOUT])
    history.begins(EventKind.STALL, [1], 101.0).over = 103.0
    assert "called 5.0 s ago; stall of [1] -4.0..-2.0" in told(history)
