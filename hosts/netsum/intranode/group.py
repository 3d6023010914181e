# SPDX-License-Identifier: MIT
"""The processes of a host's ranks connect to each other, and share memory.

Each rank has a datagram socket in the abstract namespace, whose name only members of the job can make. A rank sends the leader
two eventfds, one for each direction; the leader replies with the shared memory. The process that starts first finds none at the
other's name; the one that starts second then sends. The kernel adds the sender's user to each datagram, and those of other users
are ignored. Nothing here waits, and nothing is repeated by a timer: every event makes one descriptor readable
(:meth:`LocalGroup.fileno`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import select
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from netsum.core.blocks import ID_MASK
from netsum.core.endpoint import BlockedOn
from netsum.descriptor import Descriptor
from netsum.errors import JoinError
from netsum.fork_guard import fork_guarded
from netsum.intranode.call_memory import CallMemory
from netsum.intranode.segment import LeaderFailure, Ring, Segment
from netsum.packet_batch import Packet, ReceiveBatch, Rows, SendBatch
from netsum.wire.codec import parse_header
from netsum.wire.schema import HEADER_BYTES

_HELLO: Final = b"hello"
"""From another rank to the leader, with its index and two eventfds: for contributions, and for results."""
_ANNOUNCEMENT: Final = b"announcement"
"""From the leader, which has just started."""
_MEMORY: Final = b"memory"
"""From the leader, with the shared memory; where no other host has ranks, and this one has memory enough, also with that of whole
calls."""
_PROBE: Final = b"probe"
"""Has no effect; its sender learns whether there is a process."""
_INDEX: Final = struct.Struct("=H")
_CREDENTIALS: Final = struct.Struct("=3i")  # process, user, group
_LONGEST: Final = 64
_FDS: Final = 2
_MOST: Final = 64
"""Messages taken at a time: any process can send them."""


def shape(descriptor: Descriptor) -> tuple[int, int, int]:
    """The ranks of the host, and the number and bytes of the places in their rings."""
    return len(descriptor.local_ranks), descriptor.window, HEADER_BYTES + descriptor.block_bytes


class LocalGroup:
    """This rank among those of its host; ``ranks`` are those, and ``index`` is this one's place among them."""

    def __init__(self, descriptor: Descriptor) -> None:
        """Raises JoinError if another process of this host has the rank."""
        if sys.platform != "linux":
            raise JoinError("ranks of one host can share memory on Linux only: give each a source of its own")
        self.ranks = descriptor.local_ranks
        self.index = self.ranks.index(descriptor.rank)
        self.segment: Segment | None = None
        self.call_memory: CallMemory | None = None
        self._shape = shape(descriptor)
        self._first_id = descriptor.first_block_id
        self._key = bytes.fromhex(descriptor.peer_key)
        self._name = f"{descriptor.job}\0{descriptor.epoch}\0"
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._begun = 0
        self._fds: list[int] = []  # to be closed
        fork_guarded(self._sock)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            self._sock.bind(self._address(self.index))
        except OSError as error:
            self._sock.close()
            if error.errno != errno.EADDRINUSE:
                raise JoinError(f"the ranks of this host cannot reach each other: {error.strerror}") from error
            raise JoinError(
                f"rank {descriptor.rank} of job {descriptor.job!r}, epoch {descriptor.epoch}, is another process on this host: "
                "end that, or join again"
            ) from error
        self._epoll = select.epoll()
        self._epoll.register(self._sock, select.EPOLLIN)

    def _address(self, index: int) -> bytes:
        secret = hashlib.blake2b(f"{self._name}{self.ranks[index]}".encode(), key=self._key, digest_size=16)
        return b"\0netsum/" + secret.hexdigest().encode()

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`listen` has something to take, or :meth:`watch`'s is."""
        return self._epoll.fileno()

    def watch(self, fd: int) -> None:
        """Make :meth:`fileno` readable also when this is."""
        self._epoll.register(fd, select.EPOLLIN)

    def wait(self, timeout: float | None) -> None:
        """Wait up to ``timeout`` seconds (None: forever) until :meth:`fileno` is readable."""
        self._epoll.poll(timeout)

    def listen(self) -> None:
        """Take what has come from the other ranks. Waits for nothing."""
        for fd, _ in self._epoll.poll(0):
            if fd == self._sock.fileno():
                self._receive()
            else:
                self._added(fd)

    def _added(self, fd: int) -> None:
        """Read this eventfd, if it is one: another rank has added packets to its ring."""
        raise NotImplementedError

    def _receive(self) -> None:
        room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_FDS * 4)
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST):
                message, control, _, _ = self._sock.recvmsg(_LONGEST, room, socket.MSG_CMSG_CLOEXEC)
                fds, user = [], -1
                for level, kind, data in control:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        fds += np.frombuffer(data, np.intc, len(data) // 4).tolist()
                    elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                        user = _CREDENTIALS.unpack(data)[1]
                if user != os.geteuid() or not self._take(message, fds):
                    for fd in fds:
                        os.close(fd)

    def _take(self, message: bytes, fds: list[int]) -> bool:
        """Take a message of another rank; False if the descriptors are not needed."""
        raise NotImplementedError

    def _send(self, index: int, message: bytes, fds: Sequence[int] = ()) -> bool:
        """Send a message; False if it must be sent again. A process that is not there yet sends first when it starts."""
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, np.array(fds, np.intc).tobytes())] if fds else []
        try:
            self._sock.sendmsg([message], control, 0, self._address(index))
        except BlockingIOError:
            return False
        except ConnectionRefusedError:
            pass
        return True

    def _has_ended(self, index: int) -> bool:
        """True if there is no process at this rank's name."""
        try:
            self._sock.sendto(_PROBE, self._address(index))
        except ConnectionRefusedError:
            return True
        except BlockingIOError:
            pass
        return False

    def explain(self, oldest: int) -> BlockedOn | None:
        """The ranks of this host that block ``oldest`` waits for: those that have not begun it, and a leader that has ended. None
        if there is none."""
        others = [at for at in range(len(self.ranks)) if at != self.index]
        causes = {self.ranks[at]: cause for at in others if (cause := self._cause(at, oldest))}
        if not causes:
            return None
        return "waiting for " + "; ".join(f"rank {rank} on this host, {cause}" for rank, cause in causes.items()), tuple(causes)

    def _cause(self, at: int, oldest: int) -> str:
        """The reason why this rank is known to delay the block; "" if it is not."""
        behind = self._is_behind(at, oldest)
        if at and not behind:
            return ""
        if self._has_left(at):
            return "which has left"
        if self._has_ended(at):
            return "whose process is not there"
        return "which has not come to it" if behind else ""

    def _is_behind(self, at: int, oldest: int) -> bool:
        """True if a rank is known not to have begun the block."""
        if self.segment is None:  # for which only the leader can be the cause
            return at == 0
        return int(self.segment.begun[at]) <= oldest

    def _has_left(self, at: int) -> bool:
        return self.segment is not None and bool(self.segment.left[at])

    def left_behind(self, oldest: int) -> tuple[int, ...]:
        """The ranks of this host that block ``oldest`` waits for and that have left."""
        there = [at for at in range(len(self.ranks)) if at != self.index]
        return tuple(self.ranks[at] for at in there if self._has_left(at) and (at == 0 or self._is_behind(at, oldest)))

    def _next(self, packets: Sequence[Packet]) -> list[Rows]:
        """The contributions of this rank to its next blocks, as rows. What repeats an earlier one is left out: nothing is lost
        here."""
        found = []
        for part in packets.parts if isinstance(packets, SendBatch) else packets:
            rows = part if isinstance(part, np.ndarray) else np.frombuffer(b"".join(part), np.uint8).reshape(1, -1)
            if parse_header(rows[0].data).block_id == (self._first_id + self._begun) & ID_MASK:
                self._begun += len(rows)
                found.append(rows)
        return found

    def leave(self) -> None:
        """Report to the others that this rank begins no more blocks."""
        if self.segment is not None:
            self.segment.left[self.index] = 1

    def close(self) -> None:
        """Release everything. May be called twice."""
        self._sock.close()
        self._epoll.close()
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        if self.call_memory is not None:
            self.call_memory.close()
        self.call_memory = self.segment = None


