# SPDX-License-Identifier: MIT
"""Sums and bytes that go from member to member by chain: exact, asked for when lost, short when they are mostly zeros."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum import CallTimeoutError, Communicator, MismatchError
from netsum.core.blocks import Block
from netsum.core.endpoint_factory import resume_endpoint
from netsum.descriptor import CHAIN, MULTICAST
from netsum.peers import peer_endpoint
from netsum.peers.chain_route import added, parse_hop, shortened
from netsum.peers.peer_endpoint import PeerEndpoint
from netsum.peers.wire import DATAGRAM_HEAD, RANK, is_datagram, rank_of
from netsum.wire.memory import Flag, Instruction, LaneType, MemoryHeader, pack_memory, parse_memory
from netsum.wire.schema import EVERYONE, Lane, Op

from tests.hosts.calls import Array, allreduce, closing_all, good, on_each, once_known, over_a_bad_network
from tests.hosts.network import MemoryNetwork
from tests.hosts.peers import ChainNetwork, PeerNetwork, memory_peers, peer_descriptor


class Members:
    """Windows whose clock stands still: nothing is ever overdue. ``lose(packet)`` says what is lost."""

    def __init__(self, workers: int, lose: Callable[[bytes], bool] = lambda _: False, **changes: Any) -> None:
        given = {"window": 256, "algorithm": CHAIN, "mtu": 1200, **changes}
        self.endpoints = [PeerEndpoint(peer_descriptor(rank, workers, **given)) for rank in range(workers)]
        self.transports = memory_peers(range(workers))
        self.datagrams: list[bytes] = []
        self.now = 0.0
        for transport in self.transports.values():
            transport.deliver = self._lossy(transport.deliver, lose)

    def _lossy(self, deliver: Callable[[bytes], None] | None, lose: Callable[[bytes], bool]) -> Callable[[bytes], None]:
        assert deliver is not None

        def to_peer(packet: bytes) -> None:
            if is_datagram(packet):
                self.datagrams.append(packet[DATAGRAM_HEAD:])
            if not is_datagram(packet) or not lose(packet[DATAGRAM_HEAD:]):
                deliver(packet)

        return to_peer

    def submit(self, arrays: list[Array], op: Op = Op.SUM, lane: Lane = Lane.L32, **fields: Any) -> list[list[bytes]]:
        """Rows of each rank's array as blocks; where the results will be."""
        got: list[list[bytes]] = [[b""] * len(rows) for rows in arrays]
        for rank, (endpoint, rows) in enumerate(zip(self.endpoints, arrays, strict=True)):
            for number, row in enumerate(rows):
                block = Block(0, op, lane, row.tobytes(), more=number < len(rows) - 1, **fields)
                block.on_result = lambda _, payload, to=got[rank], at=number: to.__setitem__(at, bytes(payload))
                endpoint.submit(block)
        return got

    def run(self, turns: int = 60) -> bool:
        for _ in range(turns):
            for rank, endpoint in enumerate(self.endpoints):
                self.transports[rank].send(endpoint.poll(self.now))
                endpoint.receive(self.transports[rank].recv(0.0), self.now)
            if all(endpoint.idle for endpoint in self.endpoints):
                return True
        return False

    def total(self, name: str) -> int:
        return sum(getattr(endpoint.stats, name) for endpoint in self.endpoints)


def rows_of(workers: int, rows: int) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 1 << 32, (rows, 256), np.uint32).astype(">u4") for _ in range(workers)]


def summed(arrays: list[Array]) -> Array:
    return reduce(np.add, arrays)


# Loss


