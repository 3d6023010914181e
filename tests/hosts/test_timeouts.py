# SPDX-License-Identifier: MIT
"""CallTimeoutError says how far the call came and, if known, which ranks it waits for; a hung controller changes nothing."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest
from netsum import CallTimeoutError, NotReadyError, Work
from netsum.core import recovery
from netsum.core.blocks import Block
from netsum.core.progress import CallProgress
from netsum.core.recovery import REPLY_TIMEOUT, InactivityTimer, RejoinReport, TimeoutDiagnosis
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.peers import messenger
from netsum.peers.peer_endpoint import PeerEndpoint
from netsum.peers.wire import RANK, rank_of
from netsum.transports import Transport
from netsum.wire.schema import Lane, Op

from tests.hosts.calls import closing_all, on_each, once_known
from tests.hosts.network import Around, MemoryNetwork, descriptor
from tests.hosts.peers import PeerNetwork, peer_descriptor
from tests.threads import PATIENCE


class Hung:
    """A controller that takes requests and answers none. A caller gives up as the library's door does, or, where there is no
    ``limit``, when the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.asked: list[object] = []
        self.limit = True

    def explain(self, block: int) -> tuple[str, tuple[int, ...]]:
        self._hang(block, 3.0)
        return "the controller could not be asked why (timed out)", ()

    def rejoin(self, epoch: int, report: RejoinReport) -> NoReturn:
        self._hang((epoch, report), 1.0)
        raise NotReadyError("the controller does not answer: timed out")

    def _hang(self, query: object, limit: float) -> None:
        self.asked.append(query)
        self.over.wait(limit if self.limit else 60.0)

    open_transport = join_anew = group = None


@pytest.fixture
def hung() -> Iterator[Hung]:
    controller = Hung()
    yield controller
    controller.over.set()


def test_a_hung_controller_makes_no_rank_blame_a_present_one(hung: Hung) -> None:
    """Rank 3 does not call. The others wait for it, ask the controller meanwhile, and answer each other as before."""

    def attempt(timeout: float) -> list[Any]:
        network = PeerNetwork(4, algorithm="ring")
        with closing_all(network.communicators(explain=hung.explain, membership=hung)) as communicators:
            return on_each(communicators[:3], lambda comm: comm.allreduce(np.ones(3000), timeout=timeout))

    outcomes = once_known(attempt, 2.5)
    assert hung.asked, "nothing has come for a second: is there a new epoch?"
    assert all(isinstance(query, tuple) for query in hung.asked), "it knows nothing of blocks without a switch"
    for outcome in outcomes:
        assert isinstance(outcome, CallTimeoutError)
        assert outcome.missing == (3,), str(outcome)


def test_a_hung_controller_does_not_keep_a_timeout_back(hung: Hung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "REPLY_TIMEOUT", 0.1)
    hung.limit = False

    def attempt(timeout: float) -> set[type]:
        """The kinds of queries that the controller got until the timeout."""
        hung.asked.clear()
        with closing_all(MemoryNetwork(2).communicators(explain=hung.explain, membership=hung)) as communicators:
            (outcome,) = on_each(communicators[:1], lambda comm: comm.barrier(timeout=timeout))
            assert isinstance(outcome, CallTimeoutError)
            assert outcome.missing == ()
            assert "whom it waits for is not known: the controller does not answer" in str(outcome)
            return {type(query) for query in hung.asked}

    found = attempt(timeout := 1.5)
    while found != {int, tuple} and timeout < PATIENCE:  # the machine is busy
        found = attempt(timeout := 2 * timeout)
    assert found == {int, tuple}


