# SPDX-License-Identifier: MIT
"""The P4Runtime stream: arbitration, and packets out and in."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from netsum_p4runtime import p4runtime_pb2 as p4
from netsum_p4runtime import p4runtime_pb2_grpc

from netsum_controller.config.topology import Switch
from netsum_controller.errors import SwitchError
from netsum_controller.p4runtime.channel import close_channel, open_channel, switch_error

ELECTION_HIGH = 2
"""High half of our election ids, above p4runtime-shell's default (1, 0), so that an open shell does not lock out the
controller. The low half is the time in nanoseconds, so a later connection wins over one that hangs."""

ATTEMPTS = 8

SILENCE = 2.0
"""Seconds that a switch has to answer a new stream's arbitration. One that was stopping or starting may have lost the stream and
left its connection open, so that nothing ever comes; the stream is opened again then."""

_NOTICE = 1.0
"""Seconds within which a switch tells who has become primary, once it has refused a call for that."""

_CLOSING = 2.0
"""Seconds to wait for the reader, a daemon thread, to see the end of its stream."""


class MessageStream:
    """An open StreamChannel. On a thread of its own it passes to ``on_message`` each ``p4.v1.StreamMessageResponse`` and, at the
    end, the :class:`grpc.RpcError` that ended the stream, or None."""

    def __init__(self, stub: Any, on_message: Callable[[Any], None]) -> None:
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._on_message = on_message
        self._call = stub.StreamChannel(self._requests())
        self._reader = threading.Thread(target=self._receive, name="p4runtime", daemon=True)
        self._reader.start()

    def arbitrate(self, device_id: int, election_id: tuple[int, int]) -> None:
        message = p4.StreamMessageRequest()
        message.arbitration.device_id = device_id
        message.arbitration.election_id.high, message.arbitration.election_id.low = election_id
        self._outbox.put(message)

    def send_packet(self, packet: Any) -> None:
        """Send a ``p4.v1.PacketOut``, which the switch drops unless this stream is the primary's."""
        self._outbox.put(p4.StreamMessageRequest(packet=packet))

    def close(self) -> None:
        self._outbox.put(None)
        self._call.cancel()
        # Not for ever: after Ctrl-C in the middle of a call, the reader may wait for a lock of gRPC that is never released.
        self._reader.join(_CLOSING)

    def _requests(self) -> Iterator[Any]:
        while (message := self._outbox.get()) is not None:
            yield message

    def _receive(self) -> None:
        end: Any = None
        try:
            for message in self._call:
                self._on_message(message)
        except grpc.RpcError as error:
            end = error
        self._on_message(end)


class Stream:
    """The controller's stream to one switch, as primary. Open it with :meth:`become_primary`."""

    def __init__(self, stub: Any, switch: str, address: str, device_id: int) -> None:
        self._stub = stub
        self._switch, self._address = switch, address
        self._device_id = device_id
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._messages: MessageStream | None = None
        self.election_id: tuple[int, int] = (0, 0)

    def become_primary(self, timeout: float) -> None:
        """Open the stream and win the arbitration within ``timeout`` seconds, or raise :class:`SwitchError`."""
        deadline = time.monotonic() + timeout
        low = time.time_ns()
        silence, rejections = SILENCE, 0
        while rejections < ATTEMPTS:
            if self._messages is None:
                # A new inbox, so that messages of a rejected stream cannot pass for this one's.
                self._inbox = queue.SimpleQueue()
                self._messages = MessageStream(self._stub, self._inbox.put)
            self.election_id = (ELECTION_HIGH, low)
            self._messages.arbitrate(self._device_id, self.election_id)
            try:
                answer = self._next("arbitration", min(deadline, time.monotonic() + silence))
            except queue.Empty:
                self.close()
                if time.monotonic() >= deadline:
                    address = self._address
                    raise SwitchError(f"switch {self._switch}: no answer to arbitration from {address} in time") from None
                silence *= 2  # the switch may only be slow
                low += 1
                continue
            rejections += 1
            if isinstance(answer, grpc.RpcError):
                self.close()
                # simple_switch_grpc ends the stream with INVALID_ARGUMENT "Election id already exists", sometimes even on the
                # very first connection to a new process, with an unused id. A higher id works.
                if answer.code() != grpc.StatusCode.INVALID_ARGUMENT or "lection id" not in (answer.details() or ""):
                    raise switch_error(self._switch, self._address, "arbitration", answer)
                low += 1
            elif self._checked(answer, "arbitration").status.code == 0:
                return
            else:
                low = max(low, answer.election_id.low) + 1
        raise SwitchError(f"switch {self._switch}: another P4Runtime client at {self._address} stays primary")

    def send_packet(self, packet: Any) -> None:
        assert self._messages is not None, "the stream is not open"
        self._messages.send_packet(packet)

    def next_packet(self, deadline: float) -> Any | None:
        """Next ``p4.v1.PacketIn``, or None at the deadline (``time.monotonic()``). Raises when the stream has ended."""
        try:
            packet = self._next("packet", deadline)
        except queue.Empty:
            return None
        return self._checked(packet, "waiting for a PacketIn")

    def is_netsums(self) -> bool:
        """True if another netsum is primary, which its election id tells. For a call that was refused: what else has come is
        lost."""
        deadline = time.monotonic() + _NOTICE
        try:
            while not isinstance(answer := self._next("arbitration", deadline), grpc.RpcError | None):
                if answer.status.code:
                    return bool(answer.election_id.high == ELECTION_HIGH)
        except queue.Empty:
            pass
        return False

    def close(self) -> None:
        if self._messages is not None:
            self._messages.close()
        self._messages = None

    def _checked(self, message: Any, what: str) -> Any:
        """The message, unless it is the end of the stream."""
        if isinstance(message, grpc.RpcError):
            raise switch_error(self._switch, self._address, what, message)
        if message is None:
            raise SwitchError(f"switch {self._switch}: {self._address} ended the stream during {what}")
        return message

    def _next(self, kind: str, deadline: float) -> Any:
        """The next message of a kind, or what ended the stream. Raises :class:`queue.Empty` at the deadline."""
        while True:
            message = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            if message is None or isinstance(message, grpc.RpcError):
                return message
            if message.HasField(kind):
                return getattr(message, kind)


# The scanner's P4Runtime stream: primary if no other client is, otherwise a backup.


_LOW_IDS = range(2, 1 << 16)
"""Low halves of our election ids; the high half is 0. So a scanner yields to every other client: the controller's commands (2,
time), and p4runtime-shell, by default (1, 0). If two controllers' scanners choose the same id, which is rare, the second gets
INVALID_ARGUMENT and tries another."""


class ScanStream:
    """An open stream. ``on_message`` gets (this stream, message), as :class:`MessageStream` has them."""

    def __init__(self, switch: Switch, on_message: Callable[[ScanStream, Any], None]) -> None:
        assert switch.p4runtime is not None
        self._channel = open_channel(switch.p4runtime, switch.tls)
        stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
        self._messages = MessageStream(stub, lambda message: on_message(self, message))
        self._messages.arbitrate(switch.device_id, (0, secrets.choice(_LOW_IDS)))
        self.send_packet = self._messages.send_packet

    def close(self) -> None:
        self._messages.close()
        close_channel(self._channel)
