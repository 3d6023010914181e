# SPDX-License-Identifier: MIT
"""A round of the memory check: clients ask, events happen, and memory that was lost is made anew. All that the two stages share;
a stage says how a device is killed, a region made, and so on."""

from __future__ import annotations

import random
import struct
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from netsum.errors import MemoryLostError
from netsum.wire.memory import Instruction, MemoryHeader
from netsum_controller.memory.model import Shard
from numpy.typing import NDArray

from tests.system.memory.model import Finding, HistoryEntry, MemoryRequest, shard_of
from tests.system.memory.oracle import Lives, judge
from tests.system.memory.places import Place, Theme, Workload
from tests.system.memory.plan import Event, MemoryEventKind, MemoryPlan, RegionPlan
from tests.system.memory.steps import is_push
from tests.system.rounds import RoundTotals


@dataclass
class MemoryTotals(RoundTotals):
    """Counts.

    Attributes:
        operations: instructions that were answered; ``histories``: of so many places.
        wrong: histories that no serial order explains, refusals that should not be, replicas that differ.
        lost, doubled: acknowledged changes that are nowhere to be seen, or that were done twice.
        undecided: histories with too many possible orders.
        hangs: instructions without an answer in time.
        faults: what was done to packets, and events, by kind.
    """

    operations: int = 0
    histories: int = 0
    wrong: int = 0
    lost: int = 0
    doubled: int = 0
    undecided: int = 0
    hangs: int = 0
    bytes: int = 0
    retransmissions: int = 0
    instructions: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def found(self, finding: Finding) -> None:
        """Count what is wrong with a history."""
        name = finding.value
        setattr(self, name, getattr(self, name) + 1)

    @property
    def made(self) -> int:
        return self.operations

    @property
    def failures(self) -> int:
        return self.wrong + self.lost + self.doubled + self.undecided + self.hangs

    @property
    def note(self) -> str:
        return f"{self.operations:,} operations, {self.wrong} wrong, {self.lost} lost, {self.doubled} doubled"

    def figures(self) -> dict[str, Any]:
        first = {name: getattr(self, name) for name in ("operations", "wrong", "lost", "doubled")}
        counted = {name: dict(sorted(getattr(self, name).items())) for name in ("instructions", "faults")}
        return first | super().figures() | counted


class RequestFields(NamedTuple):
    """One instruction. ``fields``: those of a :class:`netsum.memory.run.InstructionRun` that are by row."""

    header: MemoryHeader
    addresses: NDArray[np.uint64]
    fields: dict[str, Any]


def request_of(request: MemoryRequest, place: Place, region: RegionPlan, base: int) -> RequestFields:
    """``base``: the region's first address."""
    instruction, data, length = request.instruction, request.payload, request.length
    fields: dict[str, Any] = {}
    if place.theme is Theme.ROWS:
        address = base + shard_of(place.pieces[0], region.shards) * region.granule
        data = struct.pack(f"<{len(request.path)}Q", *(place.pieces[row] for row in request.path)) + data
    else:
        address = base + place.offset(request.start)
    if data:
        fields["data"], length = np.frombuffer(data, np.uint8), len(data)
    if instruction == Instruction.COPY:
        fields["arguments"] = np.array([base + place.offset(request.source)], np.uint64)
    segments = [struct.unpack(">Q", struct.pack(">d", number))[0] for number in request.settings]
    if instruction == Instruction.SUM_FORWARD:
        segments = [base + place.offset(stop) for stop in request.path]
    if segments:
        fields["segments"] = np.array([segments], np.uint64)
    header = MemoryHeader(instruction, length=length, lane=request.lane, argument=request.argument)
    return RequestFields(header, np.array([address], np.uint64), fields)


