"""Places in the memory, and what clients ask of them at random."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

from netsum.wire.memory import Instruction, LaneType

from netsum_trials.memory.history import Entry
from netsum_trials.memory.model import COMPUTING, FLOATS, Asked, pack

INTEGERS: Final = (LaneType.INT32, LaneType.INT64, LaneType.UINT32, LaneType.UINT64)


class Theme(Enum):
    """What is asked of a place, by weight. A WRITE hides what was lost before it, so some places know none."""

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


@dataclass(frozen=True)
class Place:
    """One piece of memory, or several with COPYs between them, as one string of bytes of which each instruction is about a part.

    Attributes:
        region: the name of it.
        pieces: where they begin in the region; each has ``length`` bytes.
        lanes: what instructions compute with; a float is never computed with as anything else.
    """

    region: str
    pieces: tuple[int, ...]
    length: int
    lanes: tuple[LaneType, ...]
    theme: Theme

    @property
    def bytes(self) -> int:
        return len(self.pieces) * self.length

    def reads(self) -> list[Asked]:
        """READs of all of it."""
        return [Asked(Instruction.READ, piece * self.length, self.length) for piece in range(len(self.pieces))]

    def describe(self) -> str:
        """In a few words."""
        pieces = ", ".join(f"{piece:#x}" for piece in self.pieces)
        return f"{self.region} at {pieces}, {self.length} bytes, {self.theme.name.lower()}"

    def offset(self, start: int) -> int:
        """Where that byte of the place is in the region."""
        piece, within = divmod(start, self.length)
        return self.pieces[piece] + within


class Asker:
    """Makes one client's instructions. Of a place it asks one thing at a time, so that few orders are possible."""

    def __init__(self, client: int, seed: str, places: tuple[Place, ...], number: int) -> None:
        self.client, self.left = client, number
        self._rng = random.Random(seed)
        self._idle = list(range(len(places)))
        self._places = places
        self._seen: dict[int, bytearray] = {}

    def begin(self, now: float) -> tuple[int, Entry] | None:
        """The next instruction and the number of its place; None if none can be asked now."""
        if not self.left or not self._idle:
            return None
        self.left -= 1
        number = self._idle.pop(self._rng.randrange(len(self._idle)))
        return number, Entry(self.client, self._ask(number), now)

    def end(self, number: int, entry: Entry, now: float, answer: bytes | None) -> None:
        """The reply has come; None: it never will, and nobody knows what became of it."""
        self._idle.append(number)
        if answer is None:
            return
        entry.answered, entry.answer = now, answer
        if answer:
            seen = self._seen.setdefault(number, bytearray(self._places[number].bytes))
            seen[entry.asked.start : entry.asked.start + len(answer)] = answer

    def _ask(self, number: int) -> Asked:
        place, rng = self._places[number], self._rng
        weights = place.theme.value
        instruction = rng.choices(list(weights), list(weights.values()))[0]
        lane = rng.choice(place.lanes)
        piece = rng.randrange(len(place.pieces)) * place.length
        if instruction in (Instruction.FETCH_ADD, Instruction.COMPARE_SWAP):
            start, length = rng.randrange(place.length // lane.bytes) * lane.bytes, lane.bytes
        else:
            start, length = self._part(place, lane)
        if instruction == Instruction.READ:
            return Asked(instruction, piece + start, length)
        if instruction == Instruction.COPY:
            source = rng.randrange(len(place.pieces)) * place.length
            return Asked(instruction, piece + start, length, source=source + start)
        payload = self._values(lane, length // lane.bytes)
        if instruction == Instruction.COMPARE_SWAP:
            seen = self._seen.get(number, bytes(place.bytes))
            payload = bytes(seen[piece + start :][:length]) + payload
        computes = instruction in COMPUTING or instruction == Instruction.COMPARE_SWAP
        return Asked(instruction, piece + start, length, payload, lane if computes else LaneType.BYTES)

    def _part(self, place: Place, lane: LaneType) -> tuple[int, int]:
        """All of a piece, or some of its lanes."""
        lanes = place.length // lane.bytes
        if self._rng.random() < 0.5:
            return 0, place.length
        first, last = sorted((self._rng.randrange(lanes), self._rng.randrange(lanes)))
        return first * lane.bytes, (last - first + 1) * lane.bytes

    def _values(self, lane: LaneType, number: int) -> bytes:
        """Random lanes, in one case in four mostly zeros. Sums of floats are mostly exact, so that few depend on their order."""
        rng = self._rng
        if lane in FLOATS:
            values: list[float] = [
                rng.choice((rng.randrange(-4000, 4000) / 4, rng.gauss(0.0, 1.0))) for _ in range(number)
            ]
        else:
            values = [rng.getrandbits(8 * lane.bytes) for _ in range(number)]
        if number > 8 and rng.random() < 0.25:
            values = [value if rng.random() < 0.1 else 0 for value in values]
        return pack(lane, tuple(values))
