"""The sweeper's P4Runtime stream: primary if no other client is, otherwise a backup."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from netsum_p4runtime import p4runtime_pb2_grpc

from netsum_controller.config.topology import Switch
from netsum_controller.p4runtime.channel import open_channel
from netsum_controller.p4runtime.stream import MessageStream

_LOW_IDS = range(2, 1 << 16)
"""Low halves of our election ids; the high half is 0. So a sweeper yields to every other client: the controller's commands (2,
time), and p4runtime-shell, by default (1, 0). If two controllers' sweepers choose the same id, which is rare, the second gets
INVALID_ARGUMENT and tries another."""


class SweepStream:
    """An open stream. ``tell`` gets (this stream, message), as :class:`MessageStream` has them."""

    def __init__(self, switch: Switch, tell: Callable[[SweepStream, Any], None]) -> None:
        assert switch.p4runtime is not None
        self._channel = open_channel(switch.p4runtime, switch.tls)
        stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
        self._messages = MessageStream(stub, lambda message: tell(self, message))
        self._messages.arbitrate(switch.device_id, (0, secrets.choice(_LOW_IDS)))
        self.send_packet = self._messages.send_packet

    def close(self) -> None:
        self._messages.close()
        self._channel.close()
