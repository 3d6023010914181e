# SPDX-License-Identifier: MIT
"""The same for a root with switches below it and for a leaf: also what parents send down, right, late and wrong."""

from __future__ import annotations

from collections.abc import Callable

from netsum.wire.codec import Header
from netsum.wire.schema import MAX_CHUNKS, AgeOp, BlockState, Hop, Op, Outcome, Status

from tests.model.rules import Payload, Record
from tests.protocol import star
from tests.protocol.frames import Datagram, netsum_body
from tests.protocol.replay import Event, Step
from tests.protocol.traffic import Traffic, lanes_in, random_payload

ANSWERS = (Status.STALE, Status.REFUSED, Status.AGAIN)


class TreeTraffic(Traffic):
    """Random steps of the jobs that have trees. About one block in three is answered by the parent before the leaf has sent
    its partial."""

    jobs = (star.TOP, star.LEAF, star.LEAF)
    changing = star.LEAF

    def _kinds(self) -> dict[Callable[[], Event], float]:
        return {**super()._kinds(), self._returned: 8}

    def _returned(self) -> Step:
        """A packet from a parent."""
        rng = self._rng
        job = star.JOBS[star.LEAF]
        block_id = (self._block(star.LEAF) + rng.choice((0, 0, 0, 0, 0, 1, -1, -8, 8))) & 0xFFFFFFFF
        up = job.uplink_of(block_id) if rng.random() < 0.9 else rng.choice(job.uplinks)
        record = self._model.switch.records.get(job.slot_of(block_id), Record())
        if record.state == BlockState.OPEN and rng.random() < 0.6:
            return self._contribution()
        header, payload, about = self._of_parent(block_id)
        datagram = star.from_parent(star.LEAF, up, header, payload).but(
            tos=rng.choice((0, 8, 1, 2, 3)), identification=rng.getrandbits(16), trailer=bytes(rng.choice((0, 0, 2)))
        )
        return self._wrong(datagram, up.port) if rng.random() < 0.15 else Step(up.port, datagram.to_bytes(), about)

    def _of_parent(self, block_id: int) -> tuple[Header, Payload, str]:
        """A result, a notice or an answer."""
        rng = self._rng
        call = self._call_of(star.LEAF, block_id)
        header = call._replace(worker_cnt=rng.randint(1, 9), data_cnt=rng.randint(1, 9), backoff=rng.getrandbits(1))
        kind = rng.random()
        if kind < 0.2:
            status = rng.choice(ANSWERS)
            reason = rng.randint(Outcome.UNKNOWN_JOB, Outcome.UNSUPPORTED) if status == Status.REFUSED else 0
            return header._replace(status=status, reason=reason, worker_cnt=0, data_cnt=0), (), status.name
        chunks = self._chunks[star.LEAF, block_id] if rng.random() < 0.9 else rng.randint(1, MAX_CHUNKS)
        if (call.op == Op.COPY and rng.random() < 0.5) or kind > 0.97:
            header = header._replace(early=1, lane_cnt=lanes_in(chunks, header.lane))
            return header, random_payload(rng, chunks), "a payload ahead of its result"
        degraded = rng.getrandbits(1)
        age_op = rng.choice((AgeOp.AGED, AgeOp.LATE)) if degraded else AgeOp.NORMAL
        header = header._replace(degraded=degraded, age_op=age_op)
        if kind < 0.3:
            return header, (), "a notice"
        if kind < 0.4:
            return header._replace(data_cnt=0), (0,) * rng.choice((0, 0, MAX_CHUNKS)), "a result without data"
        if kind < 0.5:
            status = rng.choice((Status.RANGE, Status.ABORT, Status.MISMATCH))
            return header._replace(status=status, gen_id=rng.getrandbits(16)), (), f"a result with {status.name}"
        header = header._replace(lane_cnt=lanes_in(chunks, header.lane))
        return header, random_payload(rng, chunks), f"a result, {age_op.name}"

    def _wrong(self, datagram: Datagram, port: int) -> Step:
        """The packet with one defect."""
        rng = self._rng
        header, payload = datagram.header, datagram.payload
        kind = rng.randrange(6)
        if kind == 0:
            return Step(port, datagram.but(udp_src=20049).to_bytes(), "an answer for another UDP port")
        if kind == 1:
            return Step(rng.choice(star.PORTS), datagram.to_bytes(), "perhaps of another port's parent")
        name, value = (
            ("hop", rng.choice((Hop.HOST, Hop.UP, 3))),
            ("status", rng.randrange(16)),
            ("job_id", rng.choice((77, star.TOP, star.LATE))),
            ("src_id", rng.choice((0, 7, 200))),
        )[kind - 2]
        body = netsum_body(header._replace(**{name: int(value)})) + payload
        return Step(port, datagram.but(body=body).to_bytes(), f"of a parent, but {name} is {value}")
