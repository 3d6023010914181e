# SPDX-License-Identifier: MIT
"""Results by IP multicast on a host: what is taken with the group's key, and the socket that has joined."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, cast

import pytest
from netsum.core import session
from netsum.core.blocks import Block
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor
from netsum.packet_batch import ReceiveBatch
from netsum.stats import Stats
from netsum.transports import UdpTransport
from netsum.transports.striped import StripedUdpTransport
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, SWITCH_SOURCE, AgeOp, Lane, Op, Outcome, Status

from tests.hosts.network import descriptor
from tests.threads import PATIENCE

KEY, GROUP_KEY = 0x1122334455667788, 0x99AABBCCDDEEFF00
KEYS = {"key": f"{KEY:016x}", "group": "239.1.2.3:50000", "group_key": f"{GROUP_KEY:016x}"}
SUM = bytes(range(256)) * (CHUNK_BYTES // 256)


def member() -> tuple[SwitchEndpoint, Header, list[bytes]]:
    """An endpoint that has sent a block, the header of its result to all, and what the endpoint gets."""
    endpoint, got = SwitchEndpoint(descriptor(0, 2, **KEYS)), []
    endpoint.submit(Block(3, Op.SUM, Lane.L32, bytes(CHUNK_BYTES), on_result=lambda _, data: got.append(bytes(data))))
    ((head, _),) = ((bytes(packet[0]), None) for packet in endpoint.poll(0.0))
    sent = parse_header(head)
    result = sent._replace(worker_cnt=2, data_cnt=2, src_id=SWITCH_SOURCE, receiver_id=SWITCH_SOURCE, key=GROUP_KEY)
    return endpoint, result, got


def packets(*headers: Header) -> ReceiveBatch:
    return ReceiveBatch.of([memoryview(pack_header(each) + SUM) for each in headers])


def test_a_result_to_all_is_taken() -> None:
    endpoint, result, got = member()
    endpoint.receive(packets(result), 0.001)
    assert got == [SUM]
    assert (endpoint.stats.multicast, endpoint.stats.malformed) == (1, 0)
    endpoint.receive(packets(result), 0.002)
    assert got == [SUM]


@pytest.mark.parametrize(
    "changes",
    [
        {"key": GROUP_KEY ^ 1},
        {"key": 0},
        {"receiver_id": 0},
        {"dest": 0},
        {"degraded": 1, "age_op": AgeOp.AGED},
        {"age_op": AgeOp.LATE},
        {"status": Status.STALE},
        {"status": Status.REFUSED, "reason": Outcome.FINGERPRINT_MISMATCH},
        {"status": Status.AGAIN},
    ],
    ids=str,
)
def test_nothing_else_is(changes: dict[str, int]) -> None:
    endpoint, result, got = member()
    endpoint.receive(packets(result._replace(**changes)), 0.001)
    assert got == []
    assert (endpoint.stats.multicast, endpoint.stats.malformed) == (0, 1)
    endpoint.receive(packets(result), 0.002)
    assert got == [SUM]


def test_a_member_without_a_group_takes_nothing_to_all() -> None:
    endpoint, result, got = member()
    endpoint.set_group_key("")
    endpoint.receive(packets(result, result._replace(key=0)), 0.001)
    assert (got, endpoint.stats.malformed) == ([], 2)


def test_after_an_eviction_nothing_to_the_group_is_taken() -> None:
    """The evicted member knows the key; the controller has made another. What comes by unicast is taken."""
    endpoint, result, got = member()
    own = result._replace(key=KEY, receiver_id=0)
    endpoint.receive(packets(own._replace(worker_cnt=1, data_cnt=1)), 0.001)
    endpoint.submit(Block(3, Op.SUM, Lane.L32, bytes(CHUNK_BYTES), on_result=lambda _, data: got.append(bytes(data))))
    endpoint.poll(0.002)
    following = result.block_id + 1
    endpoint.receive(packets(result._replace(block_id=following)), 0.003)
    assert (got, endpoint.stats.malformed) == ([SUM], 1)
    endpoint.receive(packets(own._replace(block_id=following, worker_cnt=1, data_cnt=1)), 0.004)
    assert (got, endpoint.stats.malformed, endpoint.stats.multicast) == ([SUM, SUM], 1, 0)


def test_a_second_result_shows_an_eviction_too() -> None:
    """The evicted member was faster than the switch, once."""
    endpoint, result, got = member()
    endpoint.receive(packets(result), 0.001)
    own = result._replace(key=KEY, receiver_id=0, worker_cnt=1, data_cnt=1)
    endpoint.receive(packets(own._replace(degraded=1, age_op=AgeOp.AGED)), 0.002)
    endpoint.submit(Block(3, Op.SUM, Lane.L32, bytes(CHUNK_BYTES), on_result=lambda _, data: got.append(bytes(data))))
    endpoint.poll(0.003)
    endpoint.receive(packets(own), 0.004)
    endpoint.receive(packets(result._replace(block_id=result.block_id + 1)), 0.005)
    assert (got, endpoint.stats.duplicates, endpoint.stats.malformed) == ([SUM], 2, 1)


def test_results_that_had_to_be_fetched_are_counted() -> None:
    endpoint, result, got = member()
    deadline = endpoint.next_deadline()
    assert deadline is not None
    assert endpoint.poll(deadline + 1), "it is sent again"
    endpoint.receive(packets(result._replace(key=KEY, receiver_id=0)), deadline + 2)
    assert got == [SUM]
    assert (endpoint.stats.multicast, endpoint.stats.multicast_lost) == (0, 1)


def test_they_are_counted_after_an_eviction() -> None:
    """If the eviction failed, the switch goes on by multicast; what is counted brings the rank back to unicast."""
    endpoint, result, _ = member()
    own = result._replace(key=KEY, receiver_id=0)
    endpoint.receive(packets(own._replace(worker_cnt=1, data_cnt=1)), 0.001)
    endpoint.submit(Block(3, Op.SUM, Lane.L32, bytes(CHUNK_BYTES)))
    endpoint.poll(0.002)
    deadline = endpoint.next_deadline()
    assert deadline is not None
    assert endpoint.poll(deadline + 1), "it is sent again"
    endpoint.receive(packets(own._replace(block_id=result.block_id + 1)), deadline + 2)
    assert endpoint.stats.multicast_lost == 1


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"group_key": ""}, "go together"),
        ({"group_key": "0" * 16}, "group_key must be 16 hex digits"),
        ({"group": "10.0.0.1:50000"}, "must be an IPv4 multicast address"),
        ({"group": "239.1.2.3"}, "must be an IPv4 multicast address"),
    ],
)
def test_what_a_descriptor_cannot_have(fields: dict[str, str], complaint: str) -> None:
    whole = descriptor(0, 2, **KEYS)
    assert Descriptor.from_json(whole.to_json()) == whole
    with pytest.raises(ValueError, match=complaint):
        descriptor(0, 2, **{**KEYS, **fields})


def bound() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    return sock


@pytest.fixture
def switches() -> Iterator[list[socket.socket]]:
    socks = [bound() for _ in range(3)]
    yield socks
    for sock in socks:
        sock.close()


def group(switches: list[socket.socket]) -> tuple[str, int]:
    """A group of this test's own."""
    return "239.77.1.2", switches[-1].getsockname()[1]