@given(st.integers(2, 5), st.integers(1, 9), st.sets(st.integers(0, 9), max_size=4))
def test_a_gap_is_asked_for_at_once(workers: int, rows: int, which: set[int]) -> None:
    """Time stands still, so no timer helps: the packets of a second batch show what is lost of the first."""
    first, begun = peer_descriptor(0, workers).first_block_id, iter(range(10**6))
    lost = []

    def lose(packet: bytes) -> bool:
        header = parse_memory(packet)
        number = header.address % (1 << 44) // 1024 - first
        begins = header.instruction == Instruction.SUM_FORWARD and header.segments == workers - 2
        if begins and number < rows and not header.flags & Flag.REPEAT and next(begun) in which:
            lost.append(packet)
            return True
        return False

    members = Members(workers, lose)
    got = [members.submit(rows_of(workers, number)) for number in (rows, 2 * workers)]
    assert members.run()
    for batch, number in zip(got, (rows, 2 * workers), strict=True):
        expected = [row.tobytes() for row in summed(rows_of(workers, number)).astype(">u4")]
        assert batch == [expected] * workers
    assert (members.total("reads") > 0) == bool(lost)
    assert members.total("retransmissions") == len(lost)
    assert members.total("malformed") == 0


def test_what_is_lost_last_needs_the_timer_and_no_more() -> None:
    lost: list[bytes] = []
    members = Members(3, lambda packet: len(lost) < 1 and not lost.append(packet))  # type: ignore[func-returns-value]
    members.submit(rows_of(3, 1))
    assert not members.run()
    assert members.total("reads") == 0
    members.now = 0.11
    assert members.run()
    assert members.total("retransmissions") == 1


@pytest.mark.parametrize("algorithm", [pytest.param(name, marks=pytest.mark.full) for name in (CHAIN, MULTICAST)] + ["chain:2x2"])
def test_calls_over_a_bad_network(algorithm: str) -> None:
    arrays = [np.arange(3000, dtype=np.int64) * (rank + 1) for rank in range(4)]
    with over_a_bad_network(ChainNetwork(4, algorithm=algorithm), 0.05) as comms:
        for _ in range(3):
            assert good(allreduce(comms, arrays)).tolist() == summed(arrays).tolist()
        parts = on_each(comms, lambda comm: comm.reduce_scatter(arrays[comm.rank]))
        assert np.concatenate(parts).tolist() == summed(arrays).tolist()
        gathered = on_each(comms, lambda comm: comm.all_gather(arrays[comm.rank]))
        assert all(each.tolist() == np.concatenate(arrays).tolist() for each in gathered)
        assert sum(comm.stats.reads for comm in comms) > 0


# Sums


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16", "float32", "float16"])
def test_sums_are_the_switchs_bit_for_bit(dtype: str) -> None:
    rng = np.random.default_rng(1)
    arrays = [(rng.random(2500) * 30).astype(dtype) for _ in range(3)]
    results = []
    for network in (MemoryNetwork(3), ChainNetwork(3)):
        with closing_all(network.communicators()) as comms:
            results.append(good(allreduce(comms, arrays)).tobytes())
    assert results[0] == results[1]


def test_floats_do_not_move_to_who_cannot_add_them() -> None:
    endpoint = Members(2).endpoints[0]
    block = Block(0, Op.SUM, Lane.L32, bytes(1024))
    for floats in (False, True):
        block.floats = floats
        endpoint.submit(block)
        moved = resume_endpoint(endpoint, peer_descriptor(0, 2, algorithm="ring", window=256))
        assert (moved is None) == floats
        assert resume_endpoint(endpoint, peer_descriptor(0, 2, algorithm=CHAIN, window=256)) is not None


# Bytes


def test_a_host_stores_each_byte_once_and_a_ring_almost_twice() -> None:
    stored = {}
    for network in (ChainNetwork(4), PeerNetwork(4, algorithm="ring")):
        with closing_all(network.communicators()) as comms:
            good(allreduce(comms, [np.arange(1 << 14, dtype=np.int32)] * 4))
            stored[network.descriptors[0].algorithm] = [comm.stats.stored / (1 << 16) for comm in comms]
    assert stored["chain"] == pytest.approx([1.0] * 4, abs=0.02)
    assert stored["ring"] == pytest.approx([1.5] * 4, abs=0.02)


