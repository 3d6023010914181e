"""The P4Runtime stream: arbitration, and packets out and in."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
from p4.v1 import p4runtime_pb2 as p4

from netsum_controller.errors import SwitchError
from netsum_controller.p4runtime.rpc_errors import switch_error

ELECTION_HIGH = 2
"""High half of our election ids: above p4runtime-shell's default (1, 0), so that a person's open shell does not lock
the controller out. The low half is the time in nanoseconds, so a later connection wins over one that hangs."""

ATTEMPTS = 8


_CLOSING = 2.0
"""Seconds that the reader may take to see the end of its stream; it is a daemon."""


class Stream:
    """One stream of one switch. Open it with :meth:`become_primary`; a thread of its own receives."""

    def __init__(self, stub: Any, switch: str, address: str, device_id: int) -> None:
        self._stub = stub
        self._switch, self._address = switch, address
        self._device_id = device_id
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._arbitrations: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.packets: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call: Any = None
        self._reader: threading.Thread | None = None
        self.election_id: tuple[int, int] = (0, 0)

    def become_primary(self, timeout: float) -> None:
        """Open the stream and win the arbitration; :class:`SwitchError` when that fails within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        low = time.time_ns()
        for _ in range(ATTEMPTS):
            if self._call is None:
                self._start()
            self.election_id = (ELECTION_HIGH, low)
            message = p4.StreamMessageRequest()
            message.arbitration.device_id = self._device_id
            message.arbitration.election_id.high, message.arbitration.election_id.low = self.election_id
            self._outbox.put(message)
            answer = self._receive(self._arbitrations, deadline, "arbitration")
            if isinstance(answer, grpc.RpcError):
                self.close()
                # simple_switch_grpc: INVALID_ARGUMENT "Election id already exists" ends the stream; the very first
                # connection to a new process can get it too, with an id never used. A higher one works.
                if answer.code() != grpc.StatusCode.INVALID_ARGUMENT or "lection id" not in (answer.details() or ""):
                    raise switch_error(self._switch, self._address, "arbitration", answer)
                low += 1
            elif self._checked(answer, "arbitration").status.code == 0:
                return
            else:
                low = max(low, answer.election_id.low) + 1
        raise SwitchError(f"switch {self._switch}: another P4Runtime client at {self._address} stays primary")

    def send_packet(self, packet: Any) -> None:
        """Send a ``p4.v1.PacketOut``."""
        self._outbox.put(p4.StreamMessageRequest(packet=packet))

    def next_packet(self, deadline: float) -> Any | None:
        """Next ``p4.v1.PacketIn``, or None at the deadline (``time.monotonic()``). Raises when the stream has ended."""
        try:
            packet = self.packets.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        return self._checked(packet, "waiting for a PacketIn")

    def close(self) -> None:
        """End the stream and its thread."""
        self._outbox.put(None)
        if self._call is not None:
            self._call.cancel()
        if self._reader is not None:
            # Ctrl-C in the middle of a call may leave gRPC's own lock taken, and the reader waiting for it for ever.
            self._reader.join(_CLOSING)
        self._call = self._reader = None

    def _start(self) -> None:
        # New queues: what a rejected stream left behind must not be taken for news of this one.
        outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outbox, self._arbitrations, self.packets = outbox, queue.SimpleQueue(), queue.SimpleQueue()

        def requests() -> Iterator[Any]:
            while (message := outbox.get()) is not None:
                yield message

        self._call = self._stub.StreamChannel(requests())
        arguments = (self._call, self._arbitrations, self.packets)
        self._reader = threading.Thread(target=self._receive_all, args=arguments, name="p4runtime", daemon=True)
        self._reader.start()

    @staticmethod
    def _receive_all(call: Any, arbitrations: queue.SimpleQueue[Any], packets: queue.SimpleQueue[Any]) -> None:
        end: Any = None
        try:
            for message in call:
                if message.HasField("arbitration"):
                    arbitrations.put(message.arbitration)
                elif message.HasField("packet"):
                    packets.put(message.packet)
        except grpc.RpcError as error:
            end = error
        arbitrations.put(end)
        packets.put(end)

    def _checked(self, message: Any, what: str) -> Any:
        """The message, unless it is the end of the stream."""
        if isinstance(message, grpc.RpcError):
            raise switch_error(self._switch, self._address, what, message)
        if message is None:
            raise SwitchError(f"switch {self._switch}: {self._address} ended the stream during {what}")
        return message

    def _receive(self, source: queue.SimpleQueue[Any], deadline: float, what: str) -> Any:
        try:
            return source.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self.close()
            raise SwitchError(f"switch {self._switch}: no answer to {what} from {self._address} in time") from None
