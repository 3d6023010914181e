"""Plays a sequence of frames on the model and on a target and compares everything that can be seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.protocol import star
from tests.protocol.frame_model import FrameModel
from tests.protocol.targets import Target


class Step(NamedTuple):
    """One frame put on a port; ``about`` says why, for whoever reads a failure."""

    port: int
    frame: bytes
    about: str = ""


def slots_of(model: FrameModel) -> list[int]:
    """Every slot of every job."""
    return [job.slot_base + offset for job in model.jobs.values() for offset in range(job.slots)]


def replay(steps: Iterable[Step], target: Target, model: FrameModel | None = None) -> FrameModel:
    """Compare the replies to every frame byte for byte, then records and counters."""
    model = model or FrameModel()
    for number, step in enumerate(steps):
        expected = sorted(model.process(step.port, step.frame))
        got = sorted(target.exchange(step.port, step.frame))
        assert describe(got) == describe(expected), f"frame {number} on port {step.port}: {step.about}"
        assert got == expected, f"frame {number} on port {step.port}: {step.about}"
    compare_state(model, target)
    return model


def compare_state(model: FrameModel, target: Target) -> None:
    """Records of every slot, and the outcome counters of every job and of strangers."""
    for slot, record in target.records(slots_of(model)).items():
        expected = {name: value for name, value in model.record_of(slot).items() if name in record}
        assert {name: int(record[name]) for name in expected} == expected, f"record of slot {slot}"
    jobs = {job_id for job_id, _ in model.switch.outcomes} | set(star.JOBS)
    for job_id in jobs:
        counted = {outcome: n for (job, outcome), n in model.switch.outcomes.items() if job == job_id}
        assert target.outcomes(job_id) == counted, f"outcomes of job {job_id}"
    there = {(job_id, m.src_id, m.port) for job_id, job in model.switch.jobs.items() for m in job.members}
    assert target.member_packets() == {key: count for key, count in model.let_in.items() if key in there}


def describe(sent: Sequence[tuple[int, bytes]]) -> list[str]:
    """Frames as people read them: port and the first bytes by field."""
    return [f"port {port}: {len(frame)} bytes: {frame[:58].hex(' ', 2)}" for port, frame in sent]
