"""Blocks on their way to the switch, and the packets that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netsum.descriptor import Descriptor
from netsum.packet_batch import Packet, Rows
from netsum.window.block import Block
from netsum.window.run import BlockBatch
from netsum.wire.codec import Header, pack_header, pack_headers


@dataclass(slots=True)
class InFlight:
    """Blocks that were sent together: of ``blocks``, whose first has the serial ``origin``, those from the serial ``start`` up to
    ``end``.

    Attributes:
        time: of the first transmission.
        order: a block's last transmission has this order among all, plus the block's serial.
        packet: of a single block. None: the blocks are alike (:mod:`netsum.window.run`), and none of them has a story of its own.
        tries: how often they were sent.
    """

    blocks: Sequence[Block]
    origin: int
    start: int
    end: int
    time: float
    order: int
    packet: Packet | None = None
    tries: int = 1

    def block(self, serial: int) -> Block:
        return self.blocks[serial - self.origin]

    @property
    def run(self) -> BlockBatch | None:
        """The blocks, if they are alike."""
        return self.blocks if self.packet is None and isinstance(self.blocks, BlockBatch) else None

    def alone(self, serial: int) -> InFlight:
        """One of the blocks, which from now on is no longer like the others."""
        if (run := self.run) is None:
            return self
        self.block(serial)  # now it has been asked for
        packet = (run.rows[serial - self.origin].data,)
        return InFlight(self.blocks, self.origin, serial, serial + 1, self.time, self.order, packet, self.tries)


class Contributions:
    """Makes a member's packets."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._degrade = descriptor.block_exp_ms > 0

    def header(self, block_id: int, block: Block) -> Header:
        return Header(
            job_id=self._descriptor.job_id,
            block_id=block_id,
            final=int(block.final),
            degraded=int(block.passing),
            firm=int(block.firm and self._degrade),
            src_id=self._descriptor.src_id,
            src_cnt=0 if block.passing else 1,
            gen_id=block.gen,
            grad_cnt=len(block.payload) >> block.lane,
            op=block.op,
            lane=block.lane,
            status=block.status,
            dest=block.dest,
            data_cnt=1 if block.payload else 0,
            call=block.call,
        )

    def packet(self, block_id: int, block: Block, room: int) -> Packet:
        header = pack_header(self.header(block_id, block))
        if block.payload:
            return header, block.payload
        return (header, bytes(room)) if room else (header,)

    def rows(self, block_id: int, run: BlockBatch, row: int, number: int) -> Rows:
        """The packets of so many blocks that are alike, the first of which has this id."""
        rows = run.rows[row : row + number]
        pack_headers(self.header(block_id, run.like), rows)
        return rows
