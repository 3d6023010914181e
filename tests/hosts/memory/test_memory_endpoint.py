# SPDX-License-Identifier: MIT
"""The client's window and a device, joined by a network that loses, doubles and reorders packets, in a time of its own."""

from __future__ import annotations

import heapq
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netsum.errors import InstructionRejectedError
from netsum.memory.endpoint import MemoryEndpoint
from netsum.memory.run import InstructionRun, Task
from netsum.packet_batch import Packet, ReceiveBatch
from netsum.wire.memory import (
    CLIENT_WINDOW,
    LAST_SEQUENCE,
    Flag,
    Instruction,
    LaneType,
    MemoryHeader,
    MemoryStatus,
    pack_memory,
    parse_memory,
)
from netsum_memory.device import Device

from tests.hosts.memory.near import BASE, WRITE_KEY, device

LANE, ITEM = LaneType.INT64, 8
CELLS = 4096


class Net:
    """Clients and one device; ``loss`` and ``double`` are probabilities, and packets take from 0.1 to ``slowest`` ms."""

    def __init__(self, seed: int, *, loss: float, double: float, slowest: float, clients: int, shards: int) -> None:
        self.rng, self.now = random.Random(seed), 0.0
        self.loss, self.double, self.slowest = loss, double, slowest
        self.device: Device = device("int64", shards=shards)
        self.endpoints = [MemoryEndpoint(shards) for _ in range(clients)]
        self._events: list[tuple[float, int, int, bool, bytes]] = []
        self._serial = 0
        self.complete: list[set[int]] = [set() for _ in range(clients)]
        self.answers: dict[int, int] = {}

    def send(self, client: int, packet: bytes, *, up: bool) -> None:
        for _ in range((self.rng.random() >= self.loss) + (self.rng.random() < self.double)):
            self._serial += 1
            due = self.now + self.rng.uniform(1e-4, self.slowest)
            heapq.heappush(self._events, (due, self._serial, client, up, packet))

    def poll(self) -> None:
        for client, endpoint in enumerate(self.endpoints):
            for packet in endpoint.poll(self.now):
                data = b"".join(packet)
                self._check_rule(client, parse_memory(data))
                self.send(client, data, up=True)

    def _check_rule(self, client: int, header: MemoryHeader) -> None:
        """Sequence s is sent only when all up to s - CLIENT_WINDOW are complete."""
        missing = set(range(1, header.sequence - CLIENT_WINDOW + 1)) - self.complete[client]
        assert not missing, (header.sequence, missing)

    def step(self) -> None:
        self.poll()
        moments = [moment for endpoint in self.endpoints if (moment := endpoint.next_deadline()) is not None]
        if self._events:
            moments.append(self._events[0][0])
        assert moments, "nothing will ever happen"
        self.now = max(self.now, min(moments))
        replies: dict[int, list[bytes]] = {}
        while self._events and self._events[0][0] <= self.now:
            _, _, client, up, packet = heapq.heappop(self._events)
            if up:
                for to, reply in self.device.receive([(("10.0.1.1", client), packet)], self.now):
                    self.send(to[1], reply, up=False)
            else:
                replies.setdefault(client, []).append(packet)
        for client, packets in replies.items():
            self.complete[client] |= {parse_memory(packet).sequence for packet in packets}
            self.endpoints[client].receive(ReceiveBatch.of(packets), self.now)

    def run(self) -> None:
        while not all(endpoint.idle for endpoint in self.endpoints):
            assert self.now < 200
            self.step()


class Narrow(Net):
    """A client's link that takes ``gap`` seconds for a packet."""

    def __init__(self, gap: float) -> None:
        super().__init__(0, loss=0.0, double=0.0, slowest=2e-4, clients=1, shards=1)
        self.gap, self._free = gap, 0.0

    def send(self, client: int, packet: bytes, *, up: bool) -> None:
        if up:
            self._free = max(self.now, self._free) + self.gap
        self._serial += 1
        heapq.heappush(self._events, (self._free if up else self.now, self._serial, client, up, packet))


def header(instruction: Instruction, length: int) -> MemoryHeader:
    lane = LaneType.BYTES if instruction == Instruction.READ else LANE
    return MemoryHeader(instruction, length=length, key=WRITE_KEY, lane=lane)


def run_of(
    task: Task, instruction: Instruction, cells: Any, data: Any = None, into: Any = None, *, each: int = 1
) -> InstructionRun:
    addresses = np.uint64(BASE) + np.asarray(cells, np.uint64) * np.uint64(ITEM)
    flat = [None if array is None else array.reshape(-1).view(np.uint8) for array in (data, into)]
    return InstructionRun(task, "r", header(instruction, each * ITEM), addresses, data=flat[0], into=flat[1], spread=(8192, 4))


