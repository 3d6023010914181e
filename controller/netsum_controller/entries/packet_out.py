# SPDX-License-Identifier: MIT
"""PacketOuts that the P4 program answers or acts on: epoch numbers, block records, and the aging scan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from netsum.frames import FrameFormat
from netsum.wire.codec import Header, pack_header, parse_record
from netsum.wire.schema import EVERYONE, UDP_PORT, BlockState, PacketOutKind

from netsum_controller.config.topology import Switch

# Stage ``claim``: epoch numbers; the switch remembers the highest that was taken.


def claim_fields(number: int, cookie: int) -> dict[str, int]:
    """Metadata of the PacketOut that takes all numbers up to ``number`` (32 bits); the PacketIn returns ``cookie``."""
    return {"kind": PacketOutKind.CLAIM, "slot": number >> 16, "cookie": cookie, "closed": number & 0xFFFF}


def claimed_before(answer: Mapping[str, int]) -> int:
    """The highest number taken before, from the PacketIn's metadata."""
    return answer["slot"] << 16 | answer["closed"]


# Stage ``query``: block records, read with a PacketOut that names the slot and a PacketIn that returns the record. The
# program itself answers, because simple_switch_grpc does not serve registers ("Register reads are not supported yet",
# UNIMPLEMENTED).


AGE_UNIT_US = 1024
"""Microseconds in a unit of a block's age, which has 16 bits of metadata and saturates."""


def query_fields(slot: int, cookie: int) -> dict[str, int]:
    """Metadata of the PacketOut that asks for a slot's record; the PacketIn returns ``cookie`` (16 bits)."""
    return {"kind": PacketOutKind.QUERY, "slot": slot, "cookie": cookie, "closed": 0}


@dataclass(frozen=True)
class BlockRecord:
    """The main parts of a slot's block record. ``seen`` has a bit for each source; ``age_ms`` is the time since the block's
    first packet, at most 67 s; ``raw`` is the whole record as the switch returned it."""

    slot: int
    epoch: int
    block_id: int
    state: BlockState
    seen: int
    worker_cnt: int
    data_cnt: int
    status: int
    start_us: int
    op: int
    lane: int
    gen_id: int
    lane_cnt: int
    degraded: bool
    no_aging: bool = False
    dest: int = EVERYONE
    age_ms: float = 0.0
    raw: bytes = field(default=b"", repr=False)

    @classmethod
    def parse(cls, slot: int, payload: bytes, age: int) -> BlockRecord:
        """From a PacketIn's payload and the age in its metadata; :class:`ValueError` if it is too short."""
        raw = parse_record(payload)
        same = ("epoch", "block_id", "seen", "worker_cnt", "data_cnt", "status", "op", "lane", "gen_id", "lane_cnt", "dest")
        return cls(
            slot=slot,
            state=BlockState(raw["state"]),
            start_us=raw["start"],
            degraded=bool(raw["degraded"]),
            no_aging=bool(raw["no_aging"]),
            age_ms=age * AGE_UNIT_US / 1000,
            raw=payload,
            **{name: raw[name] for name in same},
        )


# Stage ``scan``: a PacketOut that goes through a job's slots and closes the blocks that need not wait any longer. A P4
# program has no timers, so the controller sends timer packets (Trio-ML, section 5).


def scan_fields(cookie: int) -> dict[str, int]:
    """Metadata of the PacketOut; the PacketIn returns ``cookie`` (16 bits)."""
    return {"kind": PacketOutKind.SCAN, "slot": 0, "cookie": cookie, "closed": 0}


def scan_frame(switch: Switch, job_id: int) -> bytes:
    """Payload of the PacketOut: an empty contribution to the job, from the switch's own address to itself. The switch turns it
    into results, so its addresses and lengths must be right."""
    packet = pack_header(Header(job_id, block_id=0))
    own = (switch.mac, switch.ip, UDP_PORT)
    return FrameFormat(own, own).prefix(len(packet)) + packet