def received(transport: UdpTransport, number: int) -> set[bytes]:
    """That many packets; a descriptor says when there are some."""
    waiting = select.poll()
    found: list[bytes] = []
    waiting.register(transport.fileno(), select.POLLIN)
    while len(found) < number:
        assert waiting.poll(1000 * PATIENCE), found
        found += map(bytes, transport.recv(0.0))
    return set(found)


def test_a_transport_receives_from_its_group_too(switches: list[socket.socket]) -> None:
    switch, other, _ = switches
    with closing(UdpTransport(("127.0.0.1", 0), switch.getsockname())) as transport:
        transport.join(group(switches))
        other.sendto(b"of another sender", group(switches))
        switch.sendto(b"to all", group(switches))
        switch.sendto(b"to one", transport.sock.getsockname())
        assert received(transport, 2) == {b"to all", b"to one"}
        assert list(transport.recv(0.0)) == []


def test_one_group_of_several_switches(switches: list[socket.socket]) -> None:
    *ours, other = switches
    with closing(StripedUdpTransport(("127.0.0.1", 0), [sock.getsockname() for sock in ours], (0, 1))) as transport:
        transport.join(group(switches))
        for number, sock in enumerate((other, *ours)):
            sock.sendto(pack_header(Header(1, number)), group(switches))
        found = {parse_header(packet).block_id for packet in received(transport, 2)}
        assert found == {1, 2}


def test_two_members_on_a_host(switches: list[socket.socket]) -> None:
    """Each has a socket, and gets a copy."""
    with (
        closing(UdpTransport(("127.0.0.1", 0), switches[0].getsockname())) as one,
        closing(UdpTransport(("127.0.0.1", 0), switches[0].getsockname())) as two,
    ):
        for each in (one, two):
            each.join(group(switches))
        switches[0].sendto(b"to all", group(switches))
        assert received(one, 1) == received(two, 1) == {b"to all"}


class Member:
    """What the count of lost rounds sees of an endpoint."""

    def __init__(self) -> None:
        self.stats, self.base, self.next_serial = Stats(), 0, 0

    def round(self, fetched: int, by_multicast: int) -> None:
        """A round of one block."""
        self.stats.multicast_lost += fetched
        self.stats.multicast += by_multicast
        self.base += 1
        self.next_serial += 1


def rounds_until_unreached(rounds: Iterable[tuple[int, int]]) -> int | None:
    """The number of rounds, each of one block (fetched, by multicast), after which the group counts as out of reach."""
    member, unreached = Member(), session._Unreached()
    unreached.note(cast("Any", member))
    for number, (fetched, by_multicast) in enumerate(rounds, 1):
        member.round(fetched, by_multicast)
        if unreached.note(cast("Any", member)):
            return number
    return None


def test_rounds_without_a_result_by_multicast() -> None:
    lost, by_unicast, arrived = (1, 0), (0, 0), (0, 1)
    assert rounds_until_unreached([lost] * 20) == session._LOST_ROUNDS
    assert rounds_until_unreached([by_unicast, lost] * 20) == 2 * session._LOST_ROUNDS, "results to one rank say nothing"
    assert rounds_until_unreached([by_unicast] * 100) is None
    assert rounds_until_unreached([*[lost] * (session._LOST_ROUNDS - 1), arrived] * 10) is None
