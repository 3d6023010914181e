"""What the switch does with one frame while its blocks stay as they are: pure, and written from docs/protocol.md and the
standards rather than from the P4 program, with which it is compared packet by packet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from netsum.frames import ETHERNET_BYTES, IPV4_BYTES, PREFIX_BYTES
from netsum.wire.codec import Header, parse_header
from netsum.wire.schema import (
    CHUNK_BYTES,
    HEADER_BYTES,
    MAX_CHUNKS,
    UDP_PORT,
    VERSION,
    BlockState,
    Hop,
    Lane,
    Op,
    Outcome,
    Status,
)

from netsum_trials.strangers.blocks import SUSPECTS
from netsum_trials.strangers.site import JOBS, PARENT_IP, PORTS, SWITCH_IP, Job, Member, senders, station_mac

FORWARDED: Final = "forwarded"
ARP: Final = "arp"
FORGED: Final = "forged"

_ARP_BYTES = ETHERNET_BYTES + 28
_MAX_PAYLOAD = CHUNK_BYTES * MAX_CHUNKS
_OVERHEAD = 8 + HEADER_BYTES  # UDP and netsum headers
_SWITCH_IP = SWITCH_IP.to_bytes(4, "big")
_PARENT_IP = PARENT_IP.to_bytes(4, "big")
_STATIONS = {station_mac(port).to_bytes(6, "big"): port for port in PORTS}
_SENDERS = {address.to_bytes(4, "big"): ports for address, ports in senders().items()}
_TAGS = b"\x81\x00", b"\x88\xa8"
_UDP_PORT = UDP_PORT.to_bytes(2, "big")
_SUPPORTED = frozenset(Op)
_TOLD = frozenset({Outcome.STALE, Outcome.REPLAYED, *range(Outcome.UNKNOWN_JOB, Outcome.UNSUPPORTED + 1)})
_FLOODS = {port: tuple(other for other in PORTS if other != port) for port in PORTS}

Record = Mapping[str, int]
"""A block record by the schema's field names."""


class Verdict(NamedTuple):
    """``fate``: an outcome, FORWARDED, ARP, or FORGED (claims to come from somebody who is not there, or from one switch to
    another, and is dropped); ``egress``: the ports that something leaves on; ``let_in``: the member that the sender passed
    for; ``job_id``: where the outcome is counted."""

    fate: Outcome | str
    egress: tuple[int, ...] = ()
    let_in: Member | None = None
    job_id: int = 0

    @property
    def is_answer(self) -> bool:
        """What leaves is made by the switch: an answer, not somebody's frame on its way."""
        return self.fate != FORWARDED and bool(self.egress)


CHANGES: Final = frozenset({Outcome.ACCEPTED, Outcome.COMPLETED, Outcome.AGED, Outcome.RETURNED})
"""Fates of packets that are no strangers': they would change a block, or show that a suspect is alive; the fuzzer leaves
them out. (So a suspect's AGED may be a DUPLICATE and more.)"""


def checksum_of(data: bytes) -> int:
    """RFC 1071: the complement of the ones' complement sum of the 16-bit words. ``data`` has an even length."""
    return 0xFFFF - (int.from_bytes(data, "big") % 0xFFFF or 0xFFFF * any(data))


def udp_checksum_of(frame: bytes) -> int:
    """What the UDP checksum of this frame would have to be, over all that follows the IPv4 header."""
    rest = frame[PREFIX_BYTES:] + b"\0" * (len(frame) % 2)
    return checksum_of(frame[26:34] + b"\0\x11" + frame[38:40] + frame[34:40] + rest)


