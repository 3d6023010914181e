# SPDX-License-Identifier: MIT
"""A member of a job without a switch: whatever datagrams come, a block is settled once, by a result that can be its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from netsum.core.blocks import Block, BlockRejected, CallMismatch
from netsum.errors import MismatchError
from netsum.peers.peer_endpoint import PeerEndpoint
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, Lane, Op, Status

from tests.fuzz.targets.api import FuzzTarget, cut, joined
from tests.fuzz.targets.wire import DESCRIPTOR
from tests.hosts.peers import memory_peers

_GEN = 5
_RANKS = 3
_BLOCKS = 6
_ALGORITHMS = ("parameter_server", "ring", "double_binary_tree")


def target() -> FuzzTarget:
    """An input is datagrams, each behind two bytes with its length; the first byte says which algorithm runs."""

    def take(data: bytes) -> None:
        settled: Counter[int] = Counter()
        endpoint = _endpoint(0, data[0] if data else 0, settled)
        now = 0.0
        datagrams = cut(data[1:], 2000)
        try:
            endpoint.poll(now)
            for datagram in datagrams:
                now += 0.001
                endpoint.receive([memoryview(datagram)], now)
                endpoint.poll(now)
        except (BlockRejected, CallMismatch, MismatchError):  # the call ends, and says why
            return
        assert all(count == 1 for count in settled.values()), "a block was settled twice"
        assert endpoint.idle == (len(settled) == _BLOCKS), "idle, and blocks are open"
        assert endpoint.stats.packets_received == len(datagrams)
        endpoint.explain(now)

    return FuzzTarget(take, [bytes((kind,)) + joined(_seed(kind)) for kind in range(len(_ALGORITHMS))], 4000)


def _endpoint(rank: int, kind: int, settled: Counter[int]) -> PeerEndpoint:
    algorithm = _ALGORITHMS[kind % len(_ALGORITHMS)]
    addresses = tuple(f"127.0.0.1:{9000 + each}" for each in range(_RANKS))
    described = replace(DESCRIPTOR, rank=rank, workers=_RANKS, window=8, algorithm=algorithm, peers=addresses, peer_key="00" * 8)
    endpoint = PeerEndpoint(described)
    for serial in range(_BLOCKS):
        endpoint.submit(_block(serial, settled))
    return endpoint


def _block(serial: int, settled: Counter[int]) -> Block:
    def on_result(header: Header, payload: memoryview) -> None:
        assert header.block_id == (DESCRIPTOR.first_block_id + serial) & 0xFFFFFFFF
        if header.status == Status.OK:
            assert header.gen_id == _GEN
            assert len(payload) == CHUNK_BYTES, "a result of another size"
        settled[serial] += 1

    more = serial % 3 < 2
    return Block(_GEN, Op.SUM, Lane.L32, bytes(CHUNK_BYTES), dest=EVERYONE, more=more, on_result=on_result)


def _seed(kind: int) -> list[bytes]:
    """The messages that rank 0 receives when all goes well."""
    endpoints = [_endpoint(rank, kind, Counter()) for rank in range(_RANKS)]
    transports = memory_peers(range(_RANKS))
    received = []
    for step in range(40):
        for rank, endpoint in enumerate(endpoints):
            transports[rank].send(endpoint.poll(step / 1000))
            for datagram in transports[rank].recv(0.0):
                endpoint.receive([datagram], step / 1000)
                if rank == 0:
                    received.append(bytes(datagram))
    assert endpoints[0].idle
    return received
