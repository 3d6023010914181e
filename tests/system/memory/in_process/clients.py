"""A client: the host library's endpoint, with random instructions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from netsum.errors import MemoryLostError
from netsum.memory.endpoint import MemoryEndpoint
from netsum.memory.run import InstructionRun, Task
from netsum.wire.memory import MemoryHeader
from netsum_controller.memory.model import Region
from netsum_memory.message import Address

from tests.system.memory.in_process.network import InProcessNetwork
from tests.system.memory.in_process.switch import VIRTUAL, Switch
from tests.system.memory.model import HistoryEntry
from tests.system.memory.oracle import Lives
from tests.system.memory.places import Workload
from tests.system.memory.plan import MemoryPlan
from tests.system.memory.request import request_of
from tests.system.memory.steps import is_push

PORT: Final = 40000

OpenRequest = tuple[int, HistoryEntry]
"""An instruction, and the number of its place."""


class Client:
    """Attributes:
    answered: instructions that have their reply.
    refused: those that were refused, in words.
    """

    def __init__(
        self,
        workload: Workload,
        regions: Mapping[str, Region],
        lives: Lives,
        plan: MemoryPlan,
        switch: Switch,
        network: InProcessNetwork,
    ) -> None:
        """``regions``: those there are, by name; they may change."""
        self.workload, self._regions, self._lives, self._plan = workload, regions, lives, plan
        self._depth, self._pause = plan.depth, plan.pause
        self._rng = random.Random(f"pauses {plan.workload_seed(workload.client)}")
        self._next = 0.0
        self._switch, self._network = switch, network
        numbers = iter(range(1 + (workload.client << 32), 1 << 62))
        self.endpoint = MemoryEndpoint(max(region.shards for region in plan.regions), new_client=numbers.__next__)
        self._address: Address = (f"10.1.0.{workload.client + 1}", PORT)
        switch.plug(self._address, self._receive)
        self._tasks: list[tuple[Task, OpenRequest]] = []
        self._alarm = 0.0
        self.answered = 0
        self.refused: list[str] = []

    @property
    def over(self) -> bool:
        return self.workload.over and not self._tasks

    @property
    def unanswered(self) -> list[OpenRequest]:
        return [open_request for _, open_request in self._tasks]

    @property
    def _may_send(self) -> bool:
        """A push may wait for other workers' pushes, so it takes up no turn."""
        return sum(not is_push(entry.request) for _, (_, entry) in self._tasks) < self._depth

    def submit(self, number: int, entry: HistoryEntry) -> None:
        """Give the endpoint an instruction on a place."""
        place = self._plan.places[number]
        plan, region = self._plan.region(place.region), self._regions[place.region]
        request, task = entry.request, Task()

        def replied(_row: int, reply: MemoryHeader, payload: memoryview) -> None:
            self.workload.end(number, entry, self._network.now, bytes(payload), reply.argument)
            self.answered += 1

        header, addresses, fields = request_of(request, place, plan, region.base)
        fields |= {"on_reply": replied, "spread": (region.granule, region.shards)}
        run = InstructionRun(task, place.region, header._replace(key=region.write_key), addresses, **fields)
        self._tasks.append((task, (number, entry)))
        self._lives.present[number].append(entry)
        self.endpoint.submit(run)

    def turn(self) -> None:
        """Submit more, send what is due, and schedule the next turn."""
        now = self._network.now
        for task, (number, entry) in self._tasks:
            if isinstance(task.error, MemoryLostError) and self._plan.region_of(number).fragile:
                self.workload.lose(number, entry, now)
                self.answered += 1
            elif task.error is not None:
                self.refused.append(f"{entry.describe()}: {task.error}")
        self._tasks = [each for each in self._tasks if not each[0].done()]
        while self._may_send and now >= self._next and (open_request := self.workload.begin(now)) is not None:
            self.submit(*open_request)
            self._next = now + self._rng.expovariate(1 / self._pause)
            self._network.later(self._next - now, self.turn)
        for packet in self.endpoint.poll(now):
            self._switch.send(self._address, VIRTUAL, b"".join(packet))
        due = self.endpoint.next_deadline()
        if due is not None and due != self._alarm:
            self._alarm = due
            self._network.later(max(0.0, due - now), lambda: self._wake(due))

    def _wake(self, due: float) -> None:
        if due == self._alarm:
            self._alarm = 0.0
            self.turn()

    def _receive(self, _source: Address, data: bytes) -> None:
        self.endpoint.receive([memoryview(data)], self._network.now)
        self.turn()
