# SPDX-License-Identifier: MIT
"""Model of the switch's treatment of a frame, byte for byte: L2 forwarding, ARP, and :class:`SwitchModel` in between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from netsum.wire.codec import pack_header
from netsum.wire.memory import MEMORY_HEADER_BYTES, MEMORY_PORT
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS, SWITCH_SOURCE, UDP_PORT, Hop, Outcome

from tests.model.admission import admission
from tests.model.rules import Job, Packet, Reply, SwitchModel, malformed
from tests.protocol import star
from tests.protocol.frames import (
    CE,
    ETHERNET,
    IPV4,
    TAGS,
    TYPE_ARP,
    TYPE_IPV4,
    UDP,
    Datagram,
    arp,
    chunk_bytes,
    chunks_of,
    internet_checksum,
    udp_checksum,
)

Sent = list[tuple[int, bytes]]
"""(port, frame) of what leaves, in no order."""


@dataclass
class FrameModel:
    """A switch with the star's tables. :meth:`process` takes a frame and changes the state."""

    jobs: dict[int, Job] = field(default_factory=lambda: dict(star.JOBS))
    let_in: Counter[tuple[int, int, int]] = field(default_factory=Counter)  # by (job, source id, port)

    def __post_init__(self) -> None:
        self.switch = SwitchModel(dict(self.jobs))
        self._elsewhere = {star.neighbor(port).ip for port in star.PORTS}
        self._stations = {star.station(port).mac: port for port in star.PORTS}
        self._senders = star.senders()
        self.dropped: Counter[int] = Counter()  # by port
        self._places: dict[tuple[int, int], tuple[int, int]] = {}  # MAC and IP of members with keys, by (job, source id)

    def process(self, port: int, frame: bytes) -> Sent:
        """Frames that leave because of a frame."""
        ether_type = int.from_bytes(frame[12:14], "big")
        dropped, sender = ether_type in TAGS, 0
        if ether_type == TYPE_ARP and len(frame) >= ETHERNET + 28:
            if (frame[20:22], int.from_bytes(frame[38:42], "big")) == (b"\0\1", star.SWITCH_IP):
                return [(port, self._arp_reply(frame))]
            sender = int.from_bytes(frame[28:32], "big")
        elif ether_type == TYPE_IPV4 and len(frame) >= ETHERNET + IPV4:
            sender = int.from_bytes(frame[26:30], "big")
            if self.has_netsum(frame):
                to = Datagram.parse(frame).ip_dst
                if to == star.SWITCH_IP:
                    return self._contribution(port, frame)
                dropped = to in self._elsewhere  # hosts send to their own switch
            elif self.has_memory(frame):
                dropped = True  # there is no memory device
        if dropped or port not in self._senders.get(sender, star.PORTS):
            self.dropped[port] += 1
            return []
        return self._forward(port, frame)

    def _forward(self, port: int, frame: bytes) -> Sent:
        to = self._stations.get(int.from_bytes(frame[:6], "big"))
        return [(to, frame)] if to else [(each, frame) for each in star.PORTS if each != port]

    def _arp_reply(self, frame: bytes) -> bytes:
        asker = int.from_bytes(frame[22:28], "big"), int.from_bytes(frame[28:32], "big")
        return arp(2, (star.SWITCH_MAC, star.SWITCH_IP), asker, asker[0]) + frame[42:]

    @staticmethod
    def has_netsum(frame: bytes) -> bool:
        """True if there is a netsum header, well formed or not."""
        if len(frame) < ETHERNET + IPV4 + UDP + HEADER_BYTES or frame[ETHERNET] != 0x45:
            return False
        datagram = Datagram.parse(frame)
        whole = datagram.fragment & 0x3FFF == 0
        return whole and (datagram.protocol, datagram.udp_dst) == (17, UDP_PORT)

    @staticmethod
    def has_memory(frame: bytes) -> bool:
        """True if there is a header of memory's: to its port, or from it."""
        if len(frame) < ETHERNET + IPV4 + UDP + MEMORY_HEADER_BYTES or frame[ETHERNET] != 0x45:
            return False
        datagram = Datagram.parse(frame)
        whole = datagram.fragment & 0x3FFF == 0 and datagram.protocol == 17
        ports = datagram.udp_src, datagram.udp_dst
        return whole and MEMORY_PORT in ports and datagram.udp_dst != UDP_PORT

    def _contribution(self, port: int, frame: bytes) -> Sent:
        datagram = Datagram.parse(frame)
        body = frame[ETHERNET + IPV4 + UDP :]
        header = datagram.but(body=body).header
        outcome = self._malformed(frame, datagram, body)
        if outcome is not None:
            key = (header.job_id, outcome)
            self.switch.outcomes[key] = self.switch.outcomes.get(key, 0) + 1
            return []
        room = datagram.udp_length - UDP - HEADER_BYTES
        payload = chunks_of(body[HEADER_BYTES : HEADER_BYTES + room])
        packet = Packet(port, datagram.udp_src, header, payload, int(datagram.congested))
        job = self.switch.jobs.get(header.job_id)
        if job and not malformed(packet) and job.member_at(header.src_id, port):
            self.let_in[header.job_id, header.src_id, port] += 1
        if admission(packet, job) is None:
            self._places[header.job_id, header.src_id] = datagram.eth_src, datagram.ip_src
        step = self.switch.step(packet, old=job is not None and is_old(job))
        trailer = body[HEADER_BYTES + room :]
        return [(reply.port, self._reply(datagram, reply) + trailer) for reply in step.replies]

    def scan(self, frame: bytes) -> tuple[int, Sent]:
        """A scan with this frame: how many blocks it closes, and what leaves."""
        datagram = Datagram.parse(frame)
        job = self.switch.jobs.get(datagram.header.job_id)
        scanned = self.switch.scan(datagram.header.job_id, old=job is not None and is_old(job))
        return scanned.closed, [(reply.port, self._reply(datagram, reply)) for reply in scanned.replies]

    def change(self, job_id: int, job: Job) -> None:
        """The controller changes a job's entries; a member that is gone is no longer counted."""
        self.switch.jobs[job_id] = job
        there = {(m.src_id, m.port) for m in job.members}
        self.let_in = Counter({key: n for key, n in self.let_in.items() if key[0] != job_id or key[1:] in there})

    @staticmethod
    def _malformed(frame: bytes, datagram: Datagram, body: bytes) -> Outcome | None:
        """Faults around the header; the header itself is for the rules. Checksums come first."""
        if internet_checksum(frame[ETHERNET : ETHERNET + IPV4]) != 0:
            return Outcome.CHECKSUM
        if datagram.udp_checksum not in (0, 0xFFFF):
            at = ETHERNET + IPV4
            zeroed = frame[at : at + 6] + b"\0\0" + body
            if udp_checksum(datagram.ip_src, datagram.ip_dst, zeroed) != datagram.udp_checksum:
                return Outcome.CHECKSUM
        room = datagram.udp_length - UDP - HEADER_BYTES
        if (
            datagram.total_length != datagram.udp_length + IPV4
            or room % CHUNK_BYTES
            or not 0 <= room <= MAX_CHUNKS * CHUNK_BYTES
            or len(body) < HEADER_BYTES + room
        ):
            return Outcome.MALFORMED
        return None

    def _reply(self, asked: Datagram, reply: Reply) -> bytes:
        h, body = reply.header, pack_header(reply.header) + chunk_bytes(reply.payload)
        to = (star.station if h.hop == Hop.HOST else star.neighbor)(reply.port)
        unicast = reply.replica is None and h.hop != Hop.UP
        mac, ip = (asked.eth_src, asked.ip_src) if unicast else (to.mac, to.ip)
        if reply.replica == SWITCH_SOURCE:
            mac, ip = star.GROUP.mac, star.GROUP.ip
        elif h.key and not unicast:
            mac, ip = self._places[h.job_id, h.receiver_id]
        ports = (UDP_PORT, reply.udp_port) if h.hop == Hop.HOST else (reply.udp_port, UDP_PORT)
        return Datagram(
            mac, star.SWITCH_MAC, star.SWITCH_IP, ip, *ports, body,
            tos=asked.tos | (CE if reply.congested else 0), identification=asked.identification, fragment=asked.fragment,
        ).to_bytes()  # fmt: skip

    def record_of(self, slot: int) -> dict[str, int]:
        """The record of a slot as a query brings it, but for the time and what no rule reads."""
        record = self.switch.records.get(slot)
        if record is None:
            return dict.fromkeys(COMPARED, 0)
        return {name: int(getattr(record, name)) for name in COMPARED}


