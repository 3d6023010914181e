# SPDX-License-Identifier: MIT
"""In the place of the window to the switch, where all ranks of a job are on one host: what they contribute, combined, is the
result.

A switch would send back what it gets, since the host is its only source. No rank is closed out of a block that way either: a host
contributes when all its ranks have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from netsum.core.blocks import BlockBatch, Contributions
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor
from netsum.packet_batch import Packet
from netsum.settings import Settings
from netsum.stats import Stats
from netsum.transports.base import Transport
from netsum.wire.schema import HEADER_BYTES, AgeOp, Status


class HostOnly:
    """A window that sends nothing. Blocks are over when they are submitted.

    Attributes:
        base: the serial of the next block to be submitted.
    """

    def __init__(self, descriptor: Descriptor, own: SwitchEndpoint) -> None:
        """``own`` is the leader's own window, which has the statistics."""
        self._own = own
        self._contributions = Contributions(descriptor)
        self.base = 0

    @property
    def stats(self) -> Stats:
        return self._own.stats

    @stats.setter
    def stats(self, stats: Stats) -> None:
        self._own.stats = stats

    @property
    def received_end(self) -> int:
        return self.base

    def submit_all(self, batch: BlockBatch) -> None:
        """Deliver the results of these blocks, which are alike."""
        header = self._contributions.header(self._own.block_id(self.base), batch.like)
        if header.degraded:
            header = header._replace(age_op=AgeOp.AGED)
        self.base += len(batch)
        whole = header.status == Status.OK and header.data_cnt
        batch.deliver(0, header, batch.rows[:, HEADER_BYTES:] if whole else np.empty((len(batch), 0), np.uint8))

    def poll(self, now: float) -> Sequence[Packet]:  # noqa: ARG002
        return []

    outgoing = poll

    def receive(self, packets: Sequence[memoryview], now: float) -> None:  # noqa: ARG002
        self.stats.packets_received += len(packets)
        self.stats.malformed += len(packets)

    def abort_outstanding(self, status: Status) -> Sequence[Packet]:  # noqa: ARG002
        return []

    def next_deadline(self) -> None:
        """None: nothing is sent."""

    waits = next_deadline

    def apply(self, settings: Settings) -> None:
        """Nothing to do, as in the three below."""

    def limit_to_buffer(self, holds: Callable[[int], int]) -> None: ...

    def progress(self, transport: Transport) -> None: ...

    def leave(self, transport: Transport) -> None: ...