def test_results_go_to_all_at_once_where_the_network_copies() -> None:
    sent = {}
    for algorithm in (CHAIN, MULTICAST):
        members = Members(4, algorithm=algorithm)
        got = members.submit(rows_of(4, 12))
        assert members.run()
        assert got == [[row.tobytes() for row in summed(rows_of(4, 12)).astype(">u4")]] * 4
        instructions = [parse_memory(each).instruction for each in members.datagrams]
        sent[algorithm] = instructions.count(Instruction.STORE)
    assert sent == {CHAIN: 3 * 12, MULTICAST: 12}


def test_a_copy_that_does_not_come_is_asked_for_at_its_source() -> None:
    """One of three does not get the first copies; nothing is sent again to the others, and time stands still."""
    members = Members(4, algorithm=MULTICAST)
    lost: list[bytes] = []
    for source in range(4):
        deliver = members.transports[source].deliver
        assert deliver is not None

        def losing(packet: bytes, deliver: Callable[[bytes], None] = deliver) -> None:
            header = parse_memory(packet[DATAGRAM_HEAD:]) if is_datagram(packet) else None
            first = header is not None and header.sequence == 1 and not header.flags
            if rank_of(packet) == EVERYONE and first and packet not in lost:
                lost.append(packet)
                for rank in range(1, 4):  # each gets a copy of its own; rank 0's is lost
                    deliver(RANK.pack(rank) + packet[RANK.size :])
            else:
                deliver(packet)

        members.transports[source].deliver = losing
    got = members.submit(rows_of(4, 12))
    assert members.run()
    assert got == [[row.tobytes() for row in summed(rows_of(4, 12)).astype(">u4")]] * 4
    assert len(lost) == 4
    assert members.total("retransmissions") == members.endpoints[0].stats.reads == 3  # its own it has


@pytest.mark.parametrize(("mtu", "packets"), [(1200, 32), (2300, 16), (9000, 4)])
def test_neighboring_blocks_share_a_packet(mtu: int, packets: int) -> None:
    members = Members(2, mtu=mtu, first_block_id=0)
    got = members.submit(rows_of(2, 32))
    assert members.run()
    assert got[0] == got[1] == [row.tobytes() for row in summed(rows_of(2, 32)).astype(">u4")]
    sums = [each for each in members.datagrams if parse_memory(each).instruction == Instruction.SUM_FORWARD]
    assert len(sums) == packets
    assert max(map(len, members.datagrams)) <= mtu - 28


def test_packets_of_mostly_zeros_are_short() -> None:
    rows = [np.zeros((8, 256), ">u4") for _ in range(3)]
    rows[1][:, :100] = 7
    members = Members(3)
    got = members.submit(rows)
    assert members.run()
    assert got[2] == [row.tobytes() for row in rows[1]]
    assert {bool(parse_memory(each).flags & Flag.COMPRESSED) for each in members.datagrams} == {True}
    assert max(map(len, members.datagrams)) < 600
    rows[1][:, :130] = 7  # more than half of 256
    members = Members(3)
    members.submit(rows)
    assert members.run()
    assert max(map(len, members.datagrams)) > 1024


@given(
    st.sampled_from([lane for lane in LaneType if lane is not LaneType.BYTES]),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 9),
)
def test_packets_survive_the_wire_and_lanes_are_added(lane: LaneType, ours: int, theirs: int, zeros: int) -> None:
    rng = np.random.default_rng(ours)
    given_lanes, own = rng.integers(0, 200, theirs).astype(lane.dtype), rng.integers(0, 200, ours).astype(lane.dtype)
    given_lanes[: zeros * 4] = 0
    header, short = shortened(MemoryHeader(Instruction.SUM_FORWARD, 8, lane=lane), given_lanes.view(np.uint8))
    hop = parse_hop(memoryview(pack_memory(header, (1, 2)) + short))
    assert hop.segments == (1, 2)
    assert hop.payload.tobytes() == given_lanes.tobytes()
    total = added(hop.payload, own.view(np.uint8), lane).view(lane.dtype)
    both = np.zeros(max(ours, theirs), lane.dtype)
    both[:theirs] += given_lanes
    both[:ours] += own
    assert total.tolist() == both.tolist()


