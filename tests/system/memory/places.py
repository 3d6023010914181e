# SPDX-License-Identifier: MIT
"""Places in memory, and random instructions on them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from netsum.wire.memory import Instruction, LaneType

from tests.system.memory.model import COMPUTING, FLOATS, HistoryEntry, MemoryRequest, pack
from tests.system.memory.steps import LEAVE, is_push, settings_of

_STOPS: Final = (0, 1, 1, 2, 2, 3, 16)
"""Segments of a chain."""
_FEW: Final = 3
"""Most segments of all clients' but one: where two long chains overlap, there are more orders than can be tried."""
_LONG: Final = 100
"""A client with a push and this much else in progress only pushes: a window (of 256) full of other instructions could not bring
the push that another client waits for."""
INTEGERS: Final = (LaneType.INT32, LaneType.INT64, LaneType.UINT32, LaneType.UINT64)


class Theme(Enum):
    """Instructions on a place, by weight. A WRITE hides earlier losses, so some places have none."""

    COUNTER = {Instruction.READ: 2, Instruction.ADD: 4, Instruction.FETCH_ADD: 3}  # noqa: RUF012 - it is the value
    REGISTER = {Instruction.READ: 3, Instruction.WRITE: 3, Instruction.COMPARE_SWAP: 4}  # noqa: RUF012
    EXTREME = {Instruction.READ: 2, Instruction.MIN: 2, Instruction.MAX: 2, Instruction.ADD: 1}  # noqa: RUF012
    BLOCK = {Instruction.READ: 3, Instruction.WRITE: 3}  # noqa: RUF012
    EVERYTHING = {  # noqa: RUF012
        Instruction.READ: 4,
        Instruction.WRITE: 2,
        Instruction.ADD: 3,
        Instruction.MIN: 1,
        Instruction.MAX: 1,
        Instruction.FETCH_ADD: 3,
        Instruction.COMPARE_SWAP: 3,
        Instruction.COPY: 2,
    }
    CHAIN = {Instruction.READ: 3, Instruction.ADD: 2, Instruction.SUM_FORWARD: 4}  # noqa: RUF012
    ROWS = {Instruction.LOOKUP: 2, Instruction.PUSH: 3}  # noqa: RUF012
    STEPS = {Instruction.READ: 1, Instruction.OPTIMIZE: 4}  # noqa: RUF012


LANEWISE: Final = tuple(theme for theme in Theme if theme not in (Theme.ROWS, Theme.STEPS))
"""Themes for plain memory."""


@dataclass(frozen=True)
class Place:
    """One piece of memory, or several with COPYs and chains between them, as one string of bytes of which each instruction is
    about a part; or some rows of one shard of a table; or a block of parameters.

    Attributes:
        region: the name of it.
        pieces: where they begin in the region, or the rows' keys; each has ``length`` bytes.
        lanes: what instructions compute with; a float is never computed with as anything else.
        workers: so many clients push gradients.
    """

    region: str
    pieces: tuple[int, ...]
    length: int
    lanes: tuple[LaneType, ...]
    theme: Theme
    workers: int = 0

    @property
    def bytes(self) -> int:
        return len(self.pieces) * self.length

    def reads(self) -> list[MemoryRequest]:
        """READs of all of it."""
        if self.theme is Theme.ROWS:
            rows = tuple(range(len(self.pieces)))
            return [MemoryRequest(Instruction.LOOKUP, 0, self.bytes, lane=LaneType.FLOAT32, path=rows)]
        return [MemoryRequest(Instruction.READ, piece * self.length, self.length) for piece in range(len(self.pieces))]

    def describe(self) -> str:
        """In a few words."""
        pieces = ", ".join(f"{piece:#x}" for piece in self.pieces)
        return f"{self.region} at {pieces}, {self.length} bytes, {self.theme.name.lower()}"

    def offset(self, start: int) -> int:
        """Address of that byte of the place in the region."""
        piece, within = divmod(start, self.length)
        return self.pieces[piece] + within


