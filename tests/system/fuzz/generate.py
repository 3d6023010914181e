# SPDX-License-Identifier: MIT
"""Batches of malformed packets, each from (seed, number) alone, and what is expected of every packet."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from netsum.wire.codec import Header
from netsum.wire.schema import SWITCH_SOURCE, Lane, Status

from tests.model.state import ID_MASK
from tests.protocol.star import SWITCH_IP, SWITCH_MAC
from tests.system.fuzz.expect import CHANGES, Expectation, Verdict
from tests.system.fuzz.mutate import DAMAGE, FIELDS, FORGERIES, Draft, Rng
from tests.system.fuzz.site import BLOCKS, JOBS, LIVE, PORTS, frame, result_frame, station
from tests.system.fuzz.targets import Packet, counted

_MAX_FRAME: Final = 9000
_VLAN_TYPES: Final = (b"\x81\x00", b"\x88\xa8")
_SHORTEST_TAGGED: Final = 20
"""A kernel drops frames that have a VLAN tag and fewer than two bytes behind it."""


class Batch(NamedTuple):
    """``left_out``: packets that were replaced because a block was waiting for them."""

    number: int
    packets: list[Packet]
    verdicts: list[Verdict]
    left_out: int

    def counts(self) -> Counter[str]:
        """Counts that the switch should have, by counter."""
        judged = zip(self.packets, self.verdicts, strict=True)
        return Counter(counter for (port, _), verdict in judged for counter in counted(port, verdict))


def _templates() -> list[Packet]:
    """Every member's contributions to every block, late and repeated ones, and more often those that are waited for; and
    header-only ones that open a block or look like the controller's scans."""
    found = [
        (block.job.members[member].port, block.contribution(member))
        for block in BLOCKS
        for member in range(len(block.job.members))
        for _ in range(1 if member in block.sent else 4)
    ]
    for job_id, job in JOBS.items():
        member = job.members[0]
        # Contributions to blocks whose slots are empty, and those that open them.
        header = Header(job_id, (job.first_block_id + 7) & ID_MASK, gen_id=1007, lane=Lane.L32, status=Status.OK)
        found.append((member.port, frame(member, header)))
        found.append((member.port, frame(member, header._replace(block_id=0, gen_id=0))))
    for block in BLOCKS:
        found += [(up.port, block.from_parent()) for up in block.job.uplinks] * 8
    return found


_TEMPLATES: Final = _templates()
_SMALL: Final = [packet for packet in _TEMPLATES if len(packet[1]) < 1500]


def _outsider(rng: Rng) -> Draft:
    """A contribution with one to three changes."""
    port, data = rng.choice(_SMALL if rng.random() < 0.85 else _TEMPLATES)
    draft = Draft(port, data)
    tricks = rng.choice((1, 1, 1, 1, 2, 2, 3))
    damages = rng.choice((0, 0, 0, 1)) if tricks < 3 else 0
    for _ in range(tricks - damages):
        rng.choice(FIELDS)(rng, draft)
    draft.finish()
    for _ in range(damages):
        rng.choice(DAMAGE)(rng, draft)
    return draft


def _late(rng: Rng) -> Draft:
    """A contribution that came before: repeated, late, or to a recycled block."""
    return Draft(*rng.choice(_TEMPLATES))


def _noise(rng: Rng) -> Draft:
    """Random bytes, with or without the start of a frame."""
    start = rng.choice((b"", _TEMPLATES[0][1][:14], _TEMPLATES[0][1][:34], _TEMPLATES[0][1][:42]))
    return Draft(rng.choice(PORTS), start + rng.randbytes(rng.choice((0, 1, 13, 14, 28, 60, 128, 1000, 1500))))


def _forged(rng: Rng) -> Draft:
    """A forged result to the member that waits for it: whole, in fragments, or with options."""
    block = rng.choice(LIVE)
    member = rng.choice(block.job.members)
    header = Header(
        block.job_id, block.block_id, src_id=SWITCH_SOURCE, receiver_id=member.src_id, worker_cnt=len(block.job.members),
        gen_id=1000 + block.offset, op=block.op, lane=block.lane, lane_cnt=256 >> block.lane, data_cnt=1,
    )  # fmt: skip
    draft = Draft(rng.choice(PORTS), result_frame(member, header, rng.randbytes(256)))
    for trick in rng.choice(((), (), (), FORGERIES)):
        trick(rng, draft)
    draft.finish()
    if rng.random() < 0.2:
        rng.choice(DAMAGE)(rng, draft)
    return draft


def _arp(rng: Rng) -> Draft:
    """ARP for the switch's address and for others, with anything in the other fields, whole or truncated."""
    port = rng.choice(PORTS)
    operation = rng.choice((1, 1, 1, 2, 0, 8, rng.getrandbits(16)))
    head = rng.choice((b"\0\1\x08\0\6\4", rng.randbytes(6))) + operation.to_bytes(2, "big")
    claimed = rng.choice((station(port).ip, 0, station(1).ip, SWITCH_IP))
    sender = station(port).mac.to_bytes(6, "big") + claimed.to_bytes(4, "big")
    wanted = rng.choice((SWITCH_IP, SWITCH_IP, 0, station(1).ip, rng.getrandbits(32)))
    body = head + sender + rng.randbytes(6) + wanted.to_bytes(4, "big") + bytes(rng.choice((0, 18, 500)))
    to = rng.choice((0xFFFFFFFFFFFF, SWITCH_MAC, station(2).mac))
    ethernet = to.to_bytes(6, "big") + sender[:6] + b"\x08\x06"
    return Draft(port, (ethernet + body)[: rng.choice((9000, 9000, rng.randrange(60)))])


_MAKERS: Final[tuple[Callable[[Rng], Draft], ...]] = (_outsider, _late, _noise, _arp, _forged)
_WEIGHTS: Final = (85, 3, 5, 4, 3)


def make_batch(expectation: Expectation, seed: int, number: int, size: int, shortest: int = 0) -> Batch:
    """Batch ``number`` of a seed: ``size`` packets, none of which would change a block, or be dropped by wires whose frames have
    at least ``shortest`` bytes."""
    rng = random.Random(f"{seed}/{number}")
    packets: list[Packet] = []
    verdicts: list[Verdict] = []
    left_out = 0
    while len(packets) < size:
        draft = rng.choices(_MAKERS, _WEIGHTS)[0](rng)
        data = bytes(draft.frame[:_MAX_FRAME])
        if len(data) < shortest or (shortest and data[12:14] in _VLAN_TYPES and len(data) < _SHORTEST_TAGGED):
            continue
        verdict = expectation.judge(draft.port, data)
        if verdict.fate in CHANGES:
            left_out += 1
            continue
        packets.append((draft.port, data))
        verdicts.append(verdict)
    return Batch(number, packets, verdicts, left_out)
