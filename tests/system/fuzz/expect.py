# SPDX-License-Identifier: MIT
"""Predicts what the switch does with a frame while its blocks do not change; pure, and compared with the switch for every packet.

The rules for frames are here, written from PROTOCOL.md and the standards rather than from the P4 program; blocks
are decided by the model in ``tests/model``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from netsum.frames import ETHERNET_BYTES, IPV4_BYTES, PREFIX_BYTES
from netsum.wire.codec import parse_header
from netsum.wire.memory import MEMORY_HEADER_BYTES, MEMORY_PORT
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS, UDP_PORT, BlockState, Outcome

from tests.model import rules as model
from tests.model.admission import admission, malformed
from tests.model.state import Member, Packet, Progress
from tests.model.state import Record as ModelRecord
from tests.protocol.star import SWITCH_IP
from tests.system.fuzz.site import JOBS, PARENT, PORTS, STRAGGLERS, senders, station
from tests.system.fuzz.site import frame as home_frame

FORWARDED: Final = "forwarded"
ARP: Final = "arp"
FORGED: Final = "forged"
MOVED: Final = "moved"

_ARP_BYTES = ETHERNET_BYTES + 28
_MAX_PAYLOAD = CHUNK_BYTES * MAX_CHUNKS
_OVERHEAD = 8 + HEADER_BYTES  # UDP and netsum headers
_SWITCH_IP = SWITCH_IP.to_bytes(4, "big")
_PARENT_IP = PARENT.ip.to_bytes(4, "big")
_STATIONS = {station(port).mac.to_bytes(6, "big"): port for port in PORTS}
_SENDERS = {address.to_bytes(4, "big"): ports for address, ports in senders().items()}
_TAGS = b"\x81\x00", b"\x88\xa8"
_UDP_PORT = UDP_PORT.to_bytes(2, "big")
_MEMORY_PORT = MEMORY_PORT.to_bytes(2, "big")
_ZEROS = (0,) * MAX_CHUNKS  # the payload's contents decide nothing
_FLOODS = {port: tuple(other for other in PORTS if other != port) for port in PORTS}

Record = Mapping[str, int]
"""A block record by the schema's field names."""


class Verdict(NamedTuple):
    """``fate``: an outcome, FORWARDED, ARP, FORGED (dropped, because it claims to come from an address that is not behind
    its port, or from one switch to another), or MOVED (with a member's key, from an address that the member had not);
    ``egress``: the ports on which something leaves; ``let_in``: the member that the sender passed for; ``job_id``: where the
    outcome is counted."""

    fate: Outcome | str
    egress: tuple[int, ...] = ()
    let_in: Member | None = None
    job_id: int = 0

    @property
    def is_answer(self) -> bool:
        """True if what leaves is made by the switch: an answer, not a forwarded frame."""
        return self.fate != FORWARDED and bool(self.egress)


_FRONTIERS: Final = {
    job_id: Progress(sum(member.source for member in stragglers), JOBS[job_id].epoch) for job_id, stragglers in STRAGGLERS.items()
}

CHANGES: Final = model.CHANGES | {Outcome.COMPLETED, Outcome.PARENT_RESULT, Outcome.PARENT_STATUS, MOVED}
"""Fates of packets that the fuzzer leaves out because they would change a block or a member's address, or show that a
straggler is alive. (So a straggler's AGED may be a DUPLICATE and more.)"""


def checksum_of(data: bytes) -> int:
    """RFC 1071: the complement of the ones' complement sum of the 16-bit words. ``data`` has an even length."""
    return 0xFFFF - (int.from_bytes(data, "big") % 0xFFFF or 0xFFFF * any(data))


def udp_checksum_of(frame: bytes) -> int:
    """The right UDP checksum of this frame, over all that follows the IPv4 header."""
    rest = frame[PREFIX_BYTES:] + b"\0" * (len(frame) % 2)
    return checksum_of(frame[26:34] + b"\0\x11" + frame[38:40] + frame[34:40] + rest)


def _record_of(fields: Record) -> ModelRecord:
    known = {name: fields[name] for name in ModelRecord._fields if name in fields}
    buffer = (0,) * (fields["lane_cnt"] and MAX_CHUNKS)
    return ModelRecord(**known | {"state": BlockState(fields["state"])}, buffer=buffer)  # type: ignore[arg-type]


