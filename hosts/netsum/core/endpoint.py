# SPDX-License-Identifier: MIT
"""The interface of an endpoint: one member's half of the protocol, whether a switch or the members combine. A pure state
machine: it has no thread, and the clock is passed in.

Blocks have *serials* 0, 1, 2… from the epoch's first block on; a block's id on the wire is ``first_block_id + serial`` modulo
2^32. A block is sent only when every result up to one window before it is held, and contributions are kept for a window
more. So no two ranks are more than a window apart, and all can go back to the first block that any of them lacks.

There are :class:`netsum.core.switch_endpoint.SwitchEndpoint`; :class:`netsum.peers.peer_endpoint.PeerEndpoint`, in which the
members combine each other's contributions; and, for ranks of one host that sum in shared memory before the switch does,
:class:`netsum.intranode.leader_endpoint.LeaderEndpoint` and :class:`netsum.intranode.member_endpoint.MemberEndpoint`. No other
code may need to know which one it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from netsum.core.blocks import Block
from netsum.settings import Settings
from netsum.stats import Stats
from netsum.transports.base import Packet, Transport
from netsum.wire.schema import Status

BlockedOn = tuple[str, tuple[int, ...]]
"""Whom a block waits for: a sentence, and the ranks."""


class Waits(NamedTuple):
    """The oldest ``block`` whose result a rank lacks, and how often it has ``sent`` it, in packets of ``octets`` bytes. It has
    ``received`` this number of packets from the switch in this epoch, modulo 2^32."""

    block: int
    sent: int
    octets: int
    received: int


WAIT_SLICE: Final = 0.002
"""Longest single wait for packets, in seconds: how soon Ctrl-C, a new call or a deadline is noticed."""
LONE_SLICE: Final = 0.02
"""The same where no other thread makes calls: a deadline is noticed anyway, and so is Ctrl-C."""
GOODBYE_REPEATS: Final = 3
"""The number of GOODBYEs of a member that leaves: nothing repeats it later."""


GROUP: Final = 64
"""Blocks converted at once, and those of a message between members: enough to make numpy's overhead negligible, few enough to
stay in the cache."""


class CallMemory(Protocol):
    """Memory that all ranks of a job share, in which they sum a whole array (:mod:`netsum.collectives.whole_call`).

    Attributes:
        identity: the same number on all ranks that share it, and on no others; not 0.
        index: the number of this rank among those that share it, ``ranks`` in all.
        lanes: uint8[ranks, slots, bytes], where each rank puts its lanes.
        results: uint8[bytes], where the ranks put the result.
    """

    identity: int
    index: int
    ranks: int
    lanes: NDArray[np.uint8]
    results: NDArray[np.uint8]

    def allocate(self, result_bytes: int) -> bool:
        """Have the memory that this rank writes to in a call with such a result. False if the host has not enough."""


class Endpoint(Protocol):
    """One member's endpoint in one epoch of a job.

    Attributes:
        stats: what was sent and received; an epoch may take over those of the one before.
        combiner: who combines: ``switch`` or ``others``.
        group: how many blocks a call converts and submits at a time.
    """

    stats: Stats
    combiner: str
    group: int

    @property
    def base(self) -> int:
        """Every result below this serial is held, and came in this epoch."""

    @property
    def prefix(self) -> int:
        """Every result below this serial is held."""

    @property
    def next_serial(self) -> int:
        """The serial of the next block to be sent."""

    @property
    def submitted(self) -> int:
        """Number of blocks submitted."""

    @property
    def queued(self) -> int:
        """Number of blocks that wait for the window."""

    @property
    def received_end(self) -> int:
        """Every result seen so far is of a block below this serial, whether or not this rank has reached that block."""

    @property
    def active_size(self) -> int:
        """The number of ranks that the job waits for, according to the last whole result."""

    @property
    def call_memory(self) -> CallMemory | None:
        """Memory that all ranks of the job share, where it is known; None if there is none, or not yet."""

    @property
    def polls_controller(self) -> bool:
        """True if this member queries the controller now and then, on behalf of all, even if nothing is amiss."""

    @property
    def by_chain(self) -> bool:
        """True if packets go from member to member: then lanes may be floats, and what comes is to be passed on at once."""

    @property
    def needs_background_progress(self) -> bool:
        """True if :meth:`progress` must be called between calls, too."""

    def attach(self, link: Transport) -> Transport:
        """Return the transport to use: ``link``, or one around it that also brings what comes here another way."""

    def block_id(self, serial: int) -> int:
        """A block's id on the wire."""

    def submit(self, block: Block) -> int:
        """Queue the next block; returns its serial."""

    def submit_all(self, blocks: Sequence[Block]) -> None:
        """Queue the next blocks, which are not changed any more. Those of a :class:`~netsum.core.blocks.BlockBatch` may be sent
        many at a time."""

    def poll(self, now: float) -> Sequence[Packet]:
        """Begin the blocks that may begin; returns the packets to send now. Raises what :meth:`receive` raises."""

    def outgoing(self, now: float) -> Sequence[Packet]:
        """The packets to send now for blocks that have begun. Begins none."""

    def next_deadline(self) -> float | None:
        """The time when :meth:`poll` may have something to send although nothing has arrived. None: only when something does."""

    def receive(self, packets: Sequence[memoryview], now: float) -> None:
        """Take packets in this order; one that makes no sense is counted and ignored. Raises
        :class:`netsum.core.blocks.BlockRejected` if a block is refused for good, :class:`netsum.core.blocks.CallMismatch` if a
        member's call differs; an endpoint may leave both to :meth:`poll`."""

    def abort_outstanding(self, status: Status) -> Sequence[Packet]:
        """Packets that tell the others that this member will not finish the blocks that they wait for."""

    def blocks_from(self, block_id: int) -> list[Block] | None:
        """Everything submitted from this block on; None if a contribution is gone."""

    def resume(
        self,
        first_block_id: int,
        roots: Sequence[int] = (),
        job_id: int | None = None,
        key: str = "",
        src_id: int | None = None,
    ) -> bool:
        """Continue in a new epoch of the same kind, from this block and with its ``key``; under another ``job_id`` if its job has
        been elsewhere, or ``src_id`` if ranks share hosts otherwise. False: this endpoint cannot, and a new one must take over
        its blocks."""

    def progress(self, transport: Transport) -> None:
        """Receive and send for the others, and begin nothing."""

    def leave(self, transport: Transport) -> None:
        """Make sure that the others have what they need from this member, which is leaving."""

    def apply(self, settings: Settings) -> None:
        """Begin further blocks with these settings; the same on all ranks from the same block on, and between calls."""

    def limit_to_buffer(self, holds: Callable[[int], int]) -> None:
        """Have no more blocks in flight than the link's receive buffer ``holds``, which tells how many packets of a size that
        is."""

    def waits(self) -> Waits | None:
        """The description of what this rank waits for, if another rank can make use of it."""

    def left_behind(self) -> tuple[int, ...]:
        """The ranks that the oldest block waits for and that have left, as far as this member knows."""

    def explain(self, now: float) -> BlockedOn | None:
        """The ranks the oldest block waits for, as far as this member knows. None: only the controller can tell."""
