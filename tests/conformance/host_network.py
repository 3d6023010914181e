# SPDX-License-Identifier: MIT
"""Networks between a host and the switch that is played for it. What each does follows from block numbers, not from time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from netsum.wire.codec import pack_header, parse_header
from netsum.wire.schema import EVERYONE, HEADER_BYTES, MEMBER_STATUSES, BlockState, Outcome, Status

from tests.hosts.network import JOB_ID
from tests.model.rules import ID_MASK, Payload, Record, Reply, SwitchModel

WRONG: Payload = ((1 << 2048) - 1,)


def _is_result(reply: Reply) -> bool:
    return reply.header.status in MEMBER_STATUSES


class Network:
    """Loses nothing."""

    def take(self, serial: int, data: bytes, model: SwitchModel) -> bytes | None:  # noqa: ARG002
        """The host's contribution to a block as it comes to the switch; None if it does not."""
        return data

    def give(self, serial: int, reply: Reply, held: Collection[int]) -> list[Reply]:  # noqa: ARG002
        """What comes to the host in the place of a reply, which is about this block. ``held``: blocks whose results it has."""
        return [reply]


class Losing(Network):
    """Loses the first contribution to every third block, and the first result of every third."""

    def __init__(self) -> None:
        self._taken: Counter[int] = Counter()
        self._given: Counter[int] = Counter()

    def take(self, serial: int, data: bytes, model: SwitchModel) -> bytes | None:  # noqa: ARG002
        self._taken[serial] += 1
        return None if serial % 3 == 1 and self._taken[serial] == 1 else data

    def give(self, serial: int, reply: Reply, held: Collection[int]) -> list[Reply]:  # noqa: ARG002
        self._given[serial] += 1
        return [] if serial % 3 == 2 and self._given[serial] == 1 else [reply]


class Repeating(Network):
    """Brings every reply twice, and once more with the next; then says of its block that it is gone, and refused."""

    def __init__(self) -> None:
        self._before: list[Reply] = []

    def give(self, serial: int, reply: Reply, held: Collection[int]) -> list[Reply]:  # noqa: ARG002
        before, self._before = self._before, [reply]
        about = [
            each._replace(header=each.header._replace(status=int(status), reason=reason, lane_cnt=0, data_cnt=0), payload=())
            for each in before
            for status, reason in ((Status.STALE, 0), (Status.REFUSED, int(Outcome.FINGERPRINT_MISMATCH)))
        ]
        return [reply, reply, *before, *about]


class Noticing(Network):
    """Brings a notice in the place of a block's first result, and AGAIN at every other block."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def give(self, serial: int, reply: Reply, held: Collection[int]) -> list[Reply]:  # noqa: ARG002
        if serial in self._given or not reply.payload:
            return [reply]
        self._given.add(serial)
        if serial % 2:
            again = {"status": int(Status.AGAIN), "worker_cnt": 0, "data_cnt": 0}
            return [reply._replace(header=reply.header._replace(**again), payload=())]
        return [reply._replace(header=reply.header._replace(lane_cnt=0), payload=())]


class Straying(Network):
    """Brings, before each result, wrong ones: of another job, of another generation, of a block that was not sent."""

    def give(self, serial: int, reply: Reply, held: Collection[int]) -> list[Reply]:
        if serial in held or not _is_result(reply) or not reply.payload:
            return [reply]
        header, payload = reply.header, WRONG * len(reply.payload)
        strays = (
            header._replace(job_id=header.job_id + 1),
            header._replace(gen_id=(header.gen_id + 1) & 0xFFFF),
            header._replace(call_fingerprint=header.call_fingerprint ^ 1),
            header._replace(block_id=(header.block_id + 1000) & ID_MASK),
        )
        return [*(reply._replace(header=each, payload=payload) for each in strays), reply]


class Reordering(Network):
    """Keeps every other reply back until the next."""

    def __init__(self) -> None:
        self._kept: list[Reply] = []

    def give(self, serial: int, reply: Reply, held: Collection[int]) -> list[Reply]:  # noqa: ARG002
        kept, self._kept = self._kept, []
        if kept:
            return [reply, *kept]
        self._kept = [reply]
        return []


class Busy(Network):
    """Says that a job of a higher priority is busy."""

    def give(self, serial: int, reply: Reply, held: Collection[int]) -> list[Reply]:  # noqa: ARG002
        return [reply._replace(header=reply.header._replace(backoff=int(_is_result(reply) and serial % 2)))]


class Refusing(Network):
    """Changes the host's contribution to a block so that the switch refuses it: once the other rank's is there, and the host's
    window of two is full, so that nothing is in flight that it has not begun."""

    BLOCK = 2

    def __init__(self) -> None:
        self._is_full = False

    def take(self, serial: int, data: bytes, model: SwitchModel) -> bytes | None:
        header = parse_header(data)
        self._is_full |= serial > self.BLOCK
        if serial != self.BLOCK or header.status != Status.OK:
            return data
        record = model.records.get(model.jobs[JOB_ID].slot_of(header.block_id), Record())
        if record.block_id != header.block_id or record.state != BlockState.OPEN or not record.seen or not self._is_full:
            return None
        return pack_header(header._replace(dest=1)) + data[HEADER_BYTES:]

    def give(self, serial: int, reply: Reply, held: Collection[int]) -> list[Reply]:  # noqa: ARG002
        return [reply._replace(header=reply.header._replace(dest=EVERYONE))]  # as the host has sent it