class Slow(Around):
    """A link that brings one packet at a time."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._come: Sequence[memoryview] = []
        self._pause = threading.Event()

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        self._come = self._come or super().recv(timeout)
        first, self._come = self._come[:1], self._come[1:]
        self._pause.wait(0.002)
        return first

    def fileno(self) -> int | None:
        return None


@pytest.mark.parametrize(("dtype", "lane_bytes"), [("float32", 4), ("int64", 1)])
def test_a_call_that_is_too_large_says_how_far_it_came_and_blames_no_rank(dtype: str, lane_bytes: int) -> None:
    def explain(block: int) -> tuple[str, tuple[int, ...]]:
        return f"waiting for rank 1: block {block} has just been sent", (1,)

    array = np.ones(5000 * 1024, dtype)
    blocks = array.size * lane_bytes // 1024

    def attempt(timeout: float) -> list[Any]:
        with closing_all(MemoryNetwork(2).communicators(lambda inner, _rank: Slow(inner), explain=explain)) as communicators:
            return on_each(communicators, lambda comm: comm.allreduce(array, timeout=timeout))

    outcomes = attempt(timeout := 1.0)
    while any(": 0 of" in str(outcome) for outcome in outcomes):  # the machine is busy
        outcomes = attempt(timeout := 2 * timeout)
    for outcome in outcomes:
        assert isinstance(outcome, CallTimeoutError)
        found = re.search(rf"; allreduce {dtype} \(5120000,\) sum: ([\d,]+) of {blocks:,} blocks done; results", str(outcome))
        assert found is not None, str(outcome)
        assert int(found[1].replace(",", "")) < blocks
        assert outcome.missing == ()
        assert "it needs more time" in str(outcome)


def test_blocks_done_are_those_of_data_in_this_call() -> None:
    progress = CallProgress("allreduce")
    assert progress.describe(5) == "allreduce"
    progress = CallProgress("allreduce", first=0xFFFFFFFE, opening=3, blocks=24400)
    told = {0xFFFFFFF0: "0", 0xFFFFFFFE: "0", 1: "0", 2: "1", 14415: "14,414", 30000: "24,400"}
    for base, done in told.items():
        assert progress.describe(base) == f"allreduce: {done} of 24,400 blocks done"
    progress.skipped = 400
    assert progress.describe(11) == "allreduce: 410 of 24,400 blocks done"


def waiting(timeout: float) -> tuple[Work[Any], SwitchEndpoint, InactivityTimer]:
    """A call whose first block has waited since the moment 0; its time is over at ``timeout``."""
    endpoint = SwitchEndpoint(descriptor(0, 2))
    endpoint.submit(Block(0, Op.SUM, Lane.L32))
    endpoint.poll(0.0)
    work: Work[Any] = Work(None, iter(()), 0, timeout)  # type: ignore[arg-type]
    work.deadline = timeout
    inactivity = InactivityTimer()
    inactivity.expired(endpoint.base, 0.0, waiting=True)
    return work, endpoint, inactivity


def test_who_does_not_answer_ahead_of_the_deadline_is_not_waited_for(hung: Hung) -> None:
    work, endpoint, inactivity = waiting(60.0)
    one = TimeoutDiagnosis(hung.explain)
    one.query_early(work, endpoint, inactivity, 60.0 - REPLY_TIMEOUT - 0.1)
    assert not hung.asked
    for now in (60.0 - REPLY_TIMEOUT, 59.0):
        one.query_early(work, endpoint, inactivity, now)
    error = one.error(work, endpoint, inactivity, 60.0)
    assert hung.asked == [4096]
    assert (error.block_id, error.missing) == (4096, ())
    assert "not known" in str(error)


def test_who_answers_is_asked_again_at_the_end() -> None:
    answers = [("waiting for rank 1", (1,)), ("waiting for rank 2", (2,))]
    work, endpoint, inactivity = waiting(60.0)
    one = TimeoutDiagnosis(lambda _block: answers.pop(0))
    one.query_early(work, endpoint, inactivity, 58.0)
    assert one._early is not None
    assert one._early.done(10.0)
    assert one.error(work, endpoint, inactivity, 60.0).missing == (2,)


def test_no_diagnosis_is_requested_while_results_come() -> None:
    work, endpoint, inactivity = waiting(60.0)
    inactivity.expired(7, 59.5, waiting=True)
    one = TimeoutDiagnosis(lambda _block: ("waiting for rank 1", (1,)))
    one.query_early(work, endpoint, inactivity, 60.0)
    assert one._early is None
    assert one.error(work, endpoint, inactivity, 60.0).missing == ()


class Peers:
    """The window of rank 0 of three; the test speaks for the others."""

    def __init__(self) -> None:
        self.endpoint = PeerEndpoint(peer_descriptor(0, 3, algorithm="ring"))
        self.others = {rank: PeerEndpoint(peer_descriptor(rank, 3, algorithm="ring")) for rank in (1, 2)}

    def begin(self, endpoint: PeerEndpoint) -> None:
        endpoint.submit(Block(0, Op.SUM, Lane.L32, bytes(256)))

    def wait(self, until: float, answering: Sequence[int]) -> None:
        """Let rank 0 wait in steps of 10 ms, while only those ranks answer."""
        for step in range(round(until * 100) + 1):
            self.step(step / 100, answering)

    def step(self, now: float, answering: Sequence[int]) -> None:
        for datagram in self.endpoint.poll(now):
            packet = b"".join(datagram)
            if rank_of(packet) in answering:
                self.others[rank_of(packet)].receive([memoryview(RANK.pack(0) + packet[RANK.size :])], now)
        for rank in answering:
            for datagram in self.others[rank].poll(now):
                packet = b"".join(datagram)
                if rank_of(packet) == 0:
                    self.endpoint.receive([memoryview(RANK.pack(rank) + packet[RANK.size :])], now)


def test_only_who_says_so_or_says_nothing_is_late() -> None:
    peers = Peers()
    peers.begin(peers.endpoint)
    peers.begin(peers.others[1])
    peers.wait(0.04, (1, 2))
    assert peers.endpoint.explain(0.04) == (
        "whom it waits for is not known: rank 1, 2 cannot have answered yet",
        (),
    ), "the controller was not asked yet"
    peers.wait(0.5, (1, 2))
    assert peers.endpoint.explain(0.5) == ("waiting for rank 2, which has not come to it", (2,))
    silent = Peers()
    silent.begin(silent.endpoint)
    silent.wait(1.0, ())
    assert silent.endpoint.explain(1.0)[1] == (1, 2)
    assert "from which nothing has come" in silent.endpoint.explain(1.0)[0]


def test_a_member_that_was_stopped_itself_blames_no_rank() -> None:
    """It has heard nothing for long, and has not asked either."""
    peers = Peers()
    for one in (peers.endpoint, *peers.others.values()):
        peers.begin(one)
    peers.wait(0.3, (1, 2))
    assert peers.endpoint.explain(0.3)[1] == ()
    peers.step(60.0, ())
    assert peers.endpoint.explain(60.0)[1] == ()
    for now in np.arange(60.0, 60.0 + 4 * messenger.QUERY_AFTER, 0.01):
        peers.step(float(now), (2,))
    assert peers.endpoint.explain(62.0)[1] == (1,)


def test_a_rank_that_has_done_its_part_and_left_is_not_blamed_for_another() -> None:
    peers = Peers()
    for one in (peers.endpoint, peers.others[1]):
        peers.begin(one)
    peers.wait(0.5, (1, 2))
    peers.endpoint.messenger.gone.add(1)
    assert peers.endpoint.explain(0.5)[1] == (2,)
    peers.endpoint.messenger.others_at[2] = peers.endpoint.block_id(5)
    assert peers.endpoint.explain(0.5) == ("waiting for rank 1, which has left", (1,))


def test_an_evicted_rank_is_not_waited_for() -> None:
    endpoint = PeerEndpoint(replace(peer_descriptor(0, 3, algorithm="ring"), evicted=(2,)))
    endpoint.submit(Block(0, Op.SUM, Lane.L32, bytes(256)))
    for step in range(100):
        endpoint.poll(step / 100)
    assert endpoint.explain(1.0)[1] == (1,)
