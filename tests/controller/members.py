# SPDX-License-Identifier: MIT
"""Members as the controller sees them: they join, rejoin with what they lack, and are told to wait or give up."""

from __future__ import annotations

import pytest
from netsum.descriptor import Descriptor
from netsum_controller.controller import Controller
from netsum_controller.errors import BusyError, CannotResumeError
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.state.model import SERIAL, Job

TOKEN = "correct-horse"


def join_all(controller: Controller, instance: str = "a", name: str = "resnet") -> list[Descriptor]:
    """Every rank that was not evicted joins."""
    seats = controller.job(name).epoch.members
    return [controller.join(name, TOKEN, seat.rank, instance) for seat in seats]


def come_back(controller: Controller, old: Job, needs: int = 0) -> Job:
    """All four ranks of the job "wide" rejoin, lacking the same block."""
    place = Progress(old.epoch.number, old.epoch.first_block_id + needs)
    for rank in range(4):
        try:
            rejoin(controller, "wide", rank, place)
        except BusyError:
            assert rank < 3
    return controller.job("wide")


def rejoin(
    controller: Controller, job: str, rank: int, place: Progress, instance: str = "a", peer: str | None = None
) -> Descriptor:
    """Ask as the library does: if there is an epoch that is to resume the member's, once more with a report for it."""
    known = place if place.next_epoch is not None else Progress(place.epoch)
    try:
        return controller.join(job, TOKEN, rank, instance, progress=known, peer=peer)
    except BusyError as error:
        if error.next_epoch in (None, known.next_epoch):
            raise
        told = place._replace(next_epoch=error.next_epoch)
    return controller.join(job, TOKEN, rank, instance, progress=told, peer=peer)


class Member:
    """A host, which joins, and rejoins with the epoch that it last ran in and the first block that it lacks."""

    def __init__(self, controller: Controller, rank: int, instance: str, job: str = "resnet") -> None:
        self.controller, self.rank, self.instance, self.job = controller, rank, instance, job
        self.descriptor = controller.join(job, TOKEN, rank, instance)
        self.needs = self.descriptor.first_block_id
        self.next_epoch: int | None = None

    def rejoin(self, finished: int = 0) -> Descriptor:
        """Rejoin, ``finished`` blocks later than last time; a descriptor that resumes is taken."""
        self.needs = (self.needs + finished) % SERIAL
        place = Progress(self.descriptor.epoch, self.needs, self.next_epoch)
        try:
            answer = rejoin(self.controller, self.job, self.rank, place, self.instance)
        except BusyError as error:
            self.next_epoch = error.next_epoch or self.next_epoch
            raise
        self.next_epoch = None
        if answer.epoch == self.descriptor.epoch:
            assert answer.resumes is None
        else:
            assert answer.resumes == self.descriptor.epoch
            self.descriptor = answer
        return answer


def busy(member: Member, finished: int = 0) -> str:
    """Rejoin, expecting to be told to ask again; return the reason."""
    with pytest.raises(BusyError) as caught:
        member.rejoin(finished)
    assert 0 < caught.value.retry_ms < 1000
    return str(caught.value)


def gone(member: Member) -> str:
    """Rejoin, expecting that the member cannot continue; return the reason."""
    with pytest.raises(CannotResumeError) as caught:
        member.rejoin()
    return str(caught.value)
