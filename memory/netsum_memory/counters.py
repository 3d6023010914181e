"""What became of the packets: each is counted once, by instruction and outcome."""

from __future__ import annotations

from collections import Counter

from netsum.wire.memory import MemoryStatus

from netsum_memory.message import instruction_name


class DeviceCounters:
    """Counters, from which the metrics are made.

    Attributes:
        instructions: taken to be done, by number; a repeated one again.
        refused: by (instruction, reason), the reason being the status in lower case.
        dropped: packets that nobody is told about, by reason.
    """

    def __init__(self) -> None:
        self.instructions: Counter[int] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.dropped: Counter[str] = Counter()
        self.bytes_received = 0
        self.bytes_sent = 0
        self.packets_sent = 0

    def refuse(self, instruction: int, status: MemoryStatus) -> None:
        self.refused[instruction_name(instruction), status.name.lower()] += 1
