# SPDX-License-Identifier: MIT
"""The window as a pure state machine, against the model of the switch, over a network in virtual time: what it sends, and when.
That sums are exact whatever the network does is shown in ``tests/model/test_window.py``."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from netsum.core import retransmit
from netsum.core.blocks import Block, BlockRejected
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.packet_batch import ReceiveBatch
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, VERSION, Lane, Op, Outcome, Status

from tests.hosts.network import JOB_ID, contribution, descriptor, job, reply_bytes
from tests.model.rules import SwitchModel

LATENCY = 0.0005


def payload(value: int) -> bytes:
    """One chunk whose 32-bit lanes all hold ``value``."""
    return value.to_bytes(4, "big") * (CHUNK_BYTES // 4)


@dataclass
class Host:
    """A member: its window and what it has got, serial by serial."""

    endpoint: SwitchEndpoint
    got: dict[int, int] = field(default_factory=dict)

    def submit(self, value: int) -> None:
        serial = self.endpoint.submitted

        def take(header: Header, data: memoryview) -> None:
            assert serial not in self.got, "a result was handed over twice"
            assert header.status == Status.OK
            assert len({bytes(data)[at : at + 4] for at in range(0, CHUNK_BYTES, 4)}) == 1
            self.got[serial] = int.from_bytes(data[:4], "big")

        self.endpoint.submit(Block(serial & 0xFFFF, Op.SUM, Lane.L32, payload(value), on_result=take))


class Simulation:
    """Hosts around the model of the switch. Every packet takes ``latency``, unless the network is bad to it."""

    def __init__(self, workers: int, seed: int, *, loss: float = 0, again: float = 0, late: float = 0, **changes: Any):
        described = [descriptor(rank, workers, **changes) for rank in range(workers)]
        self.switch = SwitchModel({JOB_ID: job(described[0])})
        self.hosts = [Host(SwitchEndpoint(each)) for each in described]
        self.size = described[0].window
        self.random = random.Random(seed)
        self.loss, self.again, self.late = loss, again, late
        self.latency = LATENCY
        self.now = 0.0
        self.sent = [0] * workers
        self._serial = 0
        self._network: list[tuple[float, int, int, bool, bytes]] = []  # when, tie-break, member, to the switch, data

    def submit(self, blocks: int) -> None:
        """Submit so many blocks on every host, with the values 0, 1 and so on."""
        for host in self.hosts:
            for value in range(blocks):
                host.submit(value)

    def _travel(self, rank: int, up: bool, data: bytes) -> None:
        if self.random.random() < self.loss:
            return
        for _ in range(2 if self.random.random() < self.again else 1):
            delay = self.latency * (1 + 20 * self.random.random() if self.random.random() < self.late else 1)
            self._serial += 1
            heapq.heappush(self._network, (self.now + delay, self._serial, rank, up, data))

    def poll(self) -> None:
        for rank, host in enumerate(self.hosts):
            for packet in host.endpoint.poll(self.now):
                self.sent[rank] += 1
                assert host.endpoint.next_serial <= host.endpoint.base + self.size, "a block was sent ahead of the window"
                self._travel(rank, True, b"".join(packet))

    def step(self, until: float = float("inf")) -> bool:
        """Advance to the next event, at most to ``until``; False if that is reached."""
        self.poll()
        moments = [host.endpoint.next_deadline() for host in self.hosts]
        upcoming = [moment for moment in moments if moment is not None]
        upcoming += [self._network[0][0]] if self._network else []
        moment = min(upcoming, default=until)
        if moment >= until:
            self.now = until
            return False
        self.now = max(self.now, moment)
        while self._network and self._network[0][0] <= self.now:
            _, _, rank, up, data = heapq.heappop(self._network)
            if up:
                for reply in self.switch.step(contribution(data, rank)).replies:
                    self._travel(reply.port - 1, False, reply_bytes(reply))
            else:
                self.hosts[rank].endpoint.receive([memoryview(data)], self.now)
        return True

    def run(self, limit: float = 300.0) -> None:
        while not all(host.endpoint.idle for host in self.hosts):
            assert self.step(limit), f"not done after {limit} s: {[host.endpoint.base for host in self.hosts]}"


def lossless(**changes: Any) -> Simulation:
    return Simulation(2, 0, **{"block_bytes": 256, **changes})


def test_nothing_is_sent_twice_on_a_good_network() -> None:
    simulation = lossless()
    simulation.submit(500)
    simulation.run()
    assert simulation.sent == [500, 500]
    assert all(host.endpoint.stats.retransmissions == 0 for host in simulation.hosts)


def test_waiting_for_a_straggler_is_no_storm() -> None:
    simulation = lossless()
    early, late = simulation.hosts
    for value in range(8):
        early.submit(value)
    while simulation.step(10.0):
        pass
    # Ten seconds: one packet a time, ever more rarely.
    assert 8 < simulation.sent[0] <= 8 + 20
    for value in range(8):
        late.submit(value)
    simulation.run()
    assert simulation.sent[0] <= 8 + 20 + 8
    assert early.got == late.got == {serial: 2 * serial for serial in range(8)}


def test_a_lost_packet_is_missed_when_later_ones_have_results() -> None:
    simulation = lossless()
    simulation.submit(8)
    first, second = simulation.hosts
    for rank, packets in enumerate((first.endpoint.poll(0.0)[1:], second.endpoint.poll(0.0))):
        for packet in packets:
            simulation._travel(rank, True, b"".join(packet))
    simulation.run()
    assert simulation.now < retransmit.INITIAL_RTO, "the loss was found by the timer"
    assert first.endpoint.stats.fast_retransmissions >= 1


def test_a_whole_lost_flight_comes_back_in_a_few_timeouts() -> None:
    simulation = lossless()
    simulation.submit(8)
    for host in simulation.hosts:
        host.endpoint.poll(0.0)  # and none of it arrives
    simulation.run()
    assert simulation.now < 1.0
    assert simulation.hosts[0].got == {serial: 2 * serial for serial in range(8)}


@pytest.mark.parametrize("seed", range(3))
def test_losses_cost_round_trips_and_hardly_any_timeouts(seed: int) -> None:
    simulation = Simulation(8, seed, loss=0.05, again=0.05, late=0.05, window=64, block_bytes=256)
    simulation.submit(500)
    simulation.run()
    # In virtual time. Without losses: 8 ms. Found by the timer alone, they would cost seconds.
    assert simulation.now < 0.3
    assert sum(simulation.sent) < 2.5 * 8 * 500


def test_the_timeout_follows_the_round_trip_time_and_backs_off_to_a_cap() -> None:
    simulation = lossless()
    simulation.submit(50)
    simulation.run()
    endpoint = simulation.hosts[0].endpoint
    assert endpoint.stats.rtt == pytest.approx(2 * LATENCY, rel=0.5)
    simulation.hosts[0].submit(1)
    now, gaps = simulation.now, []
    endpoint.poll(now)
    for _ in range(14):
        deadline = endpoint.next_deadline()
        assert deadline is not None
        gaps.append(deadline - now)
        now = deadline
        assert len(endpoint.poll(now)) == 1
    assert gaps[0] == pytest.approx(retransmit.MIN_RTO)
    assert all(later == pytest.approx(min(2 * gap, retransmit.MAX_RTO)) for gap, later in pairwise(gaps))


def test_a_block_that_was_sent_twice_tells_no_round_trip_time() -> None:
    endpoint, statuses = lonely()
    deadline = endpoint.next_deadline()
    assert deadline is not None
    endpoint.poll(deadline)
    endpoint.receive([memoryview(pack_header(RESULT) + payload(2))], deadline + 0.001)
    assert statuses == [Status.OK]
    assert endpoint.stats.rtt == 0.0


def test_who_was_kept_waiting_once_is_not_slow_for_long() -> None:
    """Another rank came half a second late, and the links are congested: round trips without it set the pace."""
    endpoint = SwitchEndpoint(descriptor(0, 2))
    endpoint.submit_all([Block(9, Op.SUM, Lane.L32, payload(1)) for _ in range(100)])
    now, latency = 0.0, 0.5
    while not endpoint.idle:
        sent = [parse_header(bytes(packet[0])) for packet in endpoint.poll(now)]
        if sent:
            now, latency = now + latency, 2 * LATENCY
            results = [pack_header(RESULT._replace(block_id=header.block_id)) + payload(2) for header in sent]
            endpoint.receive(ReceiveBatch.of(results, congested=len(results)), now)
        else:
            deadline = endpoint.next_deadline()
            assert deadline is not None
            now = deadline
    assert now < 1.0


def lonely(**changes: Any) -> tuple[SwitchEndpoint, list[int]]:
    """A window with one block sent, and the list of statuses that its result brings."""
    endpoint = SwitchEndpoint(descriptor(0, 2, **changes), join_deadline=5.0)
    statuses: list[int] = []
    endpoint.submit(Block(9, Op.SUM, Lane.L32, payload(1), on_result=lambda header, _: statuses.append(header.status)))
    endpoint.poll(0.0)
    return endpoint, statuses


RESULT = Header(job_id=JOB_ID, block_id=4096, worker_cnt=2, gen_id=9, lane_cnt=64, op=Op.SUM, lane=Lane.L32, data_cnt=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": 4},
        {"block_id": 4095},
        {"block_id": 4097},
        {"gen_id": 8},
        {"version": VERSION + 1},
        {"op": Op.MAX},
        {"lane": Lane.L16, "lane_cnt": 128},
        {"dest": 1},
        {"worker_cnt": 3},
        {"degraded": 1},
        {"lane_cnt": 128},
        {"data_cnt": 0},
        {"status": 5},
    ],
    ids=str,
)
def test_a_result_that_makes_no_sense_is_counted_and_ignored(changes: dict[str, int]) -> None:
    endpoint, statuses = lonely()
    endpoint.receive([memoryview(pack_header(RESULT._replace(**changes)) + payload(2))], 0.1)
    assert (endpoint.stats.malformed, endpoint.base, statuses) == (1, 0, [])
    endpoint.receive([memoryview(pack_header(RESULT) + payload(2))], 0.1)
    assert (endpoint.stats.malformed, endpoint.base, statuses) == (1, 1, [Status.OK])


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES - 1, HEADER_BYTES + 64])
def test_a_short_packet_is_counted_and_ignored(length: int) -> None:
    endpoint, statuses = lonely()
    endpoint.receive([memoryview((pack_header(RESULT) + payload(2))[:length])], 0.1)
    assert (endpoint.stats.malformed, endpoint.base, statuses) == (1, 0, [])


def test_a_second_result_is_a_duplicate() -> None:
    endpoint, statuses = lonely()
    for _ in range(2):
        endpoint.receive([memoryview(pack_header(RESULT) + payload(2))], 0.1)
    assert (endpoint.stats.duplicates, statuses) == (1, [Status.OK])
    # So is STALE for a block whose result is held.
    endpoint.receive([memoryview(pack_header(RESULT._replace(status=Status.STALE, lane_cnt=0)))], 0.1)
    assert endpoint.stats.duplicates == 2


def test_a_notice_is_answered_by_asking_again() -> None:
    endpoint, statuses = lonely()
    endpoint.receive([memoryview(pack_header(RESULT._replace(lane_cnt=0)))], 0.1)
    assert (endpoint.stats.notices, statuses) == (1, [])
    assert len(endpoint.poll(0.1)) == 1


def test_a_switch_that_asks_again_gets_the_contribution_with_room() -> None:
    """A leaf's partial needs room for the sum, which an empty contribution brings as padding; at once, and as often as asked."""
    endpoint = SwitchEndpoint(descriptor(0, 2, block_bytes=1024))
    endpoint.submit(Block(9, Op.SUM, Lane.L32))
    (packet,) = endpoint.poll(0.0)
    assert sum(map(len, packet)) == HEADER_BYTES
    again = RESULT._replace(status=Status.AGAIN, worker_cnt=0, data_cnt=0)
    for _ in range(2):
        endpoint.receive([memoryview(pack_header(again))], 0.1)
        (padded,) = endpoint.poll(0.1)
        assert padded[0] == packet[0]
        assert sum(map(len, padded)) == HEADER_BYTES + 1024
    endpoint.receive([memoryview(pack_header(again._replace(gen_id=8)))], 0.1)
    assert (endpoint.poll(0.1), endpoint.stats.malformed) == ([], 1)