class Expectation:
    """Of a switch with the site's entries whose slots hold ``records``."""

    def __init__(self, records: Mapping[int, Record]) -> None:
        self._records = dict(records)

    def judge(self, port: int, frame: bytes) -> Verdict:
        """The fate of a frame on a port."""
        kind, sender = frame[12:14], b""
        if kind in _TAGS:
            return Verdict(FORGED)
        if kind == b"\x08\x00" and len(frame) >= ETHERNET_BYTES + IPV4_BYTES:
            sender = frame[26:30]
            if _is_netsum(frame) and frame[30:34] == _SWITCH_IP:
                return self._contribution(port, frame)
            if _is_netsum(frame) and frame[30:34] == _PARENT_IP:
                return Verdict(FORGED)
        elif kind == b"\x08\x06" and len(frame) >= _ARP_BYTES:
            sender = frame[28:32]
            if frame[20:22] == b"\0\1" and frame[38:42] == _SWITCH_IP:
                return Verdict(ARP, (port,))
        if port not in _SENDERS.get(sender, PORTS):
            return Verdict(FORGED)
        to = _STATIONS.get(frame[:6]) if len(frame) >= ETHERNET_BYTES else None
        return Verdict(FORWARDED, _FLOODS[port] if to is None else (to,))

    def _contribution(self, port: int, frame: bytes) -> Verdict:
        h = parse_header(frame[PREFIX_BYTES : PREFIX_BYTES + HEADER_BYTES])
        fate, member = self._refused(port, frame, h)
        if fate is None and member is JOBS[h.job_id].parent:
            fate = self._from_parent(JOBS[h.job_id], h)
        elif fate is None and member is not None:
            fate = Outcome.AGED if member in SUSPECTS.get(h.job_id, ()) else self._at_block(JOBS[h.job_id], member, h)
        assert fate is not None, "a packet without a fate"
        parent = JOBS[h.job_id].parent if h.job_id in JOBS else None
        let_in = None if member is not None and member is parent else member
        egress = (port,) if fate in _TOLD and h.hop != Hop.DOWN else ()
        if fate == Outcome.ASKED and parent is not None:
            egress = (parent.port,)
        return Verdict(fate, egress, let_in, h.job_id)

    @staticmethod
    def _refused(port: int, frame: bytes, h: Header) -> tuple[Outcome | None, Member | None]:
        """Why a packet does not come as far as a block, or None; and as whom it was let in."""
        wrong = _wrong_checksum(frame) or _malformed(frame, h)
        if wrong is not None:
            return wrong, None
        job = JOBS.get(h.job_id)
        if job is None:
            return Outcome.UNKNOWN_JOB, None
        there = (*job.members, job.parent) if job.parent else job.members
        member = next((each for each in there if (each.src_id, each.port) == (h.src_id, port)), None)
        if member is None:
            return Outcome.NOT_MEMBER, None
        if frame[34:36] != member.udp_port.to_bytes(2, "big"):
            return Outcome.WRONG_PORT, member
        if (member is job.parent) != (h.hop == Hop.DOWN):
            return Outcome.MALFORMED, member
        if member is job.parent:
            known = h.status <= Status.MISMATCH or Status.STALE <= h.status <= Status.AGAIN
            return None if known else Outcome.MALFORMED, member
        if h.src_cnt > 1 or (h.src_cnt < 1) != bool(h.degraded):
            return Outcome.MALFORMED, member
        return None, member

    def _from_parent(self, job: Job, h: Header) -> Outcome:
        """A result is taken by an open block; nobody waits for anything else, no partial being on its way."""
        record = self._records.get(job.slot_of(h.block_id))
        notice = h.status == Status.OK and h.data_cnt and not h.grad_cnt
        if record is None or record["epoch"] != job.epoch or record["state"] != BlockState.OPEN:
            return Outcome.IGNORED
        taken = record["block_id"] == h.block_id and h.status <= Status.MISMATCH and not notice
        return Outcome.RETURNED if taken else Outcome.IGNORED

    def _at_block(self, job: Job, member: Member, h: Header) -> Outcome:
        """By the slot: exactly one lap ahead of a closed block opens it, behind is stale, the rest is out of window."""
        record = self._records.get(job.slot_of(h.block_id))
        state, held = BlockState.EMPTY, 0
        if record is not None and record["epoch"] == job.epoch and record["state"] != BlockState.EMPTY:
            state, held = BlockState(record["state"]), record["block_id"]
        else:
            held = job.first_block_id - job.slots + ((h.block_id - job.first_block_id) & (job.slots - 1))
        delta = (h.block_id - held) & 0xFFFFFFFF
        if delta == 0 and record is not None and state == BlockState.OPEN:
            if record["seen"] & member.source:
                return Outcome.AGED if _may_close(job, record) else Outcome.DUPLICATE
            return _joins(record, h)
        if delta == 0:
            return Outcome.REPLAYED if state == BlockState.DONE else Outcome.STALE
        if delta >> 31:
            return Outcome.STALE
        if delta != job.slots or state == BlockState.OPEN:
            return Outcome.WINDOW
        return _joins(None, h)