class LeaderGroup(LocalGroup):
    """The leader's side.

    Attributes:
        rings: the contributions of each rank, by its index; this one's own are in no shared memory.
        results: the ring that the others read.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        """Raises JoinError."""
        super().__init__(descriptor)
        self._others: dict[int, int] = {}  # eventfds for results, by index
        self._contributed: dict[int, int] = {}  # indices, by the eventfd for contributions
        self._unannounced = set(range(1, len(self.ranks)))
        self._unanswered: set[int] = set()
        self._notified = 0  # results that were reported to the others
        try:
            self._memory = Segment.create(*self._shape)
            self._fds.append(self._memory)
            self.segment = Segment(self._memory, *self._shape)
        except (OSError, ValueError) as error:
            self.close()
            raise JoinError(
                f"this host cannot give its {len(self.ranks)} ranks {Segment.size(*self._shape):,} bytes of memory to share "
                f"({error}): raise its limit, or lower the job's `window` or `chunks`"
            ) from error
        self._memories = [self._memory]
        if descriptor.on_one_host:
            self._create_call_memory()
        self.results = self.segment.results
        _, window, packet_bytes = self._shape
        self.rings = [Ring.private(window, packet_bytes), *self.segment.contributions]
        self._connect()

    def _create_call_memory(self) -> None:
        """Without it, calls go by blocks alone."""
        with contextlib.suppress(OSError):
            fd = CallMemory.create(len(self.ranks))
            self._fds.append(fd)
            self.call_memory = CallMemory(fd, self.index, len(self.ranks))
            self._memories.append(fd)

    def _connect(self) -> None:
        """Send what could not be sent before."""
        self._unannounced = {at for at in self._unannounced if not self._send(at, _ANNOUNCEMENT)}
        self._unanswered = {at for at in self._unanswered if not self._send(at, _MEMORY, self._memories)}

    def listen(self) -> None:
        super().listen()
        if self._unannounced or self._unanswered:
            self._connect()

    def _added(self, fd: int) -> None:
        if fd in self._contributed:
            with contextlib.suppress(BlockingIOError):
                self.rings[self._contributed[fd]].written += os.eventfd_read(fd)

    def _take(self, message: bytes, fds: list[int]) -> bool:
        if len(message) != len(_HELLO) + _INDEX.size or not message.startswith(_HELLO) or len(fds) != _FDS:
            return False
        (at,) = _INDEX.unpack(message[len(_HELLO) :])
        if not 0 < at < len(self.ranks):
            return False
        self._unanswered.add(at)
        if at in self._others:
            return False
        contributed, results = fds
        try:
            self._epoll.register(contributed, select.EPOLLIN)
        except PermissionError:  # it is no eventfd
            return False
        self._contributed[contributed], self._others[at] = at, results
        self._fds += fds
        return True

    def contribute(self, packets: Sequence[Packet]) -> None:
        """Add this rank's own next contributions."""
        for rows in self._next(packets):
            self.rings[0].add(rows)
        if self.segment is not None:
            self.segment.begun[0] = self._begun

    def refuse(self, index: int, serial: int) -> None:
        """Report to a rank that its contribution to this block differs from the others'."""
        if self.segment is not None:
            self.segment.refused[index] = serial + 1

    def fail(self, serial: int, reason: int) -> None:
        """Report to the other ranks why this block gets no result: a :class:`LeaderFailure`."""
        if self.segment is not None:
            self.segment.failure = LeaderFailure(self.segment.failure.number + 1, reason, serial)

    def notify(self, received_end: int) -> None:
        """Report to the other ranks the results that were added since the last call, and the leader's ``received_end``."""
        number = self.results.written - self._notified
        if self.segment is not None:
            self.segment.received_end = received_end
        if number:
            self._notified = self.results.written
            for fd in self._others.values():
                os.eventfd_write(fd, number)


