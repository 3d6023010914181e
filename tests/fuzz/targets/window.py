# SPDX-License-Identifier: MIT
"""A host's window: whatever packets come, a block is settled once, by a result that can be its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from netsum.core.blocks import Block, BlockRejected, CallMismatch
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import CHUNK_BYTES, GIVING_UP, Lane, Op, Outcome, Status

from tests.fuzz.targets.api import FuzzTarget, cut, joined
from tests.fuzz.targets.wire import DESCRIPTOR

_GEN = 5
_LANES = CHUNK_BYTES >> Lane.L32


def target() -> FuzzTarget:
    """An input is packets, each behind two bytes with its length; the first byte says whether the job degrades."""
    jobs = (DESCRIPTOR, replace(DESCRIPTOR, block_exp_ms=5.0, quorum=1))

    def take(data: bytes) -> None:
        descriptor = jobs[data[0] & 1 if data else 0]
        settled: Counter[int] = Counter()
        endpoint = SwitchEndpoint(descriptor)
        for serial in range(6):
            endpoint.submit(_block(serial, settled))
        now = 0.0
        endpoint.poll(now)
        try:
            for packet in cut(data[1:], 600):
                now += 0.001
                endpoint.receive([memoryview(packet)], now)
                endpoint.poll(now)
        except (BlockRejected, CallMismatch):  # the call ends, and says why
            return
        assert all(count == 1 for count in settled.values()), "a block was settled twice"
        assert endpoint.idle == (len(settled) == 6), "idle, and blocks are open"
        assert endpoint.stats.packets_received == len(cut(data[1:], 600))

    return FuzzTarget(take, [bytes((kind,)) + joined(packets) for kind in (0, 1) for packets in _seeds()], 2000)


def _block(serial: int, settled: Counter[int]) -> Block:
    def on_result(header: Header, payload: memoryview) -> None:
        assert header.gen_id == _GEN or header.status in GIVING_UP
        assert header.block_id == DESCRIPTOR.first_block_id + serial
        assert header.job_id == DESCRIPTOR.job_id
        if header.status == Status.OK:
            assert len(payload) in (0, CHUNK_BYTES), "a result of another size"
        settled[serial] += 1

    def on_lost() -> None:
        settled[serial] += 1

    return Block(_GEN, Op.SUM, Lane.L32, bytes(CHUNK_BYTES), on_result=on_result, on_lost=on_lost)


def _seeds() -> list[list[bytes]]:
    first = DESCRIPTOR.first_block_id
    result = Header(DESCRIPTOR.job_id, first, worker_cnt=2, gen_id=_GEN, lane_cnt=_LANES, data_cnt=2)
    whole = [pack_header(result._replace(block_id=first + at)) + bytes(CHUNK_BYTES) for at in range(6)]
    notice = pack_header(result._replace(lane_cnt=0))
    partial = pack_header(result._replace(degraded=1, age_op=2, worker_cnt=1, data_cnt=1)) + bytes(CHUNK_BYTES)
    answers = [
        pack_header(result._replace(status=status, age_op=age, lane_cnt=0, worker_cnt=0, data_cnt=0))
        for status in (Status.RANGE, Status.ABORT, Status.MISMATCH, Status.STALE, Status.REFUSED)
        for age in (0, Outcome.OUT_OF_WINDOW)
    ]
    return [
        whole,
        whole[::-1] + whole,
        [notice, whole[0], notice],
        [partial, *whole],
        *([each, *whole] for each in answers),
    ]