def _is_netsum(frame: bytes) -> bool:
    """Of an IPv4 frame: with a netsum header, whatever that says, and whoever it is for."""
    return (
        len(frame) >= PREFIX_BYTES + HEADER_BYTES
        and frame[14] == 0x45
        and (frame[20] & 0x3F, frame[21]) == (0, 0)
        and frame[23] == 17
        and frame[36:38] == _UDP_PORT
    )


def _wrong_checksum(frame: bytes) -> Outcome | None:
    start, end = ETHERNET_BYTES, ETHERNET_BYTES + IPV4_BYTES
    if checksum_of(frame[start : start + 10] + frame[start + 12 : end]) != frame[24] << 8 | frame[25]:
        return Outcome.CHECKSUM
    given = frame[40] << 8 | frame[41]
    if given not in (0, 0xFFFF) and udp_checksum_of(frame) != given:
        return Outcome.CHECKSUM
    return None


def _malformed(frame: bytes, h: Header) -> Outcome | None:
    """Lengths, version, counts and status."""
    udp_length = frame[38] << 8 | frame[39]
    room = udp_length - _OVERHEAD
    if (
        room % CHUNK_BYTES
        or not 0 <= room <= _MAX_PAYLOAD
        or len(frame) < PREFIX_BYTES + HEADER_BYTES + room
        or (frame[16] << 8 | frame[17]) != udp_length + IPV4_BYTES
        or h.version != VERSION
        or h.lane > Lane.L64
        or (h.grad_cnt and room != h.payload_bytes)
        or (h.status and h.grad_cnt)
        or (h.hop != Hop.DOWN and _no_contribution(h))
    ):
        return Outcome.MALFORMED
    return None


def _no_contribution(h: Header) -> bool:
    return (
        h.hop > Hop.DOWN
        or h.age_op != 0
        or h.give_way != 0
        or h.status > Status.MISMATCH
        or h.data_cnt > h.src_cnt
        or (h.data_cnt == 0) != (h.grad_cnt == 0)
    )


def _may_close(job: Job, record: Record) -> bool:
    """Whether a repetition may find the block old enough; whether it is, the clock knows."""
    return bool(job.block_exp) and not record["firm"] and record["src_cnt"] >= job.quorum


def _joins(record: Record | None, h: Header) -> Outcome:
    """Of what would be added: a child switch may only have asked."""
    if h.hop == Hop.UP and h.final:
        return Outcome.ASKED
    return _disagreement(record, h) or Outcome.ACCEPTED


def _disagreement(record: Record | None, h: Header) -> Outcome | None:
    """Why the packet does not go with the block; ``record`` None: it would be the first."""
    if h.status >= Status.ABORT:
        return None
    if h.op not in _SUPPORTED:
        return Outcome.UNSUPPORTED
    if record is None:
        return None
    if record["signed"] and any(record[name] != getattr(h, name) for name in ("gen_id", "dest", "op", "lane")):
        return Outcome.SIGNATURE
    if h.grad_cnt and record["data_cnt"] and (h.grad_cnt != record["grad_cnt"] or h.op == Op.COPY):
        return Outcome.SIGNATURE
    return None