class Workload:
    """Makes one client's instructions, one at a time for each place, so that few orders are possible. A client that pushes
    gradients leaves at its end, or others would wait for it.

    Attributes:
        left: instructions to come, besides those that say that it leaves.
    """

    def __init__(self, client: int, seed: str, places: tuple[Place, ...], number: int) -> None:
        self.client, self.left = client, number
        self._rng = random.Random(seed)
        self._idle = dict.fromkeys(range(len(places)))
        self._paused: set[int] = set()
        self._places = places
        self._seen: dict[int, bytearray] = {}
        self._steps: dict[int, int] = {}
        self._pushed: dict[int, int] = {}
        self._stays = {number for number, place in enumerate(places) if self.client < place.workers}

    @property
    def over(self) -> bool:
        """True if all instructions have been made."""
        return not self.left and not self._stays

    def begin(self, now: float) -> tuple[int, HistoryEntry] | None:
        """The next instruction and the number of its place; None if none can be asked now."""
        can = [number for number in list(self._idle) if number not in self._paused]
        if not self.left or any(pushed - self.left > _LONG for pushed in self._pushed.values()):
            can = [number for number in can if number in self._stays]
        if not can:
            return None
        number = can[self._rng.randrange(len(can))]
        del self._idle[number]
        request = self._draw(number) if self.left else self._leave(number)
        self.left -= bool(self.left)
        if is_push(request):
            self._pushed[number] = self.left
        return number, HistoryEntry(self.client, request, now)

    def end(self, number: int, entry: HistoryEntry, now: float, answer: bytes | None, argument: int = 0) -> None:
        """Take a reply; None: there will never be one, and the outcome is unknown."""
        self._idle[number] = None
        self._pushed.pop(number, None)
        if answer is None:
            return
        entry.answered, entry.answer = now, answer
        if entry.request.instruction == Instruction.OPTIMIZE:
            entry.argument = argument
            self._steps[number] = max(argument >> 32, self._steps.get(number, 0))
        elif answer and self._places[number].theme is not Theme.ROWS:
            seen = self._seen.setdefault(number, bytearray(self._places[number].bytes))
            seen[entry.request.start : entry.request.start + len(answer)] = answer

    def lose(self, number: int, entry: HistoryEntry, now: float) -> None:
        """The reply says that the memory is lost."""
        self.end(number, entry, now, None)
        entry.answered, entry.lost = now, True

    def pause(self, numbers: Iterable[int]) -> None:
        """Leave these places alone until they are renewed."""
        self._paused.update(numbers)

    def renew(self, numbers: Iterable[int]) -> None:
        """These places have their initial contents again."""
        for number in numbers:
            self._paused.discard(number)
            self._seen.pop(number, None)
            self._steps.pop(number, None)
            if self.client < self._places[number].workers:
                self._stays.add(number)

    def _leave(self, number: int) -> MemoryRequest:
        self._stays.discard(number)
        return MemoryRequest(Instruction.OPTIMIZE, 0, 0, argument=LEAVE << 32 | self.client)

    def _draw(self, number: int) -> MemoryRequest:
        place, rng = self._places[number], self._rng
        weights = place.theme.value
        instruction = rng.choices(list(weights), list(weights.values()))[0]
        if instruction in (Instruction.LOOKUP, Instruction.PUSH):
            return self._draw_rows(place, instruction)
        if instruction == Instruction.OPTIMIZE and number in self._stays:
            return self._draw_step(number, place)
        lane = rng.choice(place.lanes)
        piece = rng.randrange(len(place.pieces)) * place.length
        if instruction in (Instruction.FETCH_ADD, Instruction.COMPARE_SWAP):
            start, length = rng.randrange(place.length // lane.bytes) * lane.bytes, lane.bytes
        else:
            start, length = self._part(place, lane)
        if instruction in (Instruction.READ, Instruction.OPTIMIZE):  # who is no worker only reads
            return MemoryRequest(Instruction.READ, piece + start, length)
        if instruction == Instruction.COPY:
            source = rng.randrange(len(place.pieces)) * place.length
            return MemoryRequest(instruction, piece + start, length, source=source + start)
        payload = self._values(lane, length // lane.bytes)
        if instruction == Instruction.SUM_FORWARD:
            stops = [rng.randrange(len(place.pieces)) * place.length + start for _ in range(rng.choice(_STOPS))]
            return MemoryRequest(
                instruction, piece + start, length, payload, lane, path=tuple(stops[: _FEW if self.client else None])
            )
        if instruction == Instruction.COMPARE_SWAP:
            seen = self._seen.get(number, bytes(place.bytes))
            payload = bytes(seen[piece + start :][:length]) + payload
        computes = instruction in COMPUTING or instruction == Instruction.COMPARE_SWAP
        return MemoryRequest(instruction, piece + start, length, payload, lane if computes else LaneType.BYTES)

    def _draw_rows(self, place: Place, instruction: Instruction) -> MemoryRequest:
        """About some rows; a PUSH may have several gradients of one row."""
        rng, number = self._rng, len(place.pieces)
        if instruction == Instruction.LOOKUP:
            rows = tuple(sorted(rng.sample(range(number), rng.randint(1, number))))
            return MemoryRequest(instruction, 0, place.length * len(rows), lane=LaneType.FLOAT32, path=rows)
        rows = tuple(rng.randrange(number) for _ in range(rng.randint(1, number + 1)))
        payload = self._quarters(place.length // LaneType.FLOAT32.bytes * len(rows))
        rate = () if rng.random() < 0.7 else (rng.choice((0.25, 0.1)),)
        return MemoryRequest(instruction, 0, len(payload), payload, LaneType.FLOAT32, path=rows, settings=rate)

    def _draw_step(self, number: int, place: Place) -> MemoryRequest:
        """This worker's gradient for the next step."""
        step = self._steps.get(number, 0) + 1
        payload = self._quarters(place.length // LaneType.FLOAT32.bytes)
        argument, settings = step << 32 | self.client, settings_of(step)
        return MemoryRequest(
            Instruction.OPTIMIZE, 0, len(payload), payload, LaneType.FLOAT32, settings=settings, argument=argument
        )

    def _quarters(self, number: int) -> bytes:
        """Multiples of 1/4, whose sums and squares are exact; mostly zeros in one case in four."""
        share = 0.1 if self._rng.random() < 0.25 else 1.0
        values = [self._rng.randrange(-256, 257) / 4 if self._rng.random() < share else 0.0 for _ in range(number)]
        return pack(LaneType.FLOAT32, tuple(values))

    def _part(self, place: Place, lane: LaneType) -> tuple[int, int]:
        """All of a piece, or some of its lanes."""
        lanes = place.length // lane.bytes
        if self._rng.random() < 0.5:
            return 0, place.length
        first, last = sorted((self._rng.randrange(lanes), self._rng.randrange(lanes)))
        return first * lane.bytes, (last - first + 1) * lane.bytes

    def _values(self, lane: LaneType, number: int) -> bytes:
        """Random lanes, mostly zeros in one case in four. Sums of floats are mostly exact, so that few depend on their
        order."""
        rng = self._rng
        if lane in FLOATS:
            values: list[float] = [rng.choice((rng.randrange(-4000, 4000) / 4, rng.gauss(0.0, 1.0))) for _ in range(number)]
        else:
            values = [rng.getrandbits(8 * lane.bytes) for _ in range(number)]
        if number > 8 and rng.random() < 0.25:
            values = [value if rng.random() < 0.1 else 0 for value in values]
        return pack(lane, tuple(values))
