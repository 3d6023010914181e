# SPDX-License-Identifier: MIT
"""The owner and the lifetime of a group."""

from __future__ import annotations

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.errors import CannotResumeError, RejectedError
from netsum_controller.jobs import groups

from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN, Member, busy
from tests.controller.test_rejoin import members, restart

__all__ = ["members"]  # the fixture


def split(controller: Controller, member: Member, label: str, ranks: list[int]) -> str:
    epoch = member.descriptor.epoch
    name, _ = controller.membership.group(member.job, TOKEN, member.rank, member.instance, epoch, label, ranks)
    return name


def names(controller: Controller) -> set[str]:
    return {job.name for job in controller.jobs()}


def test_groups_live_on_in_the_epoch_that_resumes_theirs(
    controller: Controller, switch: FakeSwitch, members: list[Member]
) -> None:
    first = split(controller, members[0], "0.7", [0, 1])
    group = [Member(controller, rank, f"b{rank}", first) for rank in range(2)]
    restart(controller, switch)
    early = split(controller, members[0], "1.7", [0, 1])  # rank 0 has not heard of the restart
    for everyone in (members, group):
        for member in everyone[:-1]:
            busy(member)
        for member in reversed(everyone):
            member.rejoin()
    assert split(controller, members[1], "1.7", [0, 1]) == early, "a member that has heard of it finds the same group"
    later = split(controller, members[1], "2.7", [0, 1])
    assert names(controller) == {"resnet", first, early, later}, "the first is in use"
    assert group[0].rejoin(1).epoch == group[0].descriptor.epoch


def test_groups_of_an_epoch_that_is_over_are_gone(controller: Controller, members: list[Member]) -> None:
    first = split(controller, members[0], "0.7", [0, 1])
    fresh = [Member(controller, rank, f"c{rank}") for rank in range(3)]
    with pytest.raises(CannotResumeError, match="groups are made in epoch"):
        controller.membership.group("resnet", TOKEN, 0, "c0", members[0].descriptor.epoch, "1.7", [0, 1])
    second = split(controller, fresh[0], "0.7", [0, 1])
    assert first != second
    assert names(controller) == {"resnet", second}


def test_a_member_that_never_closes_its_groups_is_stopped(
    controller: Controller, members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_GROUPS", 4)
    made = [split(controller, members[0], f"{number}.0", [0]) for number in range(4)]
    assert split(controller, members[0], "0.0", [0]) == made[0], "the same again is no other one"
    with pytest.raises(RejectedError, match="rank 0 is in 4 groups already"):
        split(controller, members[0], "more", [0])
    with pytest.raises(RejectedError, match="rank 0 is in 4 groups already"):
        split(controller, members[1], "more", [1, 0])
    split(controller, members[1], "more", [1])
    controller.delete_job(made[0])
    split(controller, members[0], "more", [0])


def test_jobs_of_one_token_and_almost_one_name_keep_their_own_groups(controller: Controller) -> None:
    jobs = [f"a-job-with-a-name-of-more-than-32-characters-{which}" for which in "xy"]
    made = []
    for name in jobs:
        controller.create_job(JobSpec(name=name, members=("h1", "h2"), window=8, token=TOKEN))
        made.append(split(controller, Member(controller, 0, "a0", name), "0.0", [0, 1]))
    assert names(controller) == {*jobs, *made}
    controller.delete_job(jobs[0])
    assert names(controller) == {jobs[1], made[1]}