COMPARED = (
    "seen", "epoch", "block_id", "call_fingerprint", "gen_id", "dest", "op", "lane", "lane_cnt", "worker_cnt", "data_cnt",
    "status", "state", "fingerprinted", "degraded", "chunks", "no_aging", "congested",
)  # fmt: skip
"""Fields of a record that the model has: all but the time."""

NEVER = 0xFFFFFFFF
"""A ``block_exp`` that no block of a test reaches: 71 minutes. Any other that is not 0 is so short that every block is older
when the next packet comes."""


def is_old(job: Job) -> bool:
    """True if the job's open blocks are old enough to be closed."""
    return 0 < job.block_exp < NEVER


def without_padding(sent: Sent) -> Sent:
    """The frames in order, with zeros for what an empty contribution is padded with: it means nothing."""
    return sorted((port, _blank(frame)) for port, frame in sent)


def _blank(frame: bytes) -> bytes:
    if not FrameModel.has_netsum(frame):
        return frame
    datagram = Datagram.parse(frame)
    if datagram.header.hop != Hop.UP or datagram.header.lane_cnt:
        return frame
    begin, end = ETHERNET + IPV4 + UDP + HEADER_BYTES, ETHERNET + IPV4 + datagram.udp_length
    return frame[:begin] + bytes(end - begin) + frame[end:]
