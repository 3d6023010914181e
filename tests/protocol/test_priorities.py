# SPDX-License-Identifier: MIT
"""give_way: on results of a lower class, while blocks of a higher one get complete; on every target."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from netsum_controller.entries import Item, JobEntry

from tests.protocol import star
from tests.protocol.frames import Datagram
from tests.protocol.replay import contribute
from tests.protocol.targets import Target
from tests.threads import until

HIGH, LOW = star.TRIO, star.PAIR


def entries(job_id: int, priority: int) -> list[Item]:
    """A job's entries, with that priority."""
    items = star.job_items(job_id, star.JOBS[job_id])
    return [replace(item, priority=priority) if isinstance(item, JobEntry) else item for item in items]


class Blocks:
    """Makes the blocks of a job, one after the other."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._next = {job_id: itertools.count() for job_id in (HIGH, LOW)}

    def contribute(self, job_id: int, ranks: int | None = None) -> set[int]:
        """The next block, with the contributions of the first ``ranks`` (or of all); the give_way of what comes of them."""
        job, block = star.JOBS[job_id], next(self._next[job_id])
        flags = set()
        for rank in range(len(job.members) if ranks is None else ranks):
            step = contribute(job_id, job, rank, block, 1)
            for _, frame in self._target.exchange(step.port, step.frame):
                flags.add(Datagram.parse(frame).header.backoff)
        return flags


@pytest.fixture
def blocks(target: Target) -> Blocks:
    for job_id, priority in ((HIGH, 6), (LOW, 2)):
        target.replace(star.job_items(job_id, star.JOBS[job_id]), entries(job_id, priority))
    return Blocks(target)


def test_a_lower_class_is_told_while_a_higher_is_busy(blocks: Blocks) -> None:
    def told() -> bool:
        assert blocks.contribute(HIGH) == {0}
        return blocks.contribute(LOW) == {1}

    assert blocks.contribute(LOW) == {0}, "nothing of the other has come"
    until(told)
    until(lambda: blocks.contribute(LOW) == {0})


def test_who_waits_is_not_busy(blocks: Blocks) -> None:
    """Contributions that complete no block do not make others give way."""
    until(lambda: blocks.contribute(LOW) == {0})
    assert blocks.contribute(HIGH, ranks=2) == set()
    assert blocks.contribute(LOW) == {0}


@pytest.mark.parametrize("priorities", [(6, 6), (6, 0), (0, 0)])
def test_a_class_does_not_back_off_for_itself_or_without_taking_part(
    blocks: Blocks, target: Target, priorities: tuple[int, int]
) -> None:
    for job_id, before, now in ((HIGH, 6, priorities[0]), (LOW, 2, priorities[1])):
        target.replace(entries(job_id, before), entries(job_id, now))
    for _ in range(5):
        assert blocks.contribute(HIGH) == {0}
        assert blocks.contribute(LOW) == {0}
