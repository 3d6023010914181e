# SPDX-License-Identifier: MIT
"""Sequences of frames from a seed: members' traffic with all its accidents, garbage and other people's frames."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from netsum.wire.codec import Header
from netsum.wire.memory import MEMORY_PORT
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, MAX_CHUNKS, UDP_PORT, BlockState, Lane, Op, Status

from tests.model.rules import Payload
from tests.protocol import star
from tests.protocol.frame_model import NEVER, FrameModel
from tests.protocol.frames import RIGHT, Datagram, arp, netsum_body
from tests.protocol.replay import Change, Event, Scan, Step, follow

OPS = (Op.SUM, Op.SUM, *Op, Op.COPY)


def random_payload(rng: random.Random, chunks: int) -> Payload:
    return tuple(rng.getrandbits(CHUNK_BYTES * 8) for _ in range(chunks))


def lanes_in(chunks: int, lane: int) -> int:
    """``lane_cnt`` of a payload of so many chunks."""
    return chunks * CHUNK_BYTES >> lane


class Traffic:
    """Random steps around the blocks where the jobs are: most packets are in turn, many are late, early or wrong. A model
    of its own tells it how far the jobs have come."""

    jobs: tuple[int, ...] = (star.TRIO, star.TRIO, star.PAIR, star.LATE, star.LATE, star.KEYED, star.KEYED)
    changing = star.LATE
    scanned: tuple[int, ...] = (star.TRIO, star.PAIR, star.TOP, star.LEAF, star.KEYED, star.LATE, 77)

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._model = FrameModel()
        self._next = {job_id: job.first_block_id for job_id, job in star.JOBS.items()}
        self._calls: dict[tuple[int, int], Header] = {}
        self._chunks: dict[tuple[int, int], int] = {}

    def steps(self, count: int) -> Iterator[Event]:
        """That many frames, scans and changes of the job whose blocks age out."""
        kinds = self._kinds()
        for _ in range(count):
            event = self._rng.choices(list(kinds), list(kinds.values()))[0]()
            follow(self._model, event)
            yield event

    def _kinds(self) -> dict[Callable[[], Event], float]:
        """The possible steps, with weights."""
        return {self._contribution: 16, self._broken: 3, self._foreign: 1, self._scan: 1, self._change: 0.5}

    def _scan(self) -> Scan:
        return Scan(self._rng.choice((self.changing, self.changing, *self.scanned)))

    def _change(self) -> Change:
        """Blocks age at once, in an hour, or never; one member is evicted, or is there again."""
        job = star.JOBS[self.changing]
        members = tuple(self._rng.sample(job.members, 2)) if self._rng.random() < 0.3 else job.members
        quorum = self._rng.randint(1, 4) if job.quorum else 0
        block_exp = self._rng.choice((0, 1, 1, NEVER))
        return Change(self.changing, job._replace(block_exp=block_exp, quorum=quorum, members=members))

    def _block(self, job_id: int) -> int:
        """The job's first unfinished block."""
        job = self._model.switch.jobs[job_id]
        while True:
            block_id = self._next[job_id]
            record = self._model.switch.records.get(job.slot_of(block_id))
            if record is None or record.block_id != block_id or record.state not in (BlockState.DONE, BlockState.DEAD):
                return block_id
            self._next[job_id] = (block_id + 1) & 0xFFFFFFFF

    def _call_of(self, job_id: int, block_id: int) -> Header:
        """The parameters that the block's members have agreed on."""
        key = job_id, block_id
        if key not in self._calls:
            rng = self._rng
            self._chunks[key] = rng.choice((1, 2, 3, rng.randint(1, MAX_CHUNKS)))
            gen_id = rng.getrandbits(16)
            self._calls[key] = Header(
                job_id,
                block_id,
                gen_id=gen_id,
                call_fingerprint=(gen_id << 40 | gen_id) * (gen_id & 1),
                op=rng.choice(OPS),
                lane=rng.choice(list(Lane)),
                dest=rng.choice((EVERYONE, EVERYONE, 0, 1, 2)),
                final=rng.getrandbits(1),
                no_aging=int(rng.random() < 0.2),
            )
        return self._calls[key]

    def _about(self) -> tuple[int, int]:
        """A job, and a block near its first unfinished one."""
        job_id = self._rng.choice(self.jobs)
        lap = star.JOBS[job_id].slots
        return job_id, (self._block(job_id) + self._rng.choice((0, 0, 0, 0, 0, 0, 1, 1, -1, -lap, lap))) & 0xFFFFFFFF

    def _datagram(self) -> tuple[Datagram, int, str]:
        """A member's contribution, in turn or not, its port, and what is odd about it."""
        rng = self._rng
        job_id, block_id = self._about()
        job = star.JOBS[job_id]
        member = rng.choice(job.members)
        header = self._call_of(job_id, block_id)
        chunks = self._chunks[job_id, block_id]
        odd = rng.random()
        about = "in turn"
        if header.op == Op.COPY and member is not job.members[block_id % len(job.members)] and odd > 0.4:
            odd = 0.2  # one member has something to say
        worker_cnt = member.workers if rng.random() < 0.9 else rng.randrange(member.workers)
        degraded = worker_cnt < member.workers and not (member.switch and rng.random() < 0.3)
        query = int(member.switch and rng.random() < 0.1)
        header = header._replace(worker_cnt=worker_cnt, degraded=int(degraded), query=query)
        if odd < 0.25 or worker_cnt == 0:
            room = rng.choice((0, chunks, MAX_CHUNKS))
            payload, about = (0,) * room, f"empty, room for {room} chunks"
            if odd < 0.06:
                header = header._replace(status=rng.choice((Status.RANGE, Status.ABORT, Status.MISMATCH)))
                about = f"empty, {Status(header.status).name}"
        else:
            payload = random_payload(rng, chunks)
            header = header._replace(lane_cnt=lanes_in(chunks, header.lane), data_cnt=rng.randint(1, worker_cnt))
            if member.switch and header.op == Op.COPY and rng.random() < 0.6:
                ahead = rng.getrandbits(1)  # the payload alone, or what counts it
                header = header._replace(query=ahead, lane_cnt=header.lane_cnt * ahead)
                payload = payload if ahead else (0,) * rng.choice((0, 0, chunks))
        if 0.25 < odd < 0.35:
            other_op, other_block = rng.randrange(16), rng.getrandbits(32)
            wrong = {
                "call_fingerprint" if header.call_fingerprint else "gen_id": 1,
                "dest": 3,
                "op": other_op,
                "final": 1,
                "query": 1,
                "no_aging": 1,
                "block_id": other_block,
            }
            name, value = rng.choice(list(wrong.items()))
            header, about = header._replace(**{name: value}), f"{name} is {value}"
        datagram = star.contribution(job_id, member, header, payload).but(
            tos=rng.choice((0, 0, 8, 1, 2, 3, 11)), identification=rng.getrandbits(16), fragment=rng.choice((0, 0x4000))
        )
        if member.key and rng.random() < 0.3:
            elsewhere = star.station(rng.choice(star.PORTS))
            datagram = datagram.but(
                eth_src=elsewhere.mac, ip_src=rng.choice((elsewhere.ip, star.FAR_IP)), udp_src=rng.getrandbits(16)
            )
            about = f"{about}, from another address"
        elif rng.random() < 0.04:
            key = rng.choice((0, 1, member.key ^ 1 << rng.randrange(64), *(each.key for each in job.members)))
            datagram, about = datagram.but(body=netsum_body(datagram.header._replace(key=key), payload)), f"key {key:#x}"
        return datagram, member.port, about

    def _contribution(self) -> Step:
        datagram, port, about = self._datagram()
        if self._rng.random() < 0.05:
            datagram, about = datagram.but(udp_checksum=RIGHT), f"{about}, with a UDP checksum"
        if self._rng.random() < 0.05:
            datagram, about = datagram.but(trailer=bytes(self._rng.choice((2, 60)))), f"{about}, with a trailer"
        return Step(port, datagram.to_bytes(), about)

    def _broken(self) -> Step:
        """A contribution with one defect."""
        rng = self._rng
        datagram, port, _ = self._datagram()
        body = bytearray(datagram.body)
        kind = rng.randrange(8)
        if kind == 0:
            at = rng.randrange(16)
            body[at] ^= 1 << rng.randrange(8)
            return Step(port, datagram.but(body=bytes(body)).to_bytes(), f"bit flipped in header byte {at}")
        if kind == 1:
            length = rng.choice((0, 8, 23, 24, 25, 280, 281, 4120, 4376, 65535))
            return Step(port, datagram.but(udp_length=length).to_bytes(), f"UDP length {length}")
        if kind == 2:
            return Step(port, datagram.but(total_length=rng.randrange(65536)).to_bytes(), "IPv4 length")
        if kind == 3:
            return Step(port, datagram.but(ip_checksum=rng.randrange(65536)).to_bytes(), "IPv4 checksum")
        if kind == 4:
            return Step(port, datagram.but(udp_checksum=rng.randrange(1, 65535)).to_bytes(), "UDP checksum")
        if kind == 5:
            frame = datagram.to_bytes()
            return Step(port, frame[: rng.randrange(34, len(frame))], "cut short")
        if kind == 6:
            return Step(rng.choice(star.PORTS), datagram.to_bytes(), "perhaps on another port")
        return Step(port, datagram.but(udp_src=rng.choice((20001, 20002, 12000))).to_bytes(), "another UDP port")

    def _foreign(self) -> Step:
        """Not for the aggregator: forwarded or flooded as it is. Or ARP, for the aggregator or not."""
        rng = self._rng
        port = rng.choice(star.PORTS)
        at, to = star.station(port), star.station(rng.choice(star.PORTS))
        kind = rng.randrange(6)
        sender = rng.choice((at.ip, at.ip, at.ip, 0, *star.senders()))
        if kind == 0:
            target = rng.choice((star.SWITCH_IP, to.ip))
            return Step(port, arp(rng.choice((1, 2)), (at.mac, sender), (0, target), 0xFFFFFFFFFFFF), "ARP")
        body = rng.randbytes(rng.randrange(0, 1400))
        ports = rng.choice((rng.getrandbits(16), MEMORY_PORT)), rng.choice((53, UDP_PORT, MEMORY_PORT))
        datagram = Datagram(to.mac, at.mac, sender, to.ip, *ports, body)
        if kind == 1:
            datagram = datagram.but(eth_dst=0x3333FF000001)
        elif kind == 2:
            datagram = datagram.but(protocol=rng.choice((1, 6)))
        elif kind == 3:
            datagram = datagram.but(options=b"\1\1\1\0", version_ihl=0x46, ip_dst=star.SWITCH_IP, udp_dst=UDP_PORT)
        elif kind == 4:
            frame = datagram.to_bytes()
            return Step(port, frame[:12] + rng.choice((b"\x81\0\0\0", b"\x88\xa8\0\5")) + frame[12:], "with a VLAN tag")
        else:
            datagram = datagram.but(fragment=0x2000, ip_dst=star.SWITCH_IP, udp_dst=UDP_PORT)
        return Step(port, datagram.to_bytes(), "other people's")


class MulticastTraffic(Traffic):
    """Random steps of the job whose members have joined an IP multicast group."""

    jobs = (star.MULTICAST,)
    changing = star.MULTICAST
    scanned = (star.MULTICAST,)
