# SPDX-License-Identifier: MIT
"""The device as a pure state machine: packets in, packets out; no socket, no clock."""

from __future__ import annotations

import logging
import socket
import struct
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from netsum.wire.memory import INTERNAL, OFFSETS, Flag, Instruction, MemoryHeader, MemoryStatus

from netsum_memory import execute, message
from netsum_memory.copies import Copies
from netsum_memory.dedup import NEW
from netsum_memory.errors import DeviceError
from netsum_memory.message import Address, Malformed, MemoryMessage, Send, instruction_name
from netsum_memory.ordering import Ordering
from netsum_memory.reads import Reads
from netsum_memory.region import Assignment, Region
from netsum_memory.shard_table import Holding, ShardTable
from netsum_memory.storage import Storage


class DeviceCounters:
    """Counters, from which the metrics are made.

    Attributes:
        instructions: taken to be done, by number; a repeated one again.
        refused: by (instruction, reason), the reason being the status in lower case.
        dropped: packets without a reply, by reason.
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


log: Final = logging.getLogger("netsum.memory.device")

LOOP: Final[Address] = ("", 0)
"""The key of packets for this device itself, as long as there is no virtual address."""
_FLAGS: Final = OFFSETS["flags"]
_REPLY, _REPLICATED, _REPEAT = int(Flag.REPLY), int(Flag.REPLICATED), int(Flag.REPEAT)
_READ, _COPY, _SUM_FORWARD = int(Instruction.READ), int(Instruction.COPY), int(Instruction.SUM_FORWARD)
"""As plain numbers, since every packet is held against them."""
_HOMES: Final = 65536
"""Clients whose addresses are remembered."""


class _Homes(OrderedDict[int, Address]):
    """By client, the address of its last packet."""

    def put(self, client: int, address: Address) -> None:
        if self.get(client) != address:
            self[client] = address
            if len(self) > _HOMES:
                self.popitem(last=False)


class Device:
    """The memory of one host.

    Attributes:
        virtual: where packets for any address of the memory go; None where there is no switch.
        behind: whether a packet has shown that the switch knows more than this device: another epoch, or a shard that is to
            be here. The controller should be queried; the query clears it.
    """

    def __init__(
        self,
        host: str,
        *,
        vault: Storage | None = None,
        limit: int | None = None,
    ) -> None:
        """``vault`` keeps changes where they outlive the process. ``limit``: the most bytes of shards to hold. Raises
        :class:`DeviceError` if what the vault has kept is damaged."""
        self.host, self.virtual, self.behind = host, None, False
        self.tally = DeviceCounters()
        self._vault = vault
        self._homes = _Homes()
        try:
            self.holdings = ShardTable(host, vault, limit, self._homes, self._route)
        except DeviceError:
            if vault is not None:
                vault.abandon()
            raise
        self._reads = Reads(self.holdings)
        self._copies = Copies()
        self._loop: deque[bytes] = deque()
        self._out: list[Send] = []
        self._touched: dict[Ordering, None] = {}

    virtual: Address | None

    def receive(self, packets: Iterable[tuple[Address, bytes | memoryview]], now: float) -> list[Send]:
        """Take packets with their senders' addresses; returns the packets to send, after everything they report is in the
        vault."""
        for sender, data in packets:
            self.tally.bytes_received += len(data)
            self._take(sender, data, now)
        return self._leave(now)

    def tend(self, now: float) -> list[Send]:
        """Do what is due. Call it every few milliseconds."""
        self._emit(self._copies.tend(now))
        for holding in self.holdings.all():
            if holding.ordering.tend(now):
                self._touched[holding.ordering] = None
        return self._leave(now)

    def assign(self, assignments: Sequence[Assignment], now: float, *, keep: Collection[tuple[int, int]] = ()) -> list[Send]:
        """Hold these shards and no others, but for those to ``keep`` as they are."""
        self._touched |= dict.fromkeys(self.holdings.assign(assignments, now, keep))
        return self._leave(now)

    def report(self) -> dict[str, Any]:
        """The report on the shards for the controller."""
        return self.holdings.report()

    def close(self) -> None:
        self.holdings.close()
        if self._vault is not None:
            self._vault.close()

    def abandon(self) -> None:
        """End as a killed process does."""
        if self._vault is not None:
            self._vault.abandon()
        self.holdings.close()

    def _route(self, address: int) -> Address:  # noqa: ARG002 - the switch knows where addresses are
        return LOOP if self.virtual is None else self.virtual

    def _emit(self, sends: Iterable[Send]) -> None:
        for send in sends:
            to, data = send
            # Our own READ may come back to us, since the switch knows who has the source. Then it looks like the switch's.
            if to == LOOP or (to == self.virtual and data[_FLAGS] & _REPLY):
                self._loop.append(data)
            else:
                self._out.append(send)

    def _leave(self, now: float) -> list[Send]:
        while self._loop or self._touched:
            while self._loop:
                self._take(LOOP, self._loop.popleft(), now)
            touched, self._touched = self._touched, {}
            with execute.ignoring_float_errors():
                for ordering in touched:
                    self._emit(ordering.take_output())
        if self._vault is not None:
            self._vault.commit()
            if self._vault.due:
                self.holdings.checkpoint()
        out, self._out = self._out, []
        self.tally.packets_sent += len(out)
        self.tally.bytes_sent += sum(len(data) for _, data in out)
        return out

    def _take(self, sender: Address, data: bytes | memoryview, now: float) -> None:
        if (answer := self._reads.answer(data)) is not None:
            self.tally.instructions[_READ] += 1
            self._emit(((sender, answer),))
            return
        try:
            request = message.parse(data)
        except Malformed as error:
            if error.header.flags & _REPLY or error.header.instruction in INTERNAL:
                self.tally.dropped["malformed"] += 1
            else:
                self._refuse(sender, error.header, MemoryStatus.MALFORMED)
            return
        except ValueError:
            self.tally.dropped["malformed"] += 1
            return
        header = request.header
        if header.instruction in INTERNAL:
            self._receive_peer(request, sender)
        elif header.flags & _REPLY:
            if not self._copies.receive(request):
                self.tally.dropped["not expected"] += 1
        else:
            self._serve(request, sender, now)

    def _receive_peer(self, packet: MemoryMessage, sender: Address) -> None:
        """The message of another device."""
        header = packet.header
        holding = self.holdings.get(header.region, header.shard)
        if holding is None:
            self.tally.dropped["of no shard here"] += 1
        elif header.key != holding.shard.region.keys.device or not holding.is_peer(sender):
            self.tally.dropped["of no device of the group"] += 1
        else:
            self.tally.instructions[header.instruction] += 1
            self._touched[holding.ordering] = None
            holding.ordering.receive(packet, sender)

    def _serve(self, request: MemoryMessage, sender: Address, now: float) -> None:
        """A client's instruction."""
        header = request.header
        region = self.holdings.region(header.region, header.address)
        if region is None:  # if a switch has sent it here (it writes the epoch), this device will be told why
            self.behind |= header.epoch > 0
            self._refuse(sender, header, MemoryStatus.NOT_PRIMARY if header.epoch else MemoryStatus.NO_REGION)
            return
        holding = self.holdings.get(region.id, region.shard_of(header.address))
        status = self._check(request, region, holding)
        self.behind |= header.epoch > (0 if holding is None else holding.shard.epoch)
        if status == execute.OK and holding is not None and self._lacks(holding, request):
            status = MemoryStatus.LOST
        if status != execute.OK or holding is None:
            silent = holding is not None and not holding.shard.primary and header.flags & _REPLICATED
            self._refuse(sender, header, status, silent=bool(silent))
            return
        self.tally.instructions[header.instruction] += 1
        self._homes.put(header.client, self._home(header, sender))
        self._touched[holding.ordering] = None
        if not execute.changes(header):
            holding.ordering.read(self._passing(request, sender))
        elif header.instruction == _COPY:
            self._copy(request, sender, holding, now)
        else:
            holding.ordering.change(request)

    @staticmethod
    def _check(request: MemoryMessage, region: Region, holding: Holding | None) -> MemoryStatus:
        header = request.header
        if not region.base <= header.address < region.end:
            return MemoryStatus.BOUNDS
        if holding is None:
            return MemoryStatus.NOT_PRIMARY
        shard = holding.shard
        status = shard.kind.check(request)
        if status != execute.OK:
            return status
        if not holding.assigned:
            return MemoryStatus.BUSY
        if shard.lost or shard.behind:  # in a later epoch, others may have it
            return MemoryStatus.LOST if header.epoch <= shard.epoch else MemoryStatus.BUSY
        if not shard.primary and not (execute.changes(header) and header.flags & _REPLICATED):
            return MemoryStatus.NOT_PRIMARY
        return execute.OK

    def _lacks(self, holding: Holding, request: MemoryMessage) -> bool:
        """True if the client was told of something that is not here any more. If it may write, the shard is lost here for all
        others, too."""
        shard = holding.shard
        shown = shard.shown(request.shown) if request.shown else 0
        if not holding.ordering.lacks(shown, request.header.epoch):
            return False
        if request.header.key != shard.region.keys.read:
            log.error(
                "shard %d of region %s ends at position %d here, and a client was told of position %d: this memory is older "
                "than what was acknowledged, and is shown to no client",
                *(shard.index, shard.region.name, holding.ordering.position, shown),
            )
            shard.fall_behind()
            self.behind = True
        return True

    def _copy(self, request: MemoryMessage, sender: Address, holding: Holding, now: float) -> None:
        """A COPY within a shard is as any change. From another one, the primary gets the bytes first; the backups get them from
        the primary's log."""
        shard, source = holding.shard, request.header.argument
        if shard.region.shard_of(source) == shard.index or shard.known(request.header) is not NEW:
            holding.ordering.change(request)
        elif shard.primary:

            def copied(whole: MemoryMessage, home: Address, status: MemoryStatus) -> None:
                still = self.holdings.get(*shard.id)
                if still is not holding or not shard.primary:
                    status = MemoryStatus.NOT_PRIMARY
                if status == MemoryStatus.OK:
                    self._touched[holding.ordering] = None
                    holding.ordering.change(whole)
                else:
                    self._refuse(home, whole.header, status)

            self._homes.put(self._copies.client, LOOP)
            self._emit(self._copies.begin(request, sender, self._route(source), copied, now))

    @staticmethod
    def _home(header: MemoryHeader, sender: Address) -> Address:
        """The destination of the reply: a chain's packet comes from the device before, and says where its client is."""
        if header.instruction != _SUM_FORWARD or not header.argument:
            return sender
        return socket.inet_ntoa(struct.pack(">I", header.argument >> 16 & 0xFFFFFFFF)), header.argument & 0xFFFF

    @staticmethod
    def _passing(request: MemoryMessage, sender: Address) -> MemoryMessage:
        """A chain's packet as it goes on: with its client's address, and as if new to the switch."""
        header = request.header
        if header.instruction != _SUM_FORWARD:
            return request
        argument = header.argument
        if not argument and sender != LOOP:
            (ip,) = struct.unpack(">I", socket.inet_aton(sender[0]))
            argument = ip << 16 | sender[1]
        onward = header._replace(argument=argument, flags=header.flags & _REPEAT, region=0, shard=0, epoch=0)
        return request._replace(header=onward)

    def _refuse(self, to: Address, header: MemoryHeader, status: MemoryStatus, *, silent: bool = False) -> None:
        """Tell the sender what is wrong; ``silent``: the primary does that."""
        self.tally.refuse(header.instruction, status)
        if not silent:
            self._emit([(self._home(header, to), message.reply(header, status))])
