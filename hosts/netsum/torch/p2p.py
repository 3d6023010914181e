# SPDX-License-Identifier: MIT
"""Messages between two ranks of a process group: torch's send and receive, which the others know nothing of.

They go over connections of their own, with the transport, the seals and the repeats that members without a switch use
(:mod:`netsum.peers`). Each rank puts its address into torch's store, and the key comes from the job's token.

A short message is sent at once. For a long one the sender asks first, and sends when the receiver has a tensor for it, straight
into that tensor's memory. A thread of its own serves both sides, so no rank need wait for a send before receiving.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from netsum.communicator import Communicator
from netsum.core.progress import BackgroundProgress
from netsum.descriptor import ALGORITHMS
from netsum.errors import CallError, CallTimeoutError, ClosedError, JoinError, UnsupportedError
from netsum.exit_hooks import close_at_exit
from netsum.numeric.fixed_point import Array
from netsum.peers.messenger import Messenger
from netsum.peers.transport import PeerSocket, PeerTransport
from netsum.peers.wire import Flag, message_bytes
from netsum.stats import Stats
from netsum.text import counted
from netsum.torch.p2p_wire import ENVELOPE, Envelope, MessageKind, Receiving, Request, Sending, Unexpected, element_type

SHORT: Final = 16 << 10
"""Bytes of a message that is sent without asking."""
IN_FLIGHT: Final = 16
"""Most messages to one rank that it has not acknowledged."""
WINDOW: Final = 1024
"""Blocks' worth of messages that may wait for a connection: more than IN_FLIGHT messages."""
LINGER: Final = 2.0
"""Seconds that closing waits until the others have what was sent to them."""
_ALGORITHM: Final = ALGORITHMS.index("ring")  # every frame tells one; nothing is combined here


