"""What a client has under way that may be answered by a reply to many."""

from __future__ import annotations

from netsum.memory.run import Run
from netsum.wire.memory import MEMORY_VERSION, Flag, MemoryStatus
from netsum.wire.memory_codec import MemoryHeader, split_memory
from netsum.wire.memory_tags import Tags


class Shared:
    """One window's instructions with the flag SHARED, of which an address has one at a time."""

    def __init__(self) -> None:
        self._under_way: dict[int, tuple[int, Run]] = {}

    def sent(self, run: Run, number: int, first: int) -> None:
        """The next rows of a run, and the serial number of the first."""
        if run.header.flags & Flag.SHARED:
            for place, address in enumerate(run.addresses[run.begun : run.begun + number].tolist()):
                self._under_way[address] = first + place, run

    def settled(self, run: Run, row: int, sequence: int) -> None:
        """It is over."""
        if self._under_way:
            address = int(run.addresses[row])
            if self._under_way.get(address, (0, run))[0] == sequence:
                del self._under_way[address]

    def own(self, client: int, header: MemoryHeader, packet: memoryview) -> MemoryHeader | None:
        """A packet's header as if it answered this client's instruction alone; None if it answers none. Anybody can send such
        packets."""
        sequence, run = self._under_way.get(header.address, (0, None))
        if run is None or (header.version, header.status) != (MEMORY_VERSION, MemoryStatus.OK):
            return None
        try:
            tags, payload = split_memory(header, packet)
        except ValueError:
            return None
        told = Tags(run.header.key, header, payload).of(client, sequence) in tags
        return header._replace(client=client, sequence=sequence) if told else None
