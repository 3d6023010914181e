"""The sweeper's P4Runtime stream: primary when no other client is, and a backup otherwise."""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from p4.v1 import p4runtime_pb2 as p4
from p4.v1 import p4runtime_pb2_grpc

from netsum_controller.config.topology import Switch
from netsum_controller.p4runtime.client import open_channel

_LOW_IDS = range(2, 1 << 16)
"""Low halves of our election ids; the high half is 0. So every other client wins against a sweeper: the controller's
commands (2, time), p4runtime-shell (1, 0) by default. Two controllers' sweepers differ, mostly; who meets another of its
id is told INVALID_ARGUMENT, and tries the next."""


class SweepStream:
    """An open stream. ``tell`` gets, from a thread of the stream's own, (this stream, message): what the switch says
    (``p4.v1.StreamMessageResponse``), and at last the :class:`grpc.RpcError` that ended it, or None."""

    def __init__(self, switch: Switch, tell: Callable[[SweepStream, Any], None]) -> None:
        assert switch.p4runtime is not None
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tell = tell
        self._channel = open_channel(switch.p4runtime, switch.tls)
        self._call = p4runtime_pb2_grpc.P4RuntimeStub(self._channel).StreamChannel(self._requests())
        self._reader = threading.Thread(target=self._receive, name="netsum-sweep-stream", daemon=True)
        self._reader.start()
        message = p4.StreamMessageRequest()
        message.arbitration.device_id = switch.device_id
        message.arbitration.election_id.high, message.arbitration.election_id.low = 0, secrets.choice(_LOW_IDS)
        self._outbox.put(message)

    def send(self, packet: Any) -> None:
        """Send a ``p4.v1.PacketOut``; the switch drops it unless this stream is the primary's."""
        self._outbox.put(p4.StreamMessageRequest(packet=packet))

    def close(self) -> None:
        """End the stream and its thread."""
        self._outbox.put(None)
        self._call.cancel()
        self._reader.join()
        self._channel.close()

    def _requests(self) -> Iterator[Any]:
        while (message := self._outbox.get()) is not None:
            yield message

    def _receive(self) -> None:
        end: Any = None
        try:
            for message in self._call:
                self._tell(self, message)
        except grpc.RpcError as error:
            end = error
        self._tell(self, end)
