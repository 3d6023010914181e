# SPDX-License-Identifier: MIT
"""Epochs and jobs come and go over the same slots: an old value never shows."""

from __future__ import annotations

from collections import Counter

from netsum.wire.schema import Outcome

from tests.model.rules import Job, Member
from tests.protocol import star
from tests.protocol.frame_model import FrameModel
from tests.protocol.frames import Datagram, chunks_of
from tests.protocol.replay import Step, contribute, replay
from tests.protocol.targets import Target

OLD = star.JOBS[star.TRIO]


def change_over(target: Target, model: FrameModel, job_id: int, old: Job, new_id: int, new: Job) -> None:
    """The controller takes one job's entries away and installs another's; records and buffers stay as they are."""
    target.replace(star.job_items(job_id, old), star.job_items(new_id, new))
    del model.switch.jobs[job_id]
    model.switch.jobs[new_id] = new
    model.let_in = Counter({key: count for key, count in model.let_in.items() if key[0] != job_id})


def fill(job_id: int, job: Job) -> list[Step]:
    """Two laps of finished blocks and one open block."""
    steps = [contribute(job_id, job, rank, block, 1000 + block) for block in range(2 * job.slots - 1) for rank in range(3)]
    return [*steps, contribute(job_id, job, 0, 2 * job.slots - 1, 77)]


def renewed(epoch: int, first_block_id: int, port_base: int) -> Job:
    """The same members in another epoch."""
    members = tuple(m._replace(udp_port=port_base + rank) for rank, m in enumerate(OLD.members))
    return OLD._replace(epoch=epoch, first_block_id=first_block_id & 0xFFFFFFFF, members=members)


def test_a_new_epoch_forgets_the_old_one(target: Target) -> None:
    model = replay(fill(star.TRIO, OLD), target)
    new = renewed(epoch=20, first_block_id=OLD.first_block_id + 1000, port_base=21000)
    change_over(target, model, star.TRIO, OLD, star.TRIO, new)
    replay([contribute(star.TRIO, OLD, rank, 2 * OLD.slots - 1, 5) for rank in range(3)], target, model)
    assert model.switch.outcomes[star.TRIO, Outcome.WRONG_PORT] == 3
    replay(fill(star.TRIO, new), target, model)


def test_a_rewound_epoch_begins_with_ids_that_the_slots_have_seen(target: Target) -> None:
    """After a restart the epoch begins at the lowest block that a rank lacks: records of the old epoch with the same ids
    must not be taken for this one's."""
    model = replay(fill(star.TRIO, OLD), target)
    for first in range(OLD.slots + 1):
        new = renewed(30 + first, OLD.first_block_id + first, 22000 + 10 * first)
        change_over(target, model, star.TRIO, model.switch.jobs[star.TRIO], star.TRIO, new)
        steps = [contribute(star.TRIO, new, rank, block, 5) for block in (-1, -new.slots, 0, 1) for rank in range(3)]
        replay(steps, target, model)


def test_a_new_job_never_shows_an_old_jobs_values(target: Target) -> None:
    """The new job has the old one's slots and ids; blocks of empties, empties before payloads, payloads before empties."""
    model = replay(fill(star.TRIO, OLD), target)
    members = (Member(9, 2, 23001, 0), Member(8, 3, 23002, 1), Member(7, 1, 23003, 2))
    new = OLD._replace(epoch=50, first_block_id=OLD.first_block_id, members=members)
    change_over(target, model, star.TRIO, OLD, 17, new)
    patterns = [(None, None, None), (None, None, 6), (6, None, None), (None, 6, 7), (5, 6, 7)]
    seen = []
    for block, values in enumerate(patterns * 2):
        for rank, value in enumerate(values):
            step = contribute(17, new, rank, block, value)
            expected = model.process(step.port, step.frame)
            assert sorted(target.exchange(step.port, step.frame)) == sorted(expected), step.about
        sums = {chunks_of(Datagram.parse(frame).payload) for _, frame in expected}
        given = [value for value in values if value is not None]
        assert sums == {(sum(given),) if given else ()}
        seen.append(sums)
    assert len(seen) == 10
    replay([contribute(star.TRIO, OLD, 0, 1, 1)], target, model)
    assert model.switch.outcomes[star.TRIO, Outcome.UNKNOWN_JOB] == 1


def test_two_jobs_do_not_disturb_each_other(target: Target) -> None:
    pair = star.JOBS[star.PAIR]
    both = []
    for block in range(6):
        trio = [contribute(star.TRIO, OLD, rank, block, 10 + rank) for rank in range(3)]
        both += [trio[0], *(contribute(star.PAIR, pair, rank, block, 20) for rank in range(2)), *trio[1:]]
    model = replay(both, target)
    for job_id, outcomes in ((star.TRIO, (12, 6)), (star.PAIR, (6, 6))):
        counted = tuple(model.switch.outcomes[job_id, each] for each in (Outcome.ACCEPTED, Outcome.COMPLETED))
        assert counted == outcomes
