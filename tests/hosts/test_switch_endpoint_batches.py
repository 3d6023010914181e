# SPDX-License-Identifier: MIT
"""An endpoint takes a batch of packets as it takes them one by one: two endpoints get the same blocks and the same packets, one
of them in batches, and end up in the same state."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.core.blocks import Block, BlockBatch, BlockRejected, CallMismatch, is_ordinary
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.packet_batch import ReceiveBatch, Rows
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, HEADER_BYTES, VERSION, AgeOp, Lane, Op, Status

from tests.hosts.network import JOB_ID, descriptor

WORKERS = 3
LANES = CHUNK_BYTES >> Lane.L32
Change = Callable[[Header], Header]
ODD: list[Change] = [
    lambda h: h._replace(status=Status.RANGE, lane_cnt=0),
    lambda h: h._replace(status=Status.AGAIN, lane_cnt=0, worker_cnt=0, data_cnt=0),
    lambda h: h._replace(status=Status.STALE, lane_cnt=0, worker_cnt=0, data_cnt=0),
    lambda h: h._replace(backoff=1),
    lambda h: h._replace(degraded=1, age_op=AgeOp.AGED, worker_cnt=2, data_cnt=2),
    lambda h: h._replace(degraded=1, age_op=AgeOp.LATE, worker_cnt=2, data_cnt=2),
    lambda h: h._replace(worker_cnt=2, data_cnt=2),
    lambda h: h._replace(lane_cnt=0),  # a notice
    lambda h: h._replace(lane_cnt=LANES // 2),
    lambda h: h._replace(gen_id=h.gen_id + 1),
    lambda h: h._replace(job_id=h.job_id + 1),
    lambda h: h._replace(version=VERSION + 1),
    lambda h: h._replace(op=Op.MAX),
    lambda h: h._replace(data_cnt=0),
]


class Results:
    """The outcomes of a run's blocks."""

    def __init__(self, first: int, log: list[Any]) -> None:
        self._first, self._log = first, log
        self.together = 0

    def record_result(self, row: int, header: Header, payload: memoryview) -> None:
        self._log.append((self._first + row, header._replace(block_id=0), bytes(payload)))

    def record_results(self, row: int, header: Header, payloads: Rows) -> None:
        self.together += len(payloads)
        for at, payload in enumerate(payloads, row):
            self.record_result(at, header, payload.tobytes())

    def record_loss(self, row: int) -> None:
        self._log.append((self._first + row, None, b""))


class Member:
    """A window, in ``batches`` or not, and what came of its blocks."""

    def __init__(self, batches: bool, **changes: Any) -> None:
        self.endpoint = SwitchEndpoint(descriptor(0, WORKERS, block_bytes=CHUNK_BYTES, **changes))
        self._batches = batches
        self.log: list[Any] = []
        self.runs: list[Results] = []

    def submit(self, rows: Rows, odd: dict[int, dict[str, Any]], op: Op, dest: int, empty: bool) -> None:
        self.runs.append(Results(self.endpoint.submitted, self.log))
        payload = b"" if empty else rows[0, HEADER_BYTES:].data
        like = Block(len(self.runs), op, Lane.L32, payload, dest=dest, room=CHUNK_BYTES if empty else 0)
        run = BlockBatch(like, rows.copy(), self.runs[-1])
        for row, changes in odd.items():
            run.change(row, **changes)
        self.endpoint.submit_all(run if self._batches else list(run))

    def receive(self, packets: list[bytes], now: float) -> str:
        """The run's final state."""
        try:
            if self._batches:
                self.endpoint.receive(ReceiveBatch.of(packets), now)
            for packet in () if self._batches else packets:
                self.endpoint.receive([memoryview(packet)], now)
        except (BlockRejected, CallMismatch) as error:
            return repr(error)
        return ""

    def state(self, now: float) -> tuple[Any, ...]:
        endpoint = self.endpoint
        sent = [b"".join(packet) for packet in endpoint.poll(now)]
        counts = (
            endpoint.base,
            endpoint.prefix,
            endpoint.next_serial,
            endpoint.received_end,
            endpoint.active_size,
            endpoint.queued,
            endpoint.idle,
        )
        return sent, counts, endpoint.next_deadline(), endpoint.stats, self.log


