# SPDX-License-Identifier: MIT
"""A member that is refused: it asks the controller, and continues, waits, or ends with the controller's words."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from netsum import (
    CallTimeoutError,
    Communicator,
    CommunicatorError,
    Descriptor,
    DesynchronizedError,
    EvictedError,
    NotReadyError,
    UnknownRankError,
)
from netsum.core.blocks import BlockRejected
from netsum.core.recovery import QUERY_INTERVAL, Recovery, RejoinReport, Stopped
from netsum.transports import InMemoryTransport
from netsum.wire.schema import Outcome

from tests.hosts.calls import allreduce, good, on_each, once_known, running
from tests.hosts.network import JOB_ID, descriptor
from tests.hosts.restarts import RestartingNetwork
from tests.threads import PATIENCE, until


def calls(comm: Communicator, number: int) -> list[Any]:
    return [comm.allreduce(np.arange(3000) + comm.rank + step).tobytes() for step in range(number)]


def expected(workers: int, number: int) -> list[bytes]:
    ranks = np.arange(workers)[:, None]
    return [(np.arange(3000) + ranks + step).sum(0).tobytes() for step in range(number)]


def test_calls_go_on_after_restarts_between_and_within_them() -> None:
    with running(RestartingNetwork(3)) as (network, communicators):
        assert on_each(communicators, lambda comm: calls(comm, 3)) == [expected(3, 3)] * 3
        network.restart()
        assert on_each(communicators, lambda comm: calls(comm, 3)) == [expected(3, 3)] * 3
        assert [comm.stats.resumes for comm in communicators] == [1] * 3
        assert {comm.descriptor.epoch for comm in communicators} == {network.epoch}
        # In the middle: two have begun a call, and have no result, when the switch forgets them.
        works = [comm.allreduce_async(np.full(9000, comm.rank)) for comm in communicators[:2]]
        assert not works[0].finished(0.1)
        network.restart()
        last = communicators[2].allreduce(np.full(9000, 2))
        np.testing.assert_array_equal(good([*[work.wait() for work in works], last]), np.full(9000, 3))
        assert [comm.stats.resumes for comm in communicators] == [2] * 3


def test_a_restart_while_they_rejoin() -> None:
    with running(RestartingNetwork(3)) as (network, communicators):
        good(allreduce(communicators, [np.ones(10)] * 3))
        network.restart()
        works = [comm.allreduce_async(np.full(9000, comm.rank)) for comm in communicators[:2]]
        while len(network.needs) < 2:
            assert not works[0].finished(0.001)
        with network.lock:  # it resumes the same epoch: no rank has been in the one between
            network.switch.restart()
            network.needs = {}
        last = communicators[2].allreduce(np.full(9000, 2))
        np.testing.assert_array_equal(good([*[work.wait() for work in works], last]), np.full(9000, 3))


def test_whom_the_controller_waits_for_is_in_the_timeout() -> None:
    def attempt(timeout: float) -> list[Any]:
        with running(RestartingNetwork(2)) as (network, communicators):
            good(allreduce(communicators, [np.ones(10)] * 2))
            network.restart()
            began = time.monotonic()
            outcomes = on_each(communicators[:1], lambda comm: comm.allreduce(np.ones(10), timeout=timeout))
            assert network.asked <= (time.monotonic() - began) / QUERY_INTERVAL + 2, "it is no busy loop"
            return outcomes if network.asked >= 2 else ["it is not known whether it queries again"]

    (outcome,) = once_known(attempt, 1.5, "ranks [1] must still rejoin")
    assert isinstance(outcome, CallTimeoutError)


def test_a_controller_that_is_away_is_asked_again() -> None:
    def attempt(timeout: float) -> list[Any]:
        with running(RestartingNetwork(2)) as (network, communicators):
            network.away = True
            network.restart()
            works = [comm.allreduce_async(np.ones(10)) for comm in communicators]
            assert not works[0].finished(0.3)
            network.away = False
            assert good([work.wait() for work in works]).tolist() == [2.0] * 10
            network.away = True
            network.restart()
            return on_each(communicators[:1], lambda comm: comm.allreduce(np.ones(10), timeout=timeout))

    (outcome,) = once_known(attempt, 0.4, "does not answer")
    assert isinstance(outcome, CallTimeoutError)


def test_a_member_that_is_taken_out_is_told_in_its_call() -> None:
    with running(RestartingNetwork(2)) as (network, communicators):
        network.evicted.add(1)
        del network.switch.jobs[JOB_ID]
        with pytest.raises(EvictedError, match="rank 1"):
            communicators[1].allreduce(np.ones(10))
        with pytest.raises(CommunicatorError):
            communicators[1].barrier()


def test_a_replaced_rank_ends_the_epoch_for_all() -> None:
    with running(RestartingNetwork(2)) as (network, communicators):
        good(allreduce(communicators, [np.ones(10)] * 2))
        network.join_anew(1)
        with pytest.raises(DesynchronizedError, match="has begun"):
            communicators[0].allreduce(np.ones(10))


class Asked:
    """A recovery whose controller answers from a list: a descriptor, or the error that it raises."""

    def __init__(self, *answers: Descriptor | Exception) -> None:
        self.queries: list[tuple[int, RejoinReport]] = []
        self._answers = list(answers)
        self.recovery = Recovery(descriptor(0, 2), self._ask, lambda _descriptor: InMemoryTransport())

    def _ask(self, epoch: int, report: RejoinReport) -> Descriptor:
        self.queries.append((epoch, report))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


ASKED = (Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER, Outcome.WRONG_PORT, Outcome.BAD_KEY, Outcome.STALE, Outcome.OUT_OF_WINDOW)


def test_only_what_a_new_epoch_explains_is_asked_about() -> None:
    for outcome in Outcome:
        assert Asked().recovery.note_refusal(BlockRejected(0, outcome)) is (outcome in ASKED)
    assert not Asked().recovery.note_refusal(BlockRejected(0, 99))
    assert not Asked().recovery.due(1e9)


@pytest.mark.parametrize("reason", [Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER, Outcome.WRONG_PORT])
def test_the_controller_may_know_of_nothing_yet(reason: Outcome) -> None:
    asked = Asked(descriptor(0, 2), NotReadyError("rank 1 must still rejoin"), descriptor(0, 2, epoch=8, resumes=7))
    recovery = asked.recovery
    assert recovery.note_refusal(BlockRejected(3, reason))
    assert recovery.due(1.0)
    assert recovery.request(4711, 1.0) is None
    assert "knows of no change" in recovery.reason
    assert not recovery.due(2.0), "asked again only when refused again"
    assert recovery.note_refusal(BlockRejected(3, reason))
    assert not recovery.due(1.0 + QUERY_INTERVAL / 2)
    assert recovery.due(1.0 + QUERY_INTERVAL)
    assert recovery.request(4711, 1.2) is None
    assert recovery.reason == "rank 1 must still rejoin"
    assert recovery.due(1.2 + QUERY_INTERVAL)
    new = recovery.request(4712, 1.4)
    assert new is not None
    recovery.resumed(new)
    assert (recovery.descriptor.epoch, recovery.reason) == (8, "")
    assert not recovery.due(9.0)
    assert asked.queries == [(7, None)] * 3


def resuming(epoch: int, retry: float = 0.1) -> NotReadyError:
    """The controller's answer while an epoch is about to resume the rank's."""
    error = NotReadyError(f"epoch {epoch} begins when all have rejoined")
    error.retry, error.next_epoch = retry, epoch
    return error


def test_a_rank_stops_when_it_is_told_of_the_next_epoch_and_then_reports() -> None:
    asked = Asked(resuming(8), resuming(8), NotReadyError("no answer"), resuming(9), descriptor(0, 2, epoch=9, resumes=7))
    recovery = asked.recovery
    assert recovery.note_refusal(BlockRejected(3, Outcome.UNKNOWN_JOB))
    recovery.request(4711, 1.0)
    assert (recovery.stopped, recovery.due(1.0)) == (True, True), "its report is not put off"
    recovery.request(4711, 1.0)
    assert not recovery.due(1.0 + QUERY_INTERVAL / 2)
    recovery.request(4712, 1.2)  # a result has arrived since
    assert (recovery.stopped, recovery.due(1.3)) == (True, True), "the controller has its report, whether it answers or not"
    recovery.request(4712, 1.4)
    assert recovery.due(1.4), "it was told of another one"
    new = recovery.request(4713, 1.4)
    assert new is not None
    recovery.resumed(new)
    assert (recovery.stopped, recovery.due(9.0)) == (False, False)
    reports = [Stopped(8, 4711), Stopped(8, 4712), Stopped(8, 4712), Stopped(9, 4713)]
    assert asked.queries == [(7, stopped) for stopped in (None, *reports)]


def test_a_rank_whose_question_is_open_goes_on() -> None:
    answer, told = threading.Event(), threading.Event()

    def ask(_epoch: int, _told: RejoinReport) -> Descriptor:
        told.set()
        answer.wait()
        raise resuming(8)

    recovery = Recovery(descriptor(0, 2), ask, lambda _descriptor: InMemoryTransport())
    recovery.note_inactivity()
    assert recovery.request(4711, 1.0) is None
    assert told.wait(PATIENCE)
    assert not recovery.stopped
    answer.set()
    until(lambda: recovery.request(4711, 2.0) is None and recovery.stopped)


@pytest.mark.parametrize("reason", [Outcome.STALE, Outcome.OUT_OF_WINDOW])
def test_what_no_epoch_explains_ends_it(reason: Outcome) -> None:
    recovery = Asked(descriptor(0, 2)).recovery
    assert recovery.note_refusal(BlockRejected(3, reason))
    with pytest.raises(CommunicatorError, match="of this epoch"):
        recovery.request(4711, 1.0)


@pytest.mark.parametrize("error", [DesynchronizedError("gone"), EvictedError("out"), UnknownRankError("deleted")])
def test_the_controllers_last_word_comes_through(error: Exception) -> None:
    recovery = Asked(error).recovery
    assert recovery.note_refusal(BlockRejected(3, Outcome.UNKNOWN_JOB))
    with pytest.raises(type(error)):
        recovery.request(4711, 1.0)


def test_a_link_that_cannot_be_opened_for_the_new_epoch() -> None:
    def closed(_descriptor: Descriptor) -> InMemoryTransport:
        raise OSError("no such interface")

    recovery = Recovery(descriptor(0, 2), lambda _epoch, _stopped: descriptor(0, 2, epoch=8), closed)
    with pytest.raises(CommunicatorError, match=r"epoch 8.*no such interface"):
        recovery.resumed(descriptor(0, 2, epoch=8))
