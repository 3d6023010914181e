# SPDX-License-Identifier: MIT
"""Datagrams to and from many peers in one system call."""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
from netsum.transports.mmsg import MessageArray
from netsum.transports.sockets import BATCH, LOST, enlarge_buffers
from netsum.wire.memory import MAX_MESSAGE

from netsum_memory.message import Address, Send

_FRAME_BYTES: Final = 64
"""Room for the headers in front of a packet."""
SLOT_BYTES: Final = -(-(MAX_MESSAGE + _FRAME_BYTES) // 64) * 64
_NAME: Final = struct.Struct("=HH4s8x")  # struct sockaddr_in, whose port is big-endian
_PATIENCE_MS: Final = 100
_MOST_NAMES: Final = 65536


class _Letters(MessageArray):
    """A packet for each row, each with an address of its own."""

    def __init__(self, count: int, slot_bytes: int = SLOT_BYTES) -> None:
        self.pool = np.zeros((count, slot_bytes), np.uint8)
        super().__init__(self.pool)
        self.names = np.zeros((count, _NAME.size), np.uint8)
        self._name_sizes = self._messages["header"]["name_size"]

    def name(self) -> None:
        """Have each row's address in ``names``."""
        headers = self._messages["header"]
        headers["name"] = self.names.ctypes.data + np.arange(len(self.names)) * _NAME.size
        self.restore()

    def restore(self) -> None:
        """The kernel changes the sizes of names that it writes."""
        self._name_sizes.fill(_NAME.size)

    def put_sizes(self, sizes: Sequence[int]) -> None:
        self._vectors["size"][: len(sizes), 1] = sizes


class Batch:
    """A datagram socket, and room for a batch of packets each way. Owns the socket.

    Attributes:
        lost: packets that the network did not take, by the reason in words.
    """

    def __init__(self, sock: socket.socket, *, named: bool, slot_bytes: int = SLOT_BYTES) -> None:
        """``named``: packets go to, and come from, many addresses; else to where the socket is connected or bound. ``slot_bytes``
        is room for what comes at a time."""
        self.sock = sock
        sock.setblocking(False)
        enlarge_buffers(sock)
        self._in, self._out = _Letters(BATCH, slot_bytes), _Letters(BATCH)
        self._named = named
        if named:
            self._in.name()
            self._out.name()
        self._room = self._out.pool.reshape(-1).data
        self._addresses: dict[bytes, Address] = {}
        self._packed: dict[Address, bytes] = {}
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)
        self.lost: dict[str, int] = {}

    def receive(self, timeout: float) -> list[tuple[Address, memoryview]]:
        """The packets that wait, at most a batch, valid until the next call; waits up to ``timeout`` seconds for the first.
        Their addresses are ("", 0) if they are not ``named``."""
        try:
            count = self._receive()
            if count == 0 and timeout > 0:
                self._readable.poll(int(timeout * 1000) + 1)
                count = self._receive()
        except OSError as error:
            if error.errno not in LOST:
                raise
            return []  # an ICMP message about a packet of ours
        lengths = self._in.lengths[:count].tolist()
        rows = [self._in.rows[at, :size].data for at, size in enumerate(lengths)]
        if not self._named:
            return [(("", 0), row) for row in rows]
        names = self._in.names[:count].tobytes()
        return [(self._address(names[at * _NAME.size :][: _NAME.size]), row) for at, row in enumerate(rows)]

    def _receive(self) -> int:
        try:
            if self._named:
                self._in.restore()
            return self._in.receive(self.sock)
        except BlockingIOError:
            return 0

    def _address(self, name: bytes) -> Address:
        address = self._addresses.get(name)
        if address is None:
            _, port, ip = _NAME.unpack(name)
            if len(self._addresses) >= _MOST_NAMES:
                self._addresses.clear()
            address = self._addresses[name] = socket.inet_ntoa(ip), socket.ntohs(port)
        return address

    def _name_of(self, address: Address) -> bytes:
        name = self._packed.get(address)
        if name is None:
            if len(self._packed) >= _MOST_NAMES:
                self._packed.clear()
            name = _NAME.pack(socket.AF_INET, socket.htons(address[1]), socket.inet_aton(address[0]))
            self._packed[address] = name
        return name

    def send(self, packets: Sequence[Send], heads: Sequence[bytes] = ()) -> None:
        """Send the packets in this order, each behind its head; those that the network does not take are lost."""
        for start in range(0, len(packets), BATCH):
            some = packets[start : start + BATCH]
            self._send_batch(some, heads[start : start + BATCH])

    def _send_batch(self, packets: Sequence[Send], heads: Sequence[bytes]) -> None:
        room, at, sizes = self._room, 0, []
        for number, (_, data) in enumerate(packets):
            whole = heads[number] + data if heads else data
            room[at : at + len(whole)] = whole
            sizes.append(len(whole))
            at += SLOT_BYTES
        self._out.put_sizes(sizes)
        if self._named:
            names = b"".join(self._name_of(address) for address, _ in packets)
            self._out.names[: len(packets)] = np.frombuffer(names, np.uint8).reshape(-1, _NAME.size)
        done, patient = 0, True
        while done < len(packets):
            try:
                done += self._out.send(self.sock, done, len(packets) - done)
                patient = True
            except BlockingIOError:
                if patient:
                    self._writable.poll(_PATIENCE_MS)
                else:
                    self._lose("the socket's send buffer stays full")
                    done += 1
                patient = not patient
            except OSError as error:
                if error.errno not in LOST and error.errno not in (errno.EMSGSIZE, errno.EINVAL):
                    raise
                self._lose(error.strerror or str(error))
                done += 1

    def _lose(self, why: str) -> None:
        self.lost[why] = self.lost.get(why, 0) + 1

    def close(self) -> None:
        self.sock.close()