class RoundClient(ABC):
    """A client of either stage.

    Attributes:
        in_flight: instructions without a reply, with the numbers of their places, and what the library made of them.
        due: when it asks next.
        answered: instructions that have their reply.
        refused: those that were refused, in words, and what went wrong besides.
    """

    def __init__(self, workload: Workload, plan: MemoryPlan, lives: Lives) -> None:
        self.workload, self._plan, self._lives = workload, plan, lives
        self._rng = random.Random(f"pauses {plan.workload_seed(workload.client)}")
        self._gate = threading.Lock()  # guards what is asked next
        self.in_flight: list[tuple[int, HistoryEntry, Any]] = []
        self.due = 0.0
        self.answered = 0
        self.refused: list[str] = []

    @abstractmethod
    def start_one(self, number: int, entry: HistoryEntry) -> Any:
        """Ask an instruction about a place."""

    def begin(self, number: int, entry: HistoryEntry) -> None:
        """Ask an instruction about a place, and note it."""
        self._lives.present[number].append(entry)
        self.in_flight.append((number, entry, self.start_one(number, entry)))

    def begin_due(self, now: float) -> bool:
        """Draw an instruction and ask it, if it is time and the client may have another in flight; False if not."""
        # A push may wait for other workers' pushes, so it takes up no turn.
        if now < self.due or sum(not is_push(entry.request) for _, entry, _ in self.in_flight) >= self._plan.depth:
            return False
        with self._gate:
            drawn = self.workload.begin(now)
            if drawn is not None:
                self.begin(*drawn)
                self.due = now + self._rng.expovariate(1 / self._plan.pause)
        return drawn is not None

    def refuse(self, number: int, entry: HistoryEntry, error: BaseException, now: float) -> None:
        """Take an error in the place of a reply: only memory that is fragile may be lost."""
        if isinstance(error, MemoryLostError) and self._plan.region_of(number).fragile:
            self.workload.lose(number, entry, now)
            self.answered += 1
        else:
            self.workload.end(number, entry, now, None)
            self.refused.append(f"{entry.describe()}: {type(error).__name__}: {error}")

    @property
    def over(self) -> bool:
        """True if all its instructions are done."""
        return self.workload.over and not self.in_flight

    def asks(self, numbers: Collection[int]) -> bool:
        """True if an instruction on these places is in flight."""
        return any(number in numbers for number, _, _ in list(self.in_flight))

    def pause(self, numbers: Collection[int]) -> None:
        """Leave these places alone until they are renewed."""
        with self._gate:
            self.workload.pause(numbers)

    def renew(self, numbers: Collection[int]) -> None:
        """These places are as in the beginning."""
        with self._gate:
            self.workload.renew(numbers)


def has_all(shard: Shard, replicas: int) -> bool:
    """True if a shard is lost, or has all its devices, each with all contents."""
    members = shard.group.members
    return shard.lost or (shard.target is None and len(members) >= replicas and not any(each.joining for each in members))