class Expectation:
    """Predicts what a switch does with the site's entries whose slots hold ``records``."""

    def __init__(self, records: Mapping[int, Record]) -> None:
        self._records = {slot: _record_of(fields) for slot, fields in records.items()}

    def judge(self, port: int, frame: bytes) -> Verdict:
        """The fate of a frame on a port."""
        kind, sender = frame[12:14], b""
        if kind in _TAGS:
            return Verdict(FORGED)
        if kind == b"\x08\x00" and len(frame) >= ETHERNET_BYTES + IPV4_BYTES:
            sender = frame[26:30]
            if _is_netsum(frame) and frame[30:34] == _SWITCH_IP:
                return self._contribution(port, frame)
            if (_is_netsum(frame) and frame[30:34] == _PARENT_IP) or _is_memory(frame):
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
        wrong = _wrong_checksum(frame) or _wrong_lengths(frame)
        if wrong is not None:
            return Verdict(wrong, job_id=h.job_id)
        room = (frame[38] << 8 | frame[39]) - _OVERHEAD
        packet = Packet(port, frame[34] << 8 | frame[35], h, _ZEROS[: room // CHUNK_BYTES])
        let_in = None
        if h.job_id in JOBS and not malformed(packet):
            let_in = JOBS[h.job_id].member_at(h.src_id, port)
        if let_in is not None and admission(packet, JOBS[h.job_id]) is None:
            if let_in in STRAGGLERS.get(h.job_id, ()):
                return Verdict(Outcome.AGED, (), let_in, h.job_id)
            if let_in.key and _source(frame) != _source(home_frame(let_in, h)):
                return Verdict(MOVED, (), let_in, h.job_id)
        switch = model.SwitchModel(JOBS, dict(self._records), job_progress=dict(_FRONTIERS))
        step = switch.step(packet, old=True)
        return Verdict(step.outcome, tuple(reply.port for reply in step.replies), let_in, h.job_id)


def _source(frame: bytes) -> tuple[bytes, bytes, bytes]:
    """MAC and IPv4 address and UDP port from which a frame says that it comes."""
    return frame[6:12], frame[26:30], frame[34:36]


def _is_whole_udp(frame: bytes, header: int) -> bool:
    """True if an IPv4 frame without options, and in one piece, has UDP and room for so many bytes of a header."""
    whole = frame[14] == 0x45 and (frame[20] & 0x3F, frame[21]) == (0, 0)
    return len(frame) >= PREFIX_BYTES + header and whole and frame[23] == 17


def _is_netsum(frame: bytes) -> bool:
    """True if an IPv4 frame has a netsum header, whatever it says and wherever it goes."""
    return _is_whole_udp(frame, HEADER_BYTES) and frame[36:38] == _UDP_PORT


def _is_memory(frame: bytes) -> bool:
    """True if it has memory's, on the way to or from a device. There are none here."""
    ports = frame[34:36], frame[36:38]
    return _is_whole_udp(frame, MEMORY_HEADER_BYTES) and _MEMORY_PORT in ports and ports[1] != _UDP_PORT


def _wrong_checksum(frame: bytes) -> Outcome | None:
    start, end = ETHERNET_BYTES, ETHERNET_BYTES + IPV4_BYTES
    if checksum_of(frame[start : start + 10] + frame[start + 12 : end]) != frame[24] << 8 | frame[25]:
        return Outcome.CHECKSUM
    given = frame[40] << 8 | frame[41]
    if given not in (0, 0xFFFF) and udp_checksum_of(frame) != given:
        return Outcome.CHECKSUM
    return None


def _wrong_lengths(frame: bytes) -> Outcome | None:
    udp_length = frame[38] << 8 | frame[39]
    room = udp_length - _OVERHEAD
    if (
        room % CHUNK_BYTES
        or not 0 <= room <= _MAX_PAYLOAD
        or len(frame) < PREFIX_BYTES + HEADER_BYTES + room
        or (frame[16] << 8 | frame[17]) != udp_length + IPV4_BYTES
    ):
        return Outcome.MALFORMED
    return None