class MemberGroup(LocalGroup):
    """The side of every rank but the leader."""

    def __init__(self, descriptor: Descriptor) -> None:
        """Raises JoinError."""
        super().__init__(descriptor)
        self._pending: list[Rows] = []  # contributions for which there is no memory yet
        self._fds = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(_FDS)]
        self._contributed, self._results = self._fds
        self._epoll.register(self._results, select.EPOLLIN)
        self._waits_for_memory = self._connect()

    def _connect(self) -> bool:
        return self._send(0, _HELLO + _INDEX.pack(self.index), self._fds)

    def listen(self) -> None:
        super().listen()
        if not self._waits_for_memory:
            self._waits_for_memory = self._connect()

    def _added(self, fd: int) -> None:
        if fd == self._results and self.segment is not None:
            with contextlib.suppress(BlockingIOError):
                self.segment.results.written += os.eventfd_read(fd)

    def _take(self, message: bytes, fds: list[int]) -> bool:
        if message == _ANNOUNCEMENT and self.segment is None:
            self._waits_for_memory = self._connect()
        elif message == _MEMORY and self.segment is None and fds:
            with contextlib.suppress(ValueError):  # it is not the leader's
                segment = Segment(fds[0], *self._shape)
                self._map_call_memory(fds[1:])
                self.segment = segment
                pending, self._pending = self._pending, []
                self._contribute(pending)
        return False  # the memory is mapped

    def _map_call_memory(self, fds: list[int]) -> None:
        """Without it, calls go by blocks alone."""
        for fd in fds:
            with contextlib.suppress(OSError):
                self.call_memory = CallMemory(fd, self.index, len(self.ranks))

    def contribute(self, packets: Sequence[Packet]) -> None:
        """Pass this rank's next contributions to the leader, as soon as there is memory."""
        self._contribute(self._next(packets))

    def _contribute(self, parts: list[Rows]) -> None:
        segment, number = self.segment, sum(map(len, parts))
        if segment is None:
            self._pending += parts
        elif number:
            ring = segment.contributions[self.index - 1]
            for rows in parts:
                ring.add(rows)
            segment.begun[self.index] = self._begun
            os.eventfd_write(self._contributed, number)

    def take(self) -> ReceiveBatch | None:
        """Results that have come, if any, as views that are valid until the next contribution."""
        ring = None if self.segment is None else self.segment.results
        return ring.take() if ring is not None and ring.taken < ring.written else None