def refusal(reason: int, status: Status = Status.REFUSED) -> memoryview:
    return memoryview(pack_header(RESULT._replace(status=status, reason=reason, lane_cnt=0, worker_cnt=0, data_cnt=0)))


@pytest.mark.parametrize("reason", [Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER])
def test_a_switch_that_does_not_know_us_yet_is_asked_again_until_the_join_deadline(reason: Outcome) -> None:
    endpoint, _ = lonely()
    endpoint.receive([refusal(reason)], 1.0)
    deadline = endpoint.next_deadline()
    assert deadline is not None
    assert len(endpoint.poll(deadline)) == 1
    with pytest.raises(BlockRejected) as caught:
        endpoint.receive([refusal(reason)], 5.0)
    assert caught.value.reason is reason


@pytest.mark.parametrize("reason", [Outcome.WRONG_PORT, Outcome.FINGERPRINT_MISMATCH, Outcome.OUT_OF_WINDOW, Outcome.UNSUPPORTED])
def test_other_refusals_are_final(reason: Outcome) -> None:
    endpoint, _ = lonely()
    with pytest.raises(BlockRejected) as caught:
        endpoint.receive([refusal(reason)], 0.1)
    assert caught.value.reason is reason
    assert endpoint.stats.refusals == {reason.name: 1}


