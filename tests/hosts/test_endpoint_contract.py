# SPDX-License-Identifier: MIT
"""The contract of every endpoint (:class:`netsum.core.endpoint.Endpoint`), with a switch, with one after the ranks of a host, and
without."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from netsum.core.blocks import ID_MASK, Block, id_distance
from netsum.core.endpoint import Endpoint
from netsum.core.endpoint_factory import open_endpoint, resume_endpoint
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor
from netsum.intranode.group import LocalGroup
from netsum.intranode.leader_endpoint import LeaderEndpoint
from netsum.intranode.member_endpoint import MemberEndpoint
from netsum.peers import peer_endpoint
from netsum.peers.peer_endpoint import PeerEndpoint
from netsum.transports import InMemoryTransport
from netsum.wire.codec import Header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, Lane, Op, Status

from tests.hosts.network import MemoryNetwork, descriptor
from tests.hosts.peers import PeerNetwork, peer_descriptor
from tests.hosts.shared_hosts import HostNetwork, Hosts

WINDOW = 8


class Kind(NamedTuple):
    """An endpoint, its descriptors, a network of them, and which rank of how many it is. The types are the contract's first half:
    mypy holds all to the Protocol."""

    endpoint: Callable[[Descriptor], Endpoint]
    descriptor: Callable[..., Descriptor]
    network: type[MemoryNetwork | PeerNetwork]
    rank: int = 0

    workers: int = 2

    def describe(self, **changes: Any) -> Descriptor:
        return self.descriptor(self.rank, self.workers, **changes)


def of_a_pair(rank: int, workers: int, **changes: Any) -> Descriptor:
    """The descriptor of a rank where ranks 0 and 1 are on one host."""
    return Hosts.pairs(workers).shared(descriptor(rank, workers, **changes))


KINDS: dict[str, Kind] = {
    "switch": Kind(SwitchEndpoint, descriptor, MemoryNetwork),
    "leader": Kind(LeaderEndpoint, of_a_pair, HostNetwork, 0, 3),
    "member": Kind(MemberEndpoint, of_a_pair, HostNetwork, 1, 3),
    "others": Kind(PeerEndpoint, peer_descriptor, PeerNetwork),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the memory and sockets of ranks that share them."""
    with contextlib.ExitStack() as stack:
        init = LocalGroup.__init__

        def made(group: LocalGroup, each: Descriptor) -> None:
            init(group, each)
            stack.callback(group.close)

        monkeypatch.setattr(LocalGroup, "__init__", made)
        yield


def make(kind: str, **changes: object) -> Endpoint:
    """The window of one rank."""
    return KINDS[kind].endpoint(KINDS[kind].describe(window=WINDOW, **changes))


def block(number: int = 0, **changes: object) -> Block:
    filled = Block(3, Op.SUM, Lane.L32, bytes([number % 256]) * CHUNK_BYTES)
    for name, value in changes.items():
        setattr(filled, name, value)
    return filled


def test_a_descriptor_opens_the_window_of_its_kind(kind: str) -> None:
    endpoint = open_endpoint(KINDS[kind].describe())
    assert type(endpoint) is KINDS[kind].endpoint
    assert endpoint.combiner == ("others" if kind == "others" else "switch")
    assert endpoint.active_size == KINDS[kind].workers


def test_serials_and_ids_count_from_the_first_block(kind: str) -> None:
    endpoint = make(kind, first_block_id=ID_MASK)
    assert [endpoint.submit(block(number)) for number in range(3)] == [0, 1, 2]
    assert [endpoint.block_id(serial) for serial in range(3)] == [ID_MASK, 0, 1]
    assert [id_distance(endpoint.block_id(serial), ID_MASK) for serial in range(3)] == [0, 1, 2]
    assert (endpoint.submitted, endpoint.queued, endpoint.next_serial, endpoint.base, endpoint.prefix) == (
        3,
        3,
        0,
        0,
        0,
    )


def test_at_most_a_window_is_begun_and_outgoing_begins_nothing(kind: str) -> None:
    endpoint = make(kind)
    for number in range(3 * WINDOW):
        endpoint.submit(block(number))
    endpoint.outgoing(0.0)
    assert (endpoint.next_serial, endpoint.queued) == (0, 3 * WINDOW)
    assert endpoint.next_deadline() is None
    for now in (0.0, 0.5, 5.0):
        endpoint.poll(now)
        assert (endpoint.next_serial, endpoint.queued) == (WINDOW, 2 * WINDOW)


def test_what_was_submitted_can_be_had_again(kind: str) -> None:
    endpoint = make(kind)
    blocks = [block(number) for number in range(2 * WINDOW)]
    for each in blocks:
        endpoint.submit(each)
    endpoint.poll(0.0)
    assert endpoint.blocks_from(endpoint.block_id(0)) == blocks
    assert endpoint.blocks_from(endpoint.block_id(5)) == blocks[5:]
    assert endpoint.blocks_from(endpoint.block_id(WINDOW)) == blocks[WINDOW:]
    assert endpoint.blocks_from(endpoint.block_id(-1)) is None
    assert endpoint.blocks_from(endpoint.block_id(WINDOW + 1)) is None


