"""What a window is: one member's half of the protocol, whoever combines. A pure state machine: no thread, the clock passed in.

Blocks have *serials*: 0, 1, 2… from the epoch's first block on; a block's id on the wire is ``first_block_id + serial``
modulo 2^32. A block is sent only when every result up to one window before it is held, and contributions are kept for a
window more; so no two ranks are further apart than a window, and all can go back to the first block that anybody lacks.

There are two: :class:`netsum.switch_window.SwitchWindow`, and :class:`netsum.peers.peer_window.PeerWindow` where the members
combine each other's contributions. Nobody else may need to know which one it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from netsum.block import Block
from netsum.stats import Stats
from netsum.transports.base import Packet, Transport
from netsum.wire.schema import Status

Whom = tuple[str, tuple[int, ...]]
"""Whom a block waits for: a sentence, and the ranks."""


class Window(Protocol):
    """One member's window over one epoch of a job.

    Attributes:
        stats: what was sent and received; may be replaced by those of the epoch before.
        combiner: who combines, in a word: ``switch`` or ``others``.
    """

    stats: Stats
    combiner: str

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
        """How many blocks were submitted."""

    @property
    def queued(self) -> int:
        """How many blocks wait for the window."""

    @property
    def heard(self) -> int:
        """Results of blocks below this serial were seen, whether this rank has come to them or not."""

    @property
    def present(self) -> int:
        """How many ranks the job waits for, as the last whole result told."""

    @property
    def speaks(self) -> bool:
        """Whether this member asks the controller for all, now and then, although nothing is amiss."""

    @property
    def needs_tending(self) -> bool:
        """Whether :meth:`tend` must be called between calls, too."""

    def block_id(self, serial: int) -> int:
        """A block's id on the wire."""

    def submit(self, block: Block) -> int:
        """Queue the next block; returns its serial."""

    def poll(self, now: float) -> Sequence[Packet]:
        """Begin what may be begun; the packets to be sent now. Raises as :meth:`receive`."""

    def outgoing(self, now: float) -> Sequence[Packet]:
        """The packets that the others need now for what is begun already. Begins nothing."""

    def next_deadline(self) -> float | None:
        """When :meth:`poll` may have something to send although nothing arrives; None: not before something does."""

    def receive(self, packet: memoryview, now: float) -> None:
        """Take a packet. What makes no sense is counted and ignored. Raises :class:`netsum.refusal.Refusal` if a block is
        refused for good, :class:`netsum.refusal.Disagreement` if a member's call differs; a window may leave both to
        :meth:`poll`."""

    def overrule(self, status: Status) -> Sequence[Packet]:
        """Packets that tell the others that this member does not go on with the blocks that they wait for."""

    def blocks_from(self, block_id: int) -> list[Block] | None:
        """All that was submitted from this block on; None if a contribution is not there any more."""

    def resume(self, first_block_id: int, roots: Sequence[int] = ()) -> bool:
        """Go on in a new epoch of the same kind, from this block. False: this window cannot, and a new one must take its
        blocks."""

    def tend(self, transport: Transport) -> None:
        """Receive and send for the others, and begin nothing."""

    def leave(self, transport: Transport) -> None:
        """See to it that the others have what they need of this member, which goes now."""

    def explain(self, now: float) -> Whom | None:
        """Whom the oldest block waits for, as far as this member knows. None: only the controller can tell."""