def test_stale_for_a_block_that_is_needed_is_final() -> None:
    endpoint, _ = lonely()
    with pytest.raises(BlockRejected):
        endpoint.receive([refusal(0, Status.STALE)], 0.1)


def test_contributions_are_kept_for_a_window_more() -> None:
    simulation = lossless()
    simulation.submit(30)
    simulation.run()
    assert [sent.start for sent in simulation.hosts[0].endpoint._kept] == list(range(22, 30))


@pytest.mark.parametrize("window", [1, 16])
def test_a_switch_that_turns_slow_is_not_stormed(window: int) -> None:
    """The latency grows two hundredfold, far beyond the timer: for a few round trips blocks are repeated too early."""
    simulation = Simulation(3, 7, window=window, block_bytes=256)
    for latency in (LATENCY, 200 * LATENCY):
        simulation.latency = latency
        before = sum(host.endpoint.stats.retransmissions for host in simulation.hosts)
        simulation.submit(300)
        simulation.run(1000.0)
    repeated = sum(host.endpoint.stats.retransmissions for host in simulation.hosts) - before
    assert 0 < repeated < 3 * 60, f"{repeated} of 900 contributions were sent again, and none was lost"
    assert simulation.hosts[0].endpoint.stats.rtt > 0.1


class OutOfReach(Simulation):
    """The first result of every block is lost on its way to rank 1, as where IP multicast does not reach it."""

    def __init__(self, window: int) -> None:
        super().__init__(2, 0, window=window, block_bytes=256)
        self._lost: set[int] = set()

    def _travel(self, rank: int, up: bool, data: bytes) -> None:
        block = parse_header(data).block_id
        if up or rank == 0 or block in self._lost:
            super()._travel(rank, up, data)
        else:
            self._lost.add(block)