class Round(ABC):
    """One plan. Events are begun and ended by :meth:`look`, which the stage calls now and then, in one thread."""

    reported: float
    """Seconds within which the controller has noticed what happened to a device, and begun to act."""

    def __init__(self, plan: MemoryPlan, totals: MemoryTotals, say: Callable[[str], None]) -> None:
        self.plan, self.totals, self.say = plan, totals, say
        self.lives = Lives(plan)
        self._waiting = list(plan.events)
        self._undo: dict[str, tuple[float, Callable[[], object]]] = {}  # by target: when an event is over, and how
        self._noticed: dict[str, float] = {}  # by target: when the controller knows that it is over
        self._renewal: Iterator[str] = iter(())
        self._renewing = False

    # A stage's own.

    @property
    @abstractmethod
    def clients(self) -> Sequence[RoundClient]: ...

    @abstractmethod
    def now(self) -> float: ...

    @abstractmethod
    def kill(self, device: str) -> None:
        """End a device's process, as SIGKILL does."""

    @abstractmethod
    def start(self, device: str) -> None: ...

    @abstractmethod
    def hang(self, device: str, *, hang: bool) -> None:
        """Stop a device's process, as SIGSTOP does, or let it go on."""

    @abstractmethod
    def move(self, region: str, hosts: tuple[str, ...]) -> None: ...

    @abstractmethod
    def restart_switch(self) -> Callable[[], object]:
        """End the switch; returns how it is started again."""

    @abstractmethod
    def restart_controller(self) -> Callable[[], object]:
        """End the controller; returns how it is started again."""

    @abstractmethod
    def create(self, region: RegionPlan) -> None: ...

    @abstractmethod
    def delete(self, region: str) -> None: ...

    @abstractmethod
    def is_lost(self, region: str) -> bool:
        """True if all of a region is lost, and the switch says so."""

    @abstractmethod
    def is_made(self, region: str | None = None) -> bool:
        """True if a region's shards, or all regions', have all their devices with all contents."""

    @abstractmethod
    def read(self, numbers: Iterable[int]) -> list[HistoryEntry]:
        """Read these places; the entries may have no reply yet."""

    # What both have.

    @property
    def answered(self) -> int:
        """Instructions that have their reply."""
        return sum(client.answered for client in self.clients)

    def is_whole(self) -> bool:
        """True if nothing is happening, and every shard has all its devices with all contents."""
        settled = all(moment <= self.now() for moment in self._noticed.values())
        return not self._undo and not self._renewing and settled and self.is_made()

    def look(self, *, begin: bool = True) -> None:
        """Begin the event that is due, unless told not to, and end those whose time is up."""
        for target, (due, undo) in list(self._undo.items()):
            if self.now() >= due:
                undo()
                del self._undo[target]
                self._noticed[target] = self.now() + self.reported
        if self._renewing:
            self._renewing = next(self._renewal, None) is not None
            return
        if not begin or not self._waiting or self.answered < self._waiting[0].after:
            return
        event = self._waiting[0]
        happening = event.whom in self._undo or self.now() < self._noticed.get(event.whom, 0.0)
        if not happening and (self.is_whole() or not event.waits):
            self._waiting.pop(0)
            self._undo[event.whom] = self.now() + event.seconds, self._do(event)
            self.totals.faults[event.kind.value] += 1

    def end_events(self) -> None:
        """Undo at once what lasts."""
        while self._undo:
            self._undo.popitem()[1][1]()

    def _do(self, event: Event) -> Callable[[], object]:
        """Begin it; returns how it is undone."""
        match event.kind:
            case MemoryEventKind.KILL_DEVICE:
                self.kill(event.what)
                return partial(self.start, event.what)
            case MemoryEventKind.HANG_DEVICE:
                self.hang(event.what, hang=True)
                return partial(self.hang, event.what, hang=False)
            case MemoryEventKind.MOVE:
                self.move(event.what, event.to)
                return lambda: None
            case MemoryEventKind.RESTART_SWITCH:
                return self.restart_switch()
            case MemoryEventKind.RESTART_CONTROLLER:
                return self.restart_controller()
            case MemoryEventKind.LOSE:
                return self._lose(event.what)

    def _lose(self, name: str) -> Callable[[], None]:
        """End all devices of a region. They come back empty, and the region is made anew once its loss was noticed."""
        hosts = self.plan.region(name).hosts
        for host in hosts:
            self.kill(host)
        lost = self.now()

        def undo() -> None:
            for host in hosts:
                self.start(host)
            self._renewal, self._renewing = self._renew(name, lost), True

        return undo

    def _renew(self, name: str, lost: float) -> Iterator[str]:
        """Make a region anew whose devices all went then; yields what it waits for."""
        numbers = self.plan.places_in(name)
        while not self.is_lost(name):
            yield "it to be called lost"
        for client in self.clients:
            client.pause(numbers)
        entries = self.read(numbers)
        while any(client.asks(numbers) for client in self.clients):
            yield "what is asked of it to be refused"
        if not all(entry.lost for entry in entries):
            self.report_wrong(f"{name} is lost, and is read")
        self.delete(name)
        self.create(self.plan.region(name))
        while not self.is_made(name):
            yield "it to be made"
        self.lives.end(numbers, lost)
        for client in self.clients:
            client.renew(numbers)

    def judge(self) -> None:
        """Judge all that was asked."""
        for client in self.clients:
            for line in client.refused:
                self.report_wrong(f"refused: {line}")
        for finding in judge(self.plan, self.lives, self.totals.instructions, self.say):
            self.totals.found(finding)
        self.totals.histories += len(self.lives.all())

    def report_wrong(self, text: str) -> None:
        self.totals.wrong += 1
        self.say(f"  WRONG: {text}")

    def report_hang(self, text: str) -> None:
        self.totals.hangs += 1
        self.say(f"  HANG: {text}")
