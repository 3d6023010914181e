# SPDX-License-Identifier: MIT
"""A leader and another rank of its host, as state machines: what the switch reports to the leader reaches both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from netsum.core.blocks import Block, BlockRejected, CallMismatch
from netsum.core.endpoint import Endpoint
from netsum.core.endpoint_factory import open_endpoint
from netsum.intranode.leader_endpoint import LeaderEndpoint
from netsum.intranode.member_endpoint import MemberEndpoint
from netsum.intranode.transport import NoLink
from netsum.settings import Settings
from netsum.transports import InMemoryTransport
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, Lane, Op, Outcome, Status

from tests.hosts.network import JOB_ID, descriptor
from tests.hosts.shared_hosts import Hosts

WINDOW = 8


class Pair:
    """Ranks 0 and 1 of a job of 3 are on one host."""

    def __init__(self, **changes: object) -> None:
        hosts = Hosts([2, 1])
        both = [open_endpoint(hosts.shared(descriptor(rank, 3, window=WINDOW, **changes))) for rank in (0, 1)]
        leader, member = both
        assert isinstance(leader, LeaderEndpoint)
        assert isinstance(member, MemberEndpoint)
        self.leader, self.member = leader, member
        self.endpoints: tuple[Endpoint, Endpoint] = leader, member
        self.sent: list[bytes] = []
        link = InMemoryTransport(self.sent.append)
        self.transports = leader.attach(link), member.attach(NoLink())
        self.results: list[list[Header]] = [[], []]
        self.lost = [0, 0]
        self.now = 0.0
        self.turn()

    def submit(self, number: int) -> None:
        for rank, endpoint in enumerate(self.endpoints):
            for _ in range(number):
                block = Block(3, Op.SUM, Lane.L32, bytes([rank + 1]) * CHUNK_BYTES)
                block.on_result = lambda header, _payload, rank=rank: self.results[rank].append(header)
                block.on_lost = lambda rank=rank: self.lose(rank)
                endpoint.submit(block)

    def lose(self, rank: int) -> None:
        self.lost[rank] += 1

    def turn(self) -> None:
        """Let both act until there is nothing more to take."""
        for _ in range(4):
            for endpoint, transport in zip(self.endpoints[::-1], self.transports[::-1], strict=True):
                transport.send(endpoint.poll(self.now))
                endpoint.receive(transport.recv(0.0), self.now)

    def from_switch(self, serial: int, **fields: int) -> None:
        """The leader gets this packet about a block."""
        header = Header(JOB_ID, self.leader.block_id(serial), gen_id=3, op=Op.SUM, lane=Lane.L32)._replace(**fields)
        payload = bytes(header.payload_bytes)
        self.leader.receive([memoryview(pack_header(header) + payload)], self.now)

    def result(self, serial: int, **fields: int) -> None:
        self.from_switch(serial, **{"worker_cnt": 3, "data_cnt": 3, "lane_cnt": CHUNK_BYTES // 4, **fields})

    def close(self) -> None:
        for transport in self.transports:
            transport.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_one_contribution_stands_for_both(pair: Pair) -> None:
    pair.submit(3)
    pair.turn()
    headers = [parse_header(packet) for packet in pair.sent]
    assert [(each.worker_cnt, each.data_cnt, each.src_id) for each in headers] == [(2, 2, 0)] * 3
    assert {packet[HEADER_BYTES:] for packet in pair.sent} == {b"\3" * CHUNK_BYTES}


def test_a_block_waits_for_all_ranks_of_the_host(pair: Pair) -> None:
    pair.leader.submit(Block(3, Op.SUM, Lane.L32))
    pair.turn()
    assert pair.sent == []
    known = pair.leader.explain(1.0)
    assert known == ("waiting for rank 1 on this host, which has not come to it", (1,))
    assert pair.member.explain(1.0) is None, "it waits for nothing"
    pair.member.submit(Block(3, Op.SUM, Lane.L32))
    pair.turn()
    assert len(pair.sent) == 1
    assert pair.leader.explain(1.0) is None, "only the controller knows"


@pytest.mark.parametrize("reason", [Outcome.UNKNOWN_JOB, Outcome.OUT_OF_WINDOW, Outcome.FINGERPRINT_MISMATCH])
def test_a_refusal_reaches_every_rank_once_for_each(pair: Pair, reason: Outcome) -> None:
    pair.submit(2)
    pair.turn()
    for _ in range(2):
        with pytest.raises(BlockRejected) as rejected:
            pair.from_switch(0, status=Status.REFUSED, reason=reason)
        assert rejected.value.reason is reason
        pair.member.poll(0.0)  # what came before may still be on its way
        with pytest.raises(BlockRejected) as rejected:
            pair.member.poll(0.0)
        assert (rejected.value.reason, rejected.value.serial) == (reason, 0)
        pair.member.poll(0.0)
    assert pair.member.stats.refusals == {reason.name: 2}


def test_a_refusal_with_an_unknown_reason_too(pair: Pair) -> None:
    pair.submit(1)
    pair.turn()
    with pytest.raises(BlockRejected):
        pair.from_switch(0, status=Status.REFUSED, reason=200)
    pair.member.poll(0.0)
    with pytest.raises(BlockRejected) as rejected:
        pair.member.poll(0.0)
    assert rejected.value.reason is None


def test_a_refusal_of_a_block_that_has_a_result_by_now_is_ignored(pair: Pair) -> None:
    pair.submit(2)
    pair.turn()
    with pytest.raises(BlockRejected):
        pair.from_switch(0, status=Status.REFUSED, reason=Outcome.UNKNOWN_JOB)
    pair.result(0)
    pair.turn()
    assert (pair.leader.base, pair.member.base) == (1, 1)
    pair.turn()


def test_results_from_before_the_calls_differed_are_taken_first(pair: Pair) -> None:
    pair.submit(3)
    pair.turn()
    pair.result(0)
    with pytest.raises(CallMismatch):
        pair.from_switch(1, status=Status.MISMATCH)
    member, transport = pair.member, pair.transports[1]
    member.poll(0.0)
    member.receive(transport.recv(0.0), 0.0)
    assert member.base == 1
    member.poll(0.0)
    with pytest.raises(CallMismatch):
        member.poll(0.0)
    member.poll(0.0)


@pytest.mark.parametrize("late", [False, True])
def test_a_partial_result_reaches_every_rank(late: bool) -> None:
    made = Pair(block_exp_ms=50.0, quorum=1)
    made.submit(1)
    made.turn()
    made.result(0, degraded=1, age_op=1 + late, worker_cnt=1 + (not late), data_cnt=1 + (not late))
    made.turn()
    assert [len(each) for each in made.results] == [1, 1]
    assert made.results[0] == made.results[1]
    for stats in (made.leader.stats, made.member.stats):
        assert (stats.degraded, stats.late) == (1, late)
    made.close()


def test_a_lost_block_is_lost_on_every_rank() -> None:
    made = Pair(block_exp_ms=50.0, quorum=1)
    made.submit(2)
    made.turn()
    made.from_switch(0, status=Status.STALE)
    made.turn()
    assert made.lost == [1, 1]
    assert (made.leader.stats.lost, made.member.stats.lost) == (1, 1)
    assert (made.leader.base, made.member.base) == (1, 1)
    made.from_switch(7, worker_cnt=2)
    made.turn()
    assert (made.leader.received_end, made.member.received_end) == (8, 8)
    made.close()


def test_only_the_leader_backs_off_and_every_rank_counts_it(pair: Pair) -> None:
    pair.submit(2 * WINDOW)
    pair.turn()
    assert len(pair.sent) == WINDOW
    for serial in range(WINDOW):
        pair.result(serial, backoff=1)
    pair.turn()
    assert len(pair.sent) == WINDOW, "the leader pauses"
    assert pair.leader.next_deadline() is not None
    assert pair.member.next_deadline() is None
    assert (pair.leader.next_serial, pair.member.next_serial) == (2 * WINDOW, 2 * WINDOW)
    assert (pair.leader.stats.backoffs, pair.member.stats.backoffs) == (WINDOW, WINDOW)


def test_a_narrower_window_is_that_of_every_rank(pair: Pair) -> None:
    for endpoint in pair.endpoints:
        endpoint.apply(Settings(window=2, chunks=1))
    pair.submit(WINDOW)
    pair.turn()
    assert (pair.leader.next_serial, pair.member.next_serial, len(pair.sent)) == (2, 2, 2)


def test_a_result_for_one_rank_of_the_host_has_a_payload_for_that_alone() -> None:
    made = Pair()
    payloads: list[list[int]] = [[], []]
    for rank, endpoint in enumerate(made.endpoints):
        for dest in (0, 1, 2):
            block = Block(3, Op.SUM, Lane.L32, bytes(CHUNK_BYTES), dest=dest)
            block.on_result = lambda _header, payload, rank=rank: payloads[rank].append(len(payload))
            endpoint.submit(block)
    made.turn()
    for serial in (0, 1):
        made.result(serial, dest=serial)
    made.result(2, dest=2, lane_cnt=0)
    made.turn()
    assert payloads == [[CHUNK_BYTES, 0, 0], [0, CHUNK_BYTES, 0]]
    made.close()


def test_a_notice_is_fetched_by_the_leader_for_all(pair: Pair) -> None:
    pair.submit(1)
    pair.turn()
    pair.from_switch(0, worker_cnt=3, data_cnt=3)
    pair.turn()
    assert len(pair.sent) == 2
    assert pair.results == [[], []]
    pair.result(0)
    pair.turn()
    assert [len(each) for each in pair.results] == [1, 1]
    assert pair.leader.stats.notices == 1


def test_the_key_by_which_the_switch_knows_the_host_stays_on_the_link() -> None:
    made = Pair(key="00000000000000ab")
    made.submit(1)
    made.turn()
    assert [parse_header(packet).key for packet in made.sent] == [0xAB]
    made.result(0)
    assert made.leader.stats.malformed == 1, "without the key it is from another sender"
    made.result(0, key=0xAB)
    made.turn()
    assert [[each.key for each in mine] for mine in made.results] == [[0], [0]]
    assert made.member.stats.malformed == 0
    made.close()