@pytest.mark.parametrize("window", [1, 16])
def test_blocks_that_never_get_the_first_result_do_not_wait_because_the_timer_was_once_early(window: int) -> None:
    simulation = OutOfReach(window)
    for latency in (200 * LATENCY, LATENCY):
        simulation.latency, before = latency, simulation.now
        simulation.submit(200)
        simulation.run(1000.0)
    assert simulation.hosts[1].endpoint.stats.duplicates > retransmit.SPURIOUS_THRESHOLD, "the timer was too early"
    assert simulation.now - before < 0.1 * 200 * retransmit.MAX_RTO


FIRST = 4096


def straggler(blocks: int) -> tuple[SwitchEndpoint, list[int]]:
    """A window that has sent so many blocks at time 0, and the serials that are reported lost."""
    endpoint = SwitchEndpoint(descriptor(0, 3, block_exp_ms=50.0, quorum=1, window=8))
    lost: list[int] = []
    for serial in range(blocks):
        block = Block(1, Op.SUM, Lane.L32, bytes(CHUNK_BYTES))
        block.on_lost = lambda serial=serial: lost.append(serial)
        endpoint.submit(block)
    assert len(endpoint.poll(0.0)) == blocks
    return endpoint, lost


def stale(serial: int) -> memoryview:
    header = Header(JOB_ID, FIRST + serial, gen_id=1, op=Op.SUM, lane=Lane.L32, status=Status.STALE)
    return memoryview(pack_header(header))


