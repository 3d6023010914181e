# SPDX-License-Identifier: MIT
"""Steps in any order of arrival, while workers die at any instant and come back: no client waits for ever, all blocks make all
steps, and all blocks of a layer with the same norms."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.core.progress import Flow
from netsum.memory.array import MemoryArray
from netsum.memory.parameters import Parameters
from netsum.memory.run import InstructionRun, Task
from netsum.wire.memory import MAX_MESSAGE, Flag, Instruction, LaneType, MemoryStatus
from netsum_memory import message
from netsum_memory.execute import Result
from netsum_memory.message import Address, MemoryMessage
from netsum_memory.parameters import ParametersKind
from netsum_memory.store import Store
from numpy.typing import NDArray

from tests.examples import one_in
from tests.memory.device.desk import region
from tests.memory.inside import descriptor

SIZE = 1 << 17
SHAPES = (100, 20)
STEPS = 3


@dataclass
class Pending:
    """An instruction that the network has, and where its reply goes."""

    run: InstructionRun
    row: int
    packet: MemoryMessage
    life: int


@dataclass
class Worker:
    """One life of a worker after the other."""

    number: int
    life: int = 0
    parameters: Parameters | None = None
    task: Task = field(default_factory=Task)
    flow: Flow | None = None
    condition: Any = None


class Net:
    """In the place of a client: what is submitted arrives when the test says so."""

    def __init__(self) -> None:
        self.pending: list[Pending] = []
        self.waiting: dict[tuple[int, int], Pending] = {}
        self.sequence = self.life = 0
        self.endpoint = self

    def positions(self, region: int, shards: int) -> NDArray[np.uint64]:  # noqa: ARG002
        """Nothing that it was told is ever gone here."""
        return np.zeros(shards, np.uint64)

    def join(self, group: Address) -> None:
        """Replies to many are handed to each of them."""

    def submit(self, run: InstructionRun) -> None:
        run.task.left += run.number
        for row in range(run.number):
            ring = np.zeros((1, MAX_MESSAGE), np.uint8)
            self.sequence += 1
            run.begun = row
            size = run.write(ring, self.life, self.sequence)
            self.pending.append(Pending(run, row, message.parse(ring[0, :size].tobytes()), self.life))


class Stage:
    def __init__(self, options: dict[str, Any], seed: int) -> None:
        self.random = Random(seed)
        self.region = region(SIZE, 1, name="model", kind="parameters", dtype="float32", options=options)
        self.kind = ParametersKind(self.region, 0, Store(self.region))
        self.workers = [Worker(number) for number in range(options["workers"])]
        self.net, self.lives, self.position = Net(), 0, 0
        self.norms: defaultdict[tuple[int, int], set[bytes]] = defaultdict(set)
        for worker in self.workers:
            self.begin(worker)

    def begin(self, worker: Worker) -> None:
        """A new life; what the one before has in flight may still arrive, and no client hears the replies."""
        self.lives += 1
        worker.life, worker.task = self.lives, Task()
        layers = [np.full(size, worker.number + 1, np.float32) for size in SHAPES]
        memory = MemoryArray(self.net, descriptor(self.region), 8192)  # type: ignore[arg-type]
        worker.parameters = Parameters(memory, layers, worker=worker.number)
        worker.flow = worker.parameters._beginning(worker.task)
        worker.condition = None

    def resume(self, worker: Worker) -> None:
        """Let a worker go on as far as it can; it is done once all blocks have made their steps."""
        assert worker.parameters is not None
        while worker.flow is not None and (worker.condition is None or worker.condition()):
            self.net.life = worker.life
            try:
                worker.condition = next(worker.flow)
            except StopIteration:
                worker.flow, worker.condition = None, None
                if worker.parameters._steps.min() < STEPS:
                    gradient = np.full(sum(SHAPES), worker.number + 1, np.float32)
                    worker.flow = worker.parameters._pushing(worker.task, gradient, None)

    def deliver(self) -> None:
        """One of the instructions arrives, and its reply and those that it releases come back."""
        arrived = self.net.pending.pop(self.random.randrange(len(self.net.pending)))
        head = arrived.packet.header
        self.net.waiting[head.client, head.sequence] = arrived
        assert self.kind.check(arrived.packet) == MemoryStatus.OK
        if head.instruction == Instruction.READ:
            self.reply(head.client, head.sequence, self.kind.read(arrived.packet))
            return
        if head.lane == LaneType.FLOAT64:
            layer = int(head.address >= self.region.base + 4 * SHAPES[0])
            self.norms[layer, head.argument >> 32].add(arrived.packet.payload)
        self.position += 1
        outcome = self.kind.execute(arrived.packet, self.position)
        if outcome.result is not None:
            self.reply(head.client, head.sequence, outcome.result)
        for other in outcome.others:
            self.reply(other.client, other.sequence, other.result)

    def reply(self, client: int, sequence: int, result: Result) -> None:
        request = self.net.waiting.pop((client, sequence))
        assert result.status == MemoryStatus.OK, MemoryStatus(result.status)
        worker = next((each for each in self.workers if each.life == request.life), None)
        if worker is None:
            return
        run, head = request.run, request.packet.header
        header = head._replace(
            argument=head.argument if result.argument is None else result.argument,
            lane=head.lane if result.lane is None else result.lane,
            flags=int(Flag.SHARED) if result.shared else 0,
        )
        if run.on_reply is not None:
            run.on_reply(request.row, header, memoryview(result.payload))
        elif result.payload:
            run.put(np.array([request.row]), np.frombuffer(result.payload, np.uint8)[None])
        run.task.left -= 1
        self.resume(worker)

    def play(self, deaths: int) -> None:
        for worker in self.workers:
            self.resume(worker)
        while any(worker.flow is not None for worker in self.workers):
            if deaths and self.random.random() < 0.05:
                deaths -= 1
                worker = self.random.choice([each for each in self.workers if each.flow is not None])
                lost = self.random.random() < 0.5
                if lost:  # what it has sent is lost with it
                    self.net.pending = [each for each in self.net.pending if each.life != worker.life]
                self.begin(worker)
                self.resume(worker)
                continue
            assert self.net.pending, "every client waits for ever"
            self.deliver()


CASES: list[dict[str, Any]] = [
    {"optimizer": "sgd", "workers": 3},
    {"optimizer": "lars", "workers": 3, "lr": 1.0, "block": 64},
    {"optimizer": "lamb", "workers": 3, "quorum": 2, "block": 64},
    {"optimizer": "sgd", "workers": 3, "mode": "stale", "staleness": 1, "block": 64},
]


@pytest.mark.parametrize("options", CASES, ids=lambda options: f"{options['optimizer']}-{options.get('mode', '')}")
@given(seed=st.integers(0, 2**32 - 1), deaths=st.integers(0, 4))
@one_in(8)
def test_no_call_waits_forever(options: dict[str, Any], seed: int, deaths: int) -> None:
    stage = Stage(options, seed)
    stage.play(deaths)
    blocks = stage.kind.blocks.values()
    if options.get("mode") == "stale":
        assert all(set(block.clocks.values()) == {STEPS} for block in blocks)
    else:
        assert {block.applied for block in blocks} == {STEPS}
    assert not any(block.towards is not None for block in blocks)
    assert all(len(told) == 1 for told in stage.norms.values())
    assert bool(stage.norms) == stage.kind.options.layers