@pytest.mark.parametrize("following", list(KINDS))
def test_an_epoch_goes_on_with_either_kind(kind: str, following: str) -> None:
    endpoint, next_kind = make(kind), KINDS[following]
    blocks = [block(number) for number in range(WINDOW)]
    for each in blocks:
        endpoint.submit(each)
    endpoint.poll(0.0)
    stats = endpoint.stats
    resumed = resume_endpoint(endpoint, next_kind.describe(window=WINDOW, first_block_id=endpoint.block_id(2)))
    assert resumed is not None
    assert type(resumed) is next_kind.endpoint
    assert resumed.stats is stats
    assert stats.resumes == 1
    assert resumed.queued == WINDOW - 2
    assert resumed.blocks_from(endpoint.block_id(2)) == blocks[2:]
    assert resume_endpoint(make(kind), next_kind.describe(first_block_id=99)) is None


def test_a_job_that_comes_back_to_a_switch_has_another_id() -> None:
    """A member may learn of it only then, and never of the epoch in which the members combined. Likewise, a source whose number
    is another, because ranks share hosts otherwise."""
    before = descriptor(0, 2)
    for there in (replace(before, job_id=before.job_id + 1), replace(before, src_id=before.src_id + 1)):
        endpoint = SwitchEndpoint(before)
        endpoint.submit(block())
        endpoint.poll(0.0)
        resumed = resume_endpoint(endpoint, there)
        assert resumed is not None
        (packet,) = resumed.poll(0.0)
        header = parse_header(b"".join(packet)[:HEADER_BYTES])
        assert (header.job_id, header.src_id) == (there.job_id, there.src_id)


@pytest.mark.parametrize("packet", [b"", b"\0", b"\xff" * 16, bytes(300)])
def test_what_makes_no_sense_is_counted_and_changes_nothing(kind: str, packet: bytes) -> None:
    endpoint = make(kind)
    endpoint.submit(block())
    endpoint.poll(0.0)
    endpoint.receive([memoryview(packet)], 0.1)
    assert (endpoint.base, endpoint.next_serial, endpoint.received_end) == (0, 1, 0)
    assert endpoint.stats.malformed == 1


def test_tending_and_leaving_begin_nothing_and_end(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_endpoint, "LINGER", math.inf)  # nothing is to be waited for
    endpoint, transport = make(kind), InMemoryTransport()
    endpoint.submit(block())
    endpoint.progress(transport)
    endpoint.leave(transport)
    assert (endpoint.next_serial, endpoint.queued) == (0, 1)
    assert endpoint.needs_background_progress is (kind == "others")


def test_overruled_blocks_are_told_without_what_waits(kind: str) -> None:
    endpoint = make(kind)
    for number in range(3 * WINDOW):
        endpoint.submit(block(number))
    endpoint.poll(0.0)
    for _ in range(3):
        assert 0 < len(b"".join(endpoint.abort_outstanding(Status.MISMATCH)[0])) < HEADER_BYTES + 16
    assert endpoint.base == 0


def test_it_says_whom_it_waits_for_or_that_only_the_controller_can(kind: str) -> None:
    endpoint = make(kind)
    endpoint.submit(block())
    endpoint.poll(0.0)
    known = endpoint.explain(0.5)
    if kind == "switch":
        assert known is None
    else:
        assert known is not None
        sentence, ranks = known
        assert sentence
        assert set(ranks) <= {1 - KINDS[kind].rank}
    assert not endpoint.polls_controller or kind == "others"


def test_every_result_comes_once_and_in_the_same_bits(kind: str) -> None:
    """Two windows over a network in memory: more blocks than a window, and each result once on each."""
    workers = KINDS[kind].workers
    network = KINDS[kind].network(workers, window=WINDOW)
    endpoints = [open_endpoint(each) for each in network.descriptors]
    transports = [each.attach(link) for each, link in zip(endpoints, network.transports, strict=True)]
    got: list[list[tuple[int, bytes]]] = [[] for _ in range(workers)]
    for rank, endpoint in enumerate(endpoints):
        for number in range(3 * WINDOW):

            def record(header: Header, payload: memoryview, rank: int = rank) -> None:
                got[rank].append((header.block_id, bytes(payload)))

            endpoint.submit(block(number, on_result=record))
    while any(endpoint.base < 3 * WINDOW for endpoint in endpoints):
        for endpoint, transport in zip(endpoints, transports, strict=True):
            transport.send(endpoint.poll(time.monotonic()))
            for packet in transport.recv(0.0):
                endpoint.receive([packet], time.monotonic())
    assert all(sorted(each) == sorted(got[0]) for each in got)
    assert [each for each, _ in sorted(got[0])] == [endpoints[0].block_id(serial) for serial in range(3 * WINDOW)]
    assert sorted(got[0])[7][1] == (workers * 0x07070707).to_bytes(4, "big") * (CHUNK_BYTES // 4)
    assert all(endpoint.prefix == endpoint.base == endpoint.next_serial and not endpoint.queued for endpoint in endpoints)