class Story:
    """Blocks, packets and moments, from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self._odd = rng.choice([0.0, 0.02, 0.3])
        self._changes: dict[str, Any] = {
            "window": rng.choice([1, 4, 16]),
            "first_block_id": rng.choice([0, 77, 0xFFFFFFF8]),
            "roots": rng.choice([(), (0, 1), (0, 0, 1)]),
            **rng.choice([{}, {"block_exp_ms": 50.0, "quorum": 1}]),
        }
        self.members = [Member(batches, **self._changes) for batches in (False, True)]
        self._gens: list[tuple[int, int, Op]] = []  # of each block: generation, dest, operation
        self._next = 0  # the block whose result comes next
        self._now = 0.0

    def submit(self) -> None:
        number, dest = self.rng.choice([1, 5, 40]), self.rng.choice([EVERYONE, EVERYONE, 1])
        rows = np.frombuffer(self.rng.randbytes(number * (HEADER_BYTES + CHUNK_BYTES)), np.uint8).reshape(number, -1)
        op = self.rng.choice([Op.SUM, Op.SUM, Op.COPY])
        empty = self.rng.random() < (0.7 if op == Op.COPY else 0.2)
        changes: list[dict[str, Any]] = [
            {"final": True},
            {"payload": b"", "status": Status.RANGE},
            {"payload": b"", "passing": True, "room": CHUNK_BYTES},
        ]
        odd = {row: self.rng.choice(changes) for row in range(number) if self.rng.random() < self._odd}
        for member in self.members:
            member.submit(rows * (not empty), odd, op, dest, empty)
        self._gens += [(len(self.members[0].runs), dest, op)] * number

    def packets(self) -> list[bytes]:
        """Mostly results in order; some come twice, late, or say something else."""
        sent, many = self.members[0].endpoint.next_serial, []
        for _ in range(self.rng.choice([1, 3, 20])):
            if self.rng.random() < self._odd:
                self._next += self.rng.choice([-3, -1, 1, 2])
            if self.rng.random() < 0.2:
                many += [self._early(serial) for serial in range(self._next, self._next + self.rng.choice([1, 5, 40]))]
            many.append(self._packet(max(0, min(self._next, sent))))
            self._next = min(self._next + 1, sent)
        return many

    def _packet(self, serial: int) -> bytes:
        header = self._header(serial)
        if header.op == Op.COPY and self.rng.random() < 0.8:
            header = header._replace(lane_cnt=0)
        if self.rng.random() < self._odd:
            header = self.rng.choice(ODD)(header)
        short = self.rng.randrange(1, 300) if self.rng.random() < self._odd / 4 else 0
        packet = pack_header(header) + self.rng.randbytes(header.payload_bytes)
        return packet[: max(0, len(packet) - short)]

    def _header(self, serial: int) -> Header:
        gen, dest, op = self._gens[min(serial, len(self._gens) - 1)]
        block_id = (self._changes["first_block_id"] + serial) % (1 << 32)
        lanes = LANES if dest == EVERYONE else 0
        return Header(
            JOB_ID,
            block_id,
            0,
            worker_cnt=3,
            gen_id=gen,
            lane_cnt=lanes,
            op=op,
            dest=dest,
            data_cnt=1 if op == Op.COPY else 3,
        )

    def _early(self, serial: int) -> bytes:
        """A block's payload ahead of its result, perhaps before the block was submitted."""
        header = self._header(max(0, serial))._replace(early=1, worker_cnt=1, data_cnt=1)
        return pack_header(header) + self.rng.randbytes(header.payload_bytes)

    def play(self) -> int:
        """The number of results taken together."""
        for _ in range(40):
            if not self._gens or (self.members[0].endpoint.queued < 20 and self.rng.random() < 0.3):
                self.submit()
            self._now += self.rng.choice([0.0, 0.001, 0.001, 0.5])
            if self.rng.random() < self._odd / 4:
                self.look()
            packets = self.packets()
            one, many = (member.receive(packets, self._now) for member in self.members)
            assert many == one
            one_state, many_state = (member.state(self._now) for member in self.members)
            assert many_state == one_state
            if one:
                break
        self.look()
        return sum(run.together for run in self.members[1].runs)

    def look(self) -> None:
        """Ask for blocks that are in flight, as the end of a call and recovery do."""
        first, second = (member.endpoint for member in self.members)
        overruled = [[b"".join(packet) for packet in endpoint.abort_outstanding(Status.ABORT)] for endpoint in (first, second)]
        assert overruled[0] == overruled[1]
        assert self._told(first) == self._told(second)

    def _told(self, endpoint: SwitchEndpoint) -> list[tuple[Any, ...]] | None:
        """Return what the window would send again in another epoch."""
        blocks = endpoint.blocks_from(endpoint.block_id(max(0, endpoint.base - 2)))
        return None if blocks is None else [(block.gen, bytes(block.payload), block.status, block.delivered) for block in blocks]


@given(st.integers(0, 2**32))
def test_a_batch_is_taken_as_its_packets_are(seed: int) -> None:
    Story(seed).play()


def test_most_results_are_taken_together() -> None:
    """Without this, the property above would say nothing."""
    stories = [Story(seed) for seed in range(40)]
    together = sum(story.play() for story in stories)
    assert together > sum(len(story.members[0].log) for story in stories) / 2


@pytest.mark.parametrize("back", [0, 3, 6])
def test_what_was_sent_together_is_sent_again_from_any_block(back: int) -> None:
    member = Member(batches=True, window=8)
    endpoint = member.endpoint
    rows = np.repeat(np.arange(8, dtype=np.uint8)[:, None], HEADER_BYTES + CHUNK_BYTES, axis=1)
    member.submit(rows, {}, Op.SUM, EVERYONE, empty=False)

    def sent() -> list[bytes]:
        return [b"".join(packet) for packet in endpoint.poll(0.0)]

    def result(packet: bytes) -> bytes:
        return pack_header(parse_header(packet)._replace(worker_cnt=WORKERS, data_cnt=WORKERS)) + packet[HEADER_BYTES:]

    packets = sent()
    member.receive([result(packet) for packet in packets[:6]], 0.1)
    assert (endpoint.base, member.runs[0].together) == (6, 6)
    for _ in range(2):
        assert endpoint.resume(endpoint.block_id(back))
        assert sent() == packets[back:]
    member.receive([result(packet) for packet in packets[back:]], 0.2)
    assert endpoint.idle
    assert [(row, payload[0]) for row, _, payload in member.log] == [(row, row) for row in range(8)]


def test_the_property_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a partial result counted as ordinary, the endpoints would differ."""

    def careless(header: Header, size: int) -> bool:
        return is_ordinary(header._replace(degraded=0, age_op=AgeOp.NORMAL), size)

    monkeypatch.setattr("netsum.core.switch_endpoint.is_ordinary", careless)
    stories = [Story(seed) for seed in range(200)]
    with pytest.raises(AssertionError):
        sum(story.play() for story in stories)