def test_more_ranks_than_a_packet_has_segments() -> None:
    members = Members(21, block_bytes=256, mtu=9000)
    rows = [row[:, :64] for row in rows_of(21, 2)]
    got = members.submit(rows)
    assert members.run(200)
    assert got[20] == [row.tobytes() for row in summed(rows).astype(">u4")]
    assert {parse_memory(each).segments for each in members.datagrams} >= {16, 15, 0}


# Whom it waits for, and who is not meant


def test_a_rank_that_does_not_come_is_named() -> None:
    def attempt(timeout: float) -> list[Any]:
        with closing_all(ChainNetwork(4).communicators()) as comms:
            return allreduce(comms[:3], [np.ones(3000)] * 3, timeout=timeout)

    outcomes = once_known(attempt)
    assert all(isinstance(each, CallTimeoutError) and "rank 3" in str(each) for each in outcomes), outcomes


def test_a_rank_whose_datagrams_do_not_come_is_named() -> None:
    def attempt(timeout: float) -> list[Any]:
        network = ChainNetwork(2)
        deliver = network.transports[1].deliver
        assert deliver is not None
        network.transports[1].deliver = lambda packet: None if is_datagram(packet) else deliver(packet)
        with closing_all(network.communicators()) as comms:
            return allreduce(comms, [np.ones(3000)] * 2, timeout=timeout)[:1]

    (outcome,) = once_known(attempt, 1.0)
    assert isinstance(outcome, CallTimeoutError)
    assert "rank 1, whose packets of chains (UDP) do not come here" in str(outcome)


def test_packets_that_are_altered_or_of_another_epoch_are_no_members() -> None:
    members, others = Members(2), Members(2, peer_key="00" * 16)
    for each in (members, others):
        each.submit(rows_of(2, 2))
        each.transports[0].send(each.endpoints[0].poll(0.0))
    endpoint = members.endpoints[1]
    good_one = members.datagrams[0]
    frames = [
        others.datagrams[0],
        good_one[:-1] + bytes([good_one[-1] ^ 1]),
        good_one[:12] + b"\1" + good_one[13:],
        good_one[:40],
        good_one + b"\0",
        b"",
    ]
    for frame in frames:
        endpoint.receive([memoryview(b"\0\x80" + frame)], 0.0)
    assert endpoint.stats.malformed == len(frames)
    assert members.run()
    assert endpoint.stats.malformed == len(frames)


def test_chains_on_other_tori_are_a_mismatch() -> None:
    network = ChainNetwork(4, algorithm="chain:2x2")
    network.descriptors[1] = peer_descriptor(1, 4, algorithm="chain:4", mtu=1200)
    with closing_all(network.communicators()) as comms:
        outcomes = allreduce(comms, [np.ones(3)] * 4)
        assert all(isinstance(each, MismatchError) for each in outcomes)


def test_a_leaving_rank_waits_until_its_packets_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rank 0's last packets the first ones are lost; it has its result, and leaves."""
    monkeypatch.setattr(peer_endpoint, "LINGER", math.inf)  # it waits for the packets, not for a while
    network = ChainNetwork(3)
    comms = network.communicators()
    lost: list[bytes] = []
    deliver = network.transports[0].deliver
    assert deliver is not None

    def losing(packet: bytes) -> None:
        if is_datagram(packet) and len(lost) < 3:
            lost.append(packet)
        else:
            deliver(packet)

    def call(comm: Communicator) -> Any:
        if comm.rank == 0:
            network.transports[0].deliver = losing
        try:
            return comm.allreduce(np.arange(2000, dtype=np.int32))
        finally:
            comm.close()

    outcomes = on_each(comms, call)
    assert [each.tolist() for each in outcomes] == [(3 * np.arange(2000)).tolist()] * 3
    assert len(lost) == 3