@settings(max_examples=8)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([2e-4, 5e-3]),
    st.sampled_from([1, 4]),
)
def test_everything_is_done_exactly_once(seed: int, loss: float, double: float, slowest: float, shards: int) -> None:
    """Counters that three clients add to: no client gets the number that another one got, and no client's is left out."""
    net = Net(seed, loss=loss, double=double, slowest=slowest, clients=3, shards=shards)
    cells = [net.rng.choices(range(5), k=200) for _ in net.endpoints]
    found = [np.full(200, -1, np.int64) for _ in net.endpoints]
    for endpoint, mine, got in zip(net.endpoints, cells, found, strict=True):
        endpoint.submit(run_of(Task(), Instruction.FETCH_ADD, mine, np.ones(200, np.int64), got))
    net.run()
    for cell in range(5):
        numbers = sorted(
            int(number)
            for mine, got in zip(cells, found, strict=True)
            for at, number in zip(mine, got, strict=True)
            if at == cell
        )
        assert numbers == list(range(len(numbers)))


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([1, 4]))
def test_memory_holds_what_was_written_and_added(seed: int, loss: float, shards: int) -> None:
    """Each client has cells of its own, in which the order of its own calls is known: one waits for the other."""
    net = Net(seed, loss=loss, double=0.1, slowest=3e-3, clients=2, shards=shards)
    model = np.zeros(CELLS, np.int64)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        for client, endpoint in enumerate(net.endpoints):
            each = int(rng.choice([1, 16, 512]))
            starts = rng.choice(CELLS // 2 // each, size=min(8, CELLS // 2 // each), replace=False) * each
            cells = starts + client * CELLS // 2
            instruction = [Instruction.WRITE, Instruction.ADD, Instruction.MIN, Instruction.MAX][int(rng.integers(4))]
            data = rng.integers(-50, 50, (len(cells), each)) * (rng.random((len(cells), each)) < rng.random())
            endpoint.submit(run_of(Task(), instruction, cells, data, each=each))
            for start, row in zip(cells, data, strict=True):
                held = model[start : start + each]
                done = {
                    Instruction.WRITE: row,
                    Instruction.ADD: held + row,
                    Instruction.MIN: np.minimum(held, row),
                    Instruction.MAX: np.maximum(held, row),
                }
                held[...] = done[instruction]
        net.run()
    into = np.empty(CELLS, np.int64)
    net.endpoints[0].submit(run_of(Task(), Instruction.READ, np.arange(0, CELLS, 512), into=into, each=512))
    net.run()
    assert (into == model).all()


def replies_to(endpoint: MemoryEndpoint, near: Device, now: float) -> list[bytes]:
    packets = [b"".join(packet) for packet in endpoint.poll(now)]
    return [reply for _, reply in near.receive([(("10.0.1.1", 1), packet) for packet in packets], now)]


@given(st.randoms(use_true_random=False), st.integers(1, 100))
def test_many_replies_at_once_are_as_one_by_one(rng: random.Random, number: int) -> None:
    """The same packets, foreign, malformed and doubled ones among them, in any order and in any batches."""
    results = []
    for batched in (True, False):
        endpoint, near = MemoryEndpoint(4, lambda: 99), device("int64", shards=4)
        into, task = np.full(number, -1, np.int64), Task()
        endpoint.submit(run_of(task, Instruction.FETCH_ADD, np.arange(number) % 7, np.ones(number, np.int64), into))
        state = rng.getstate()
        packets = replies_to(endpoint, near, 0.0)
        packets += rng.choices(packets, k=number // 3) + [packet[:60] for packet in rng.choices(packets, k=3)]
        packets += [packet[:24] + b"12345678" + packet[32:] for packet in rng.choices(packets, k=2)] + [b"x" * 64, b""]
        packets += [packet[:1] + b"\1" + packet[2:] for packet in rng.choices(packets[:number], k=2)]
        rng.shuffle(packets)
        at = 0
        while at < len(packets):
            size = rng.randint(1, 40)
            some = packets[at : at + size]
            endpoint.receive(ReceiveBatch.of(some) if batched else [memoryview(packet) for packet in some], 0.01)
            at += size
        assert task.done()
        results.append((endpoint.stats, into.tolist(), endpoint.idle, endpoint.base))
        rng.setstate(state)
    assert results[0] == results[1]


def answered(endpoint: MemoryEndpoint, sequence: int, status: MemoryStatus, now: float) -> None:
    reply = MemoryHeader(Instruction.FETCH_ADD, client=endpoint.client, sequence=sequence, flags=Flag.REPLY, status=status)
    endpoint.receive([memoryview(pack_memory(reply))], now)


@pytest.mark.parametrize("status", [MemoryStatus.BUSY, MemoryStatus.NOT_PRIMARY])
def test_what_should_come_again_does_so_soon_and_ever_more_slowly(status: MemoryStatus) -> None:
    endpoint, into, now = MemoryEndpoint(), np.zeros(1, np.int64), 0.0
    task = Task()
    endpoint.submit(run_of(task, Instruction.FETCH_ADD, [0], np.ones(1, np.int64), into))
    assert len(endpoint.poll(now)) == 1
    pauses = []
    for _ in range(8):
        answered(endpoint, 1, status, now)
        before = now
        packets: list[Packet] = []
        while not packets:
            moment = endpoint.next_deadline()
            assert moment is not None
            now = max(now, moment)
            packets = list(endpoint.poll(now))
        assert parse_memory(b"".join(packets[0])).flags == Flag.REPEAT
        pauses.append(now - before)
    assert pauses[0] < 0.005
    assert pauses == sorted(pauses)
    assert pauses[-1] <= 0.11
    assert task.answer == status.name
    assert not task.done()


def test_a_refusal_ends_the_task_and_begins_no_more_of_it() -> None:
    endpoint, task = MemoryEndpoint(), Task()
    endpoint.submit(run_of(task, Instruction.FETCH_ADD, range(1000), np.ones(1000, np.int64), np.zeros(1000, np.int64)))
    endpoint.poll(0.0)
    answered(endpoint, 5, MemoryStatus.LOST, 0.01)
    assert isinstance(task.error, InstructionRejectedError)
    assert (task.error.status, task.error.address, task.error.region) == ("LOST", BASE + 4 * ITEM, "r")
    first = endpoint.give_up(task)
    assert first == ("r", BASE, "FETCH_ADD", 1)
    assert endpoint.idle
    assert not endpoint.poll(1.0)


def test_a_client_takes_a_new_number_before_its_sequence_wraps() -> None:
    names = iter([5, 6])
    endpoint, near = MemoryEndpoint(1, lambda: next(names)), device("int64")
    endpoint.base = endpoint.next = LAST_SEQUENCE - 400
    into, seen = np.full(600, -1, np.int64), set()
    endpoint.submit(run_of(Task(), Instruction.FETCH_ADD, [3] * 600, np.ones(600, np.int64), into))
    for step in range(100):
        packets = [b"".join(packet) for packet in endpoint.poll(0.01 * step)]
        seen |= {(parse_memory(packet).client, parse_memory(packet).sequence) for packet in packets}
        replies = near.receive([(("10.0.1.1", 1), packet) for packet in packets], 0.0)
        endpoint.receive([memoryview(reply) for _, reply in replies], 0.01 * step)
    assert endpoint.idle
    assert into.tolist() == list(range(600))
    assert {client for client, _ in seen} == {5, 6}
    assert max(sequence for _, sequence in seen) <= LAST_SEQUENCE
    assert min(sequence for client, sequence in seen if client == 6) == 1


def test_a_late_reply_is_not_taken_for_that_of_the_instruction_in_its_place() -> None:
    endpoint, near, into = MemoryEndpoint(), device("int64"), np.full(300, -1, np.int64)
    endpoint.submit(run_of(Task(), Instruction.FETCH_ADD, [3] * 300, np.ones(300, np.int64), into))
    early = replies_to(endpoint, near, 0.0)
    endpoint.receive(ReceiveBatch.of(early), 0.001)
    late = replies_to(endpoint, near, 0.001)
    assert parse_memory(late[0]).sequence == CLIENT_WINDOW + 1
    endpoint.receive(ReceiveBatch.of([early[0], early[0], *late]), 0.002)
    assert into.tolist() == list(range(300))
    assert endpoint.stats.duplicates == 2


@pytest.mark.parametrize(("gap", "repeated"), [(0.004, 0), (0.012, 2), (0.033, 4), (0.1, 70)])
def test_a_slow_link_is_not_flooded_with_repeats(gap: float, repeated: int) -> None:
    """The first instruction has it to itself; of the next 64 each takes longer than that."""
    net = Narrow(0.002)
    for net.gap, number in ((0.002, 1), (gap, 64)):
        net.endpoints[0].submit(run_of(Task(), Instruction.READ, range(number), into=np.zeros(number, np.int64)))
        net.run()
    assert net.endpoints[0].stats.retransmissions <= repeated
    assert net.now < 1.1 * 64 * gap + (gap if repeated <= 4 else 64 * gap)


def test_what_is_lost_behind_pushes_that_wait_is_sent_again() -> None:
    """No client answers a gradient before the other workers' have come, and these may wait for what was lost."""
    endpoint, tasks, now = MemoryEndpoint(), [Task() for _ in range(4)], 0.0
    pushes = MemoryHeader(Instruction.OPTIMIZE, length=4, lane=LaneType.FLOAT32, argument=1 << 32)
    for task, header in zip(tasks, (pushes, pushes, pushes, MemoryHeader(Instruction.READ, length=4)), strict=True):
        data = np.zeros(4, np.uint8) if header.lane else None
        endpoint.submit(InstructionRun(task, "r", header, np.array([BASE], np.uint64), data=data))
    sent: list[int] = []
    for _ in range(4):
        sent += [parse_memory(b"".join(packet)).sequence for packet in endpoint.poll(now)]
        now = endpoint.next_deadline() or now
    assert sent[:4] == [1, 2, 3, 4]
    assert sent[4:].count(1) == sent[4:].count(4) == 3  # each time the oldest push, and the oldest of all others
    assert {2, 3} < set(sent[4:])  # and in turn the other pushes