@pytest.mark.parametrize("blocks", [2, 3, 8])
def test_a_lone_stale_does_not_stop_the_timer(blocks: int) -> None:
    """Everything was lost on the way: whatever is still outstanding must be asked for again, although nothing else comes."""
    endpoint, lost = straggler(blocks)
    now = 0.0
    while not endpoint.idle:
        deadline = endpoint.next_deadline()
        assert deadline is not None, f"nothing will ever ask for what is missing (lost so far: {lost})"
        now = max(now, deadline)
        # Only one of the packets gets through.
        for packet in endpoint.poll(now)[:1]:
            endpoint.receive([stale(parse_header(bytes(packet[0])).block_id - FIRST)], now)
    assert sorted(lost) == list(range(blocks))
    assert endpoint.stats.lost == blocks
    assert now < 2.0


def test_a_flight_of_stale_answers_is_no_storm() -> None:
    endpoint, lost = straggler(8)
    for serial in range(8):
        endpoint.receive([stale(serial)], 0.001)
    assert lost == list(range(8))
    assert endpoint.poll(0.002) == []
    assert endpoint.next_deadline() is None
    assert endpoint.idle


def test_what_a_member_reports_counts_what_has_come_in_its_epoch() -> None:
    """Results, refusals and what it did not wait for, but nothing that another sender may have made up."""
    endpoint = SwitchEndpoint(descriptor(0, 2))
    for value in range(3):
        Host(endpoint).submit(value)
    size = sum(memoryview(part).nbytes for part in endpoint.poll(0.0)[0])

    def come(serial: int, **fields: int) -> None:
        header = Header(JOB_ID, endpoint.block_id(serial), gen_id=serial, op=Op.SUM, lane=Lane.L32, worker_cnt=2, data_cnt=2)
        header = header._replace(lane_cnt=CHUNK_BYTES // 4)._replace(**fields)
        endpoint.receive([memoryview(pack_header(header) + bytes(header.payload_bytes))], 0.0)

    assert endpoint.waits() == (endpoint.block_id(0), 1, size, 0)
    come(1)
    come(1)
    come(0, job_id=JOB_ID + 1)
    come(0, gen_id=9)
    endpoint.receive([memoryview(b"?")], 0.0)
    assert (endpoint.waits(), endpoint.stats.malformed) == ((endpoint.block_id(0), 1, size, 2), 3)
    with pytest.raises(BlockRejected):
        come(0, status=Status.REFUSED, reason=Outcome.WRONG_PORT, worker_cnt=0, data_cnt=0, lane_cnt=0)
    assert endpoint.waits() == (endpoint.block_id(0), 1, size, 3)
    come(0)
    assert endpoint.waits() == (endpoint.block_id(2), 1, size, 4)
    assert endpoint.resume(endpoint.block_id(0))
    assert endpoint.waits() is None, "nothing is sent yet"
    endpoint.poll(0.0)
    assert endpoint.waits() == (endpoint.block_id(0), 1, size, 0)