class PointToPoint:
    """One rank's end of all conversations of a group. Thread-safe."""

    def __init__(self, comm: Communicator, store: Any, name: str) -> None:
        """``store`` is torch's for the group, ``name`` the group's. Opens a socket and says where; the rest waits for the first
        message. A communicator that was not joined through a controller has no socket."""
        self._comm, self._store = comm, store
        self._rank, self._size = comm.rank, comm.size
        self._lock = threading.RLock()
        self._closed = False
        self._transport: PeerTransport | None = None
        self._background: BackgroundProgress | None = None
        self._sendings: dict[tuple[int, int], Sending] = {}  # by receiver and number, those that wait for CTS
        self._cleared: deque[Sending] = deque()
        self._open: list[Receiving] = []  # in the order of the calls
        self._filling: dict[tuple[int, int], Receiving] = {}  # by sender and number
        self._unexpected: list[Unexpected] = []  # in the order of arrival
        self._numbers = 0
        place = comm.p2p_socket(f"torch {name}")
        self._socket: PeerSocket | None = None
        if place is not None:
            self._socket, self._key = place
            self._store.set(f"p2p/{self._rank}", self._socket.address)

    def send(self, rank: int, tag: int, array: Array, timeout: float) -> Request:
        """Send the array's bytes. ``array`` must not change until the request is done: they are out, or on their way."""
        self._check_rank(rank)
        data, name = array.view(np.uint8), element_type(array)
        request = Request(self._rank, f"rank {rank} to receive", time.monotonic() + timeout)
        if rank == self._rank:
            with self._lock:
                self._arrive(Unexpected(rank, tag, len(data), name, data=data.tobytes()))
            request.finish()
            return request
        self._ready()
        with self._lock:
            self._check()
            self._numbers += 1
            sending = Sending(rank, self._numbers, data, request)
            if len(data) <= SHORT:
                self._post(rank, Envelope(MessageKind.EAGER, tag, sending.number, len(data), name.encode()), data.tobytes())
                request.finish()
            else:
                self._sendings[rank, sending.number] = sending
                self._post(rank, Envelope(MessageKind.RTS, tag, sending.number, len(data), name.encode()))
        self._progress()
        return request

    def receive(self, rank: int | None, tag: int, array: Array, timeout: float) -> Request:
        """Receive a message of the array's size from ``rank`` (None: from any rank) into it. The request's value is the
        sender."""
        if rank is not None:
            self._check_rank(rank)
        who = "any rank" if rank is None else f"rank {rank}"
        request = Request(rank, f"{who} to send", time.monotonic() + timeout)
        if rank != self._rank:
            self._ready()
        with self._lock:
            self._check()
            receiving = Receiving(rank, tag, array.view(np.uint8), element_type(array), request)
            found = next((each for each in self._unexpected if receiving.wants(each)), None)
            if found is None:
                self._open.append(receiving)
            else:
                self._unexpected.remove(found)
                self._take(receiving, found)
        if rank != self._rank:
            self._progress()
        return request

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self._size:
            raise UnsupportedError(f"there is no rank {rank}: the group has {counted(self._size, 'rank')}, numbered from 0")

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the process group was shut down")

    # Messages that arrive.

    def _arrive(self, message: Unexpected) -> None:
        for receiving in self._open:
            if receiving.wants(message):
                self._open.remove(receiving)
                self._take(receiving, message)
                return
        self._unexpected.append(message)

    def _take(self, receiving: Receiving, message: Unexpected) -> None:
        """Begin to fill the tensor with the message; it was asked for, or has come whole."""
        fits = (message.size, message.type) == (len(receiving.into), receiving.type)
        if not fits:
            receiving.request.finish(
                CallError(
                    f"rank {message.source} sends {message.size} bytes of {message.type} (tag {message.tag}), and the tensor to "
                    f"receive into has {len(receiving.into)} of {receiving.type}: both must have the same number of elements and "
                    "the same type"
                )
            )
        elif message.data is not None:
            receiving.into[:] = np.frombuffer(message.data, np.uint8)
            receiving.request.finish(value=message.source)
        else:
            receiving.source = message.source
            self._filling[message.source, message.number] = receiving
        if message.data is None:
            self._post(message.source, Envelope(MessageKind.CTS if fits else MessageKind.REJECT, message.tag, message.number))

    def _handle(self, source: int, text: bytes) -> None:
        envelope, data = Envelope(*ENVELOPE.unpack_from(text)), memoryview(text)[ENVELOPE.size :]
        key, name = (source, envelope.number), envelope.type.rstrip(b"\0").decode()
        if envelope.kind == MessageKind.EAGER:
            self._arrive(Unexpected(source, envelope.tag, envelope.size, name, envelope.number, bytes(data)))
        elif envelope.kind == MessageKind.RTS:
            self._arrive(Unexpected(source, envelope.tag, envelope.size, name, envelope.number))
        elif envelope.kind == MessageKind.CTS and key in self._sendings:
            self._cleared.append(self._sendings.pop(key))
        elif envelope.kind == MessageKind.REJECT and key in self._sendings:
            sending = self._sendings.pop(key)
            sending.request.finish(CallError(f"rank {source} receives into a tensor of another size or type"))
        elif envelope.kind == MessageKind.DATA and key in self._filling and self._filling[key].fill(envelope.size, data):
            self._filling.pop(key).request.finish(value=source)

    # The connections.

    def _ready(self) -> None:
        """Open the connections, at the first message: every rank has said its address when it opened the group."""
        with self._lock:
            self._check()
            if self._transport is not None:
                return
            if self._socket is None:
                raise UnsupportedError("send and receive need a job that was joined through its controller")
            addresses = [bytes(self._store.get(f"p2p/{rank}")).decode() for rank in range(self._size)]
            own = self._comm.descriptor
            peers: dict[str, Any] = {"algorithm": "ring", "peers": tuple(addresses), "peer_key": self._key.hex()}
            there = replace(own, **peers, window=WINDOW, evicted=())
            try:
                self._transport = PeerTransport(self._socket, there, owns=True)
            except JoinError as error:
                raise CallError(str(error)) from error
            others = [rank for rank in range(self._size) if rank != self._rank]
            self._messenger = Messenger(others, _ALGORITHM, 0, Stats())
            self._most = message_bytes(own.block_bytes) - ENVELOPE.size
            self._background = BackgroundProgress(self._progress, self._transport.fileno)
            close_at_exit(self)

    def _post(self, rank: int, envelope: Envelope, data: bytes = b"") -> None:
        self._messenger.post(rank, ENVELOPE.pack(*envelope) + data)

    def _progress(self) -> bool:
        """Send and receive whatever is due."""
        with self._lock:
            transport, now = self._transport, time.monotonic()
            if transport is None or self._closed:
                return False
            self._exchange(transport, now)
            self._give_up(now)
        return True

    def _exchange(self, transport: PeerTransport, now: float) -> None:
        transport.send(self._frames(now))
        while packets := transport.recv(0.0):
            for packet in packets:
                source, texts = self._messenger.receive(packet, now)
                for text in texts:
                    self._handle(source, text)
            transport.send(self._frames(now))

    def _frames(self, now: float) -> list[tuple[Any, ...]]:
        for sending in list(self._cleared):
            for part, start in self._parts(sending):
                self._post(sending.rank, Envelope(MessageKind.DATA, 0, sending.number, start), part)
            if sending.sent == len(sending.data):
                self._cleared.remove(sending)
                sending.request.finish()
        return self._messenger.poll(now, waiting=not self._messenger.settled)

    def _parts(self, sending: Sending) -> Iterator[tuple[bytes, int]]:
        """The next parts of a message, as many as may be in progress."""
        while sending.sent < len(sending.data) and self._messenger.kept(sending.rank) < IN_FLIGHT:
            start = sending.sent
            part = sending.data[start : start + self._most].tobytes()
            sending.sent += len(part)
            yield part, start

    def _give_up(self, now: float) -> None:
        """End what has waited too long, or waits for a rank that has left."""
        for receiving in [*self._open, *self._filling.values()]:
            who = receiving.source if receiving.source is not None else receiving.rank
            self._judge(receiving.request, who, now)
        for sending in [*self._sendings.values(), *self._cleared]:
            self._judge(sending.request, sending.rank, now)
        self._open = [each for each in self._open if not each.request.done()]
        self._filling = {key: each for key, each in self._filling.items() if not each.request.done()}
        self._sendings = {key: each for key, each in self._sendings.items() if not each.request.done()}
        self._cleared = deque(each for each in self._cleared if not each.request.done())

    def _judge(self, request: Request, rank: int | None, now: float) -> None:
        gone = self._messenger.gone
        if len(gone) == self._size - 1 if rank is None else rank in gone:
            request.finish(CallError(f"waiting for {request.waits_for}, which has left"))
        elif now >= request.deadline:
            request.finish(
                CallTimeoutError(f"no message in time: waiting for {request.waits_for}", missing=[] if rank is None else [rank])
            )

    def close(self) -> None:
        """Leave: what was sent is delivered first, what waits raises ClosedError. May be called twice."""
        with self._lock:
            if self._closed:
                return
            transport, until = self._transport, time.monotonic() + LINGER
            if transport is not None:
                transport.send(self._messenger.say(Flag.ANSWER, 0))
                while not self._messenger.settled and time.monotonic() < until:
                    self._exchange(transport, time.monotonic())
                    time.sleep(0.001)
                transport.send(self._messenger.say(Flag.BYE, 0))
            self._closed = True
            waiting = [each.request for each in (*self._open, *self._filling.values())]
            waiting += [each.request for each in (*self._sendings.values(), *self._cleared)]
            for request in waiting:
                request.finish(ClosedError("the process group was shut down"))
        if self._background is not None:
            self._background.stop()
        if transport is not None:
            transport.close()
        elif self._socket is not None:
            self._socket.close()
