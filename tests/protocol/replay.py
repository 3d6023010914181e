# SPDX-License-Identifier: MIT
"""Plays a sequence of frames on the model and on a target and compares everything that can be seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from netsum.frames import PREFIX_BYTES
from netsum.wire.codec import Header
from netsum.wire.schema import HEADER_BYTES

from tests.model.rules import Job
from tests.protocol import star
from tests.protocol.frame_model import FrameModel, Sent, without_padding
from tests.protocol.targets import Target


class Step(NamedTuple):
    """One frame put on a port; ``about`` says why, for the reader of a failure."""

    port: int
    frame: bytes
    about: str = ""


class Scan(NamedTuple):
    """The controller scans a job."""

    job_id: int


class Change(NamedTuple):
    """The controller changes a job's entries: aging is switched on or off, a member is evicted."""

    job_id: int
    job: Job


Event = Step | Scan | Change


def contribute(job_id: int, job: Job, member: int, block: int, value: int | None = None, room: int = 1, **fields: int) -> Step:
    """A contribution of a job's member number ``member`` to a block, counted from the epoch's first: one chunk, or (None) an
    empty one with room for ``room`` chunks."""
    sender = job.members[member]
    header = Header(job_id, (job.first_block_id + block) & 0xFFFFFFFF, gen_id=3, worker_cnt=sender.workers)
    payload: tuple[int, ...] = (0,) * room
    if value is not None:
        header, payload = header._replace(lane_cnt=64, data_cnt=sender.workers), (value,)
    frame = star.contribution(job_id, sender, header._replace(**fields), payload).to_bytes()
    return Step(sender.port, frame, f"job {job_id} epoch {job.epoch} member {member} block {block}")


def follow(model: FrameModel, event: Event) -> tuple[int, Sent]:
    """Effects in the model: how many blocks a scan closes (0 otherwise), and what leaves."""
    if isinstance(event, Change):
        model.change(event.job_id, event.job)
        return 0, []
    if isinstance(event, Scan):
        return model.scan(star.scan_frame(event.job_id))
    return 0, model.process(event.port, event.frame)


def play(target: Target, model: FrameModel, event: Event) -> tuple[int, Sent]:
    """The same on a target; of the model only its jobs are asked. Of a job's entries what differs is written, as the
    controller does it."""
    if isinstance(event, Change):
        old, new = star.job_items(event.job_id, model.switch.jobs[event.job_id]), star.job_items(*event)
        target.replace([item for item in old if item not in new], [item for item in new if item not in old])
        return 0, []
    if isinstance(event, Scan):
        return target.scan(star.scan_frame(event.job_id))
    return 0, target.exchange(event.port, event.frame)


def slots_of(model: FrameModel) -> list[int]:
    return [job.slot_base + offset for job in model.jobs.values() for offset in range(job.slots)]


def replay(events: Iterable[Event], target: Target, model: FrameModel | None = None) -> FrameModel:
    """Compare the replies to every frame byte for byte, then records and counters."""
    model = model or FrameModel()
    for number, event in enumerate(events):
        closed, got = play(target, model, event)
        right, expected = follow(model, event)
        where = f"event {number}: {event if not isinstance(event, Step) else f'port {event.port}, {event.about}'}"
        got, expected = without_padding(got), without_padding(expected)
        assert describe(got) == describe(expected), where
        assert (closed, got) == (right, expected), where
    compare_state(model, target)
    return model


def compare_state(model: FrameModel, target: Target) -> None:
    """Records of every slot, and the outcome counters of every job and of untrusted senders."""
    for slot, record in target.records(slots_of(model)).items():
        expected = {name: value for name, value in model.record_of(slot).items() if name in record}
        assert {name: int(record[name]) for name in expected} == expected, f"record of slot {slot}"
    jobs = {job_id for job_id, _ in model.switch.outcomes} | set(star.JOBS)
    for job_id in jobs:
        counted = {outcome: n for (job, outcome), n in model.switch.outcomes.items() if job == job_id}
        assert target.outcomes(job_id) == counted, f"outcomes of job {job_id}"
    there = {(job_id, m.src_id, m.port) for job_id, job in model.switch.jobs.items() for m in job.members}
    assert target.dropped() == model.dropped
    got = {key: count for key, count in target.member_packets().items() if key in there}
    assert got == {key: count for key, count in model.let_in.items() if key in there}


def describe(sent: Sequence[tuple[int, bytes]]) -> list[str]:
    """Frames for people: the port, and the first bytes by field."""
    return [f"port {port}: {len(frame)} bytes: {frame[: PREFIX_BYTES + HEADER_BYTES].hex(' ', 2)}" for port, frame in sent]
