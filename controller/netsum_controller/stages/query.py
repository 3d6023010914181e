"""Stage ``query``: block records, read with a PacketOut that names the slot and a PacketIn that brings the record.

simple_switch_grpc does not serve registers ("Register reads are not supported yet", UNIMPLEMENTED), so the program
itself answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from netsum.wire.codec import parse_record
from netsum.wire.schema import BlockState, PacketOutKind

AGE_UNIT_US = 1024
"""Microseconds in a unit of a block's age, which comes in 16 bits of metadata and stays at its largest value."""


def query_fields(slot: int) -> dict[str, int]:
    """Metadata of the PacketOut that asks for a slot's record."""
    return {"kind": PacketOutKind.QUERY, "slot": slot, "cookie": slot, "closed": 0}


@dataclass(frozen=True)
class Record:
    """A slot's block record, the parts that people ask about. ``seen`` has a bit for each source; ``age_ms`` is the time
    since the block's first packet, at most 67 s; ``raw`` is all of the record, as the switch brought it."""

    slot: int
    epoch: int
    block_id: int
    state: BlockState
    seen: int
    src_cnt: int
    data_cnt: int
    status: int
    start_us: int
    op: int
    lane: int
    gen_id: int
    grad_cnt: int
    degraded: bool
    firm: bool = False
    age_ms: float = 0.0
    raw: bytes = field(default=b"", repr=False)

    @classmethod
    def parse(cls, slot: int, payload: bytes, age: int) -> Record:
        """From a PacketIn's payload and the age in its metadata; :class:`ValueError` when it is too short."""
        raw = parse_record(payload)
        return cls(
            slot=slot,
            epoch=raw["epoch"],
            block_id=raw["block_id"],
            state=BlockState(raw["state"]),
            seen=raw["seen"],
            src_cnt=raw["src_cnt"],
            data_cnt=raw["data_cnt"],
            status=raw["status"],
            start_us=raw["start"],
            op=raw["op"],
            lane=raw["lane"],
            gen_id=raw["gen_id"],
            grad_cnt=raw["grad_cnt"],
            degraded=bool(raw["degraded"]),
            firm=bool(raw["firm"]),
            age_ms=age * AGE_UNIT_US / 1000,
            raw=payload,
        )
