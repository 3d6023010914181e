"""Random histories of members that join, leave, are evicted and admitted: the switch always has what the file says."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.controller import Controller
from netsum_controller.errors import Busy, Evicted, Refused
from netsum_controller.stages import JobEntry, MemberEntry, RewriteEntry
from netsum_controller.state.model import JobState, Late

from tests.controller.fake_switch import FakeSwitch
from tests.controller.items import items_on
from tests.controller.members import TOKEN

RANKS = 4
STEPS = 40


@pytest.mark.parametrize("late", [Late.WAIT, pytest.param(Late.DEGRADE, marks=pytest.mark.full)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))])
def test_the_switch_has_what_the_file_says(controller: Controller, switch: FakeSwitch, late: Late, seed: int) -> None:
    chance = random.Random(seed)
    hosts = ("h1", "h2", "h3", "h4")
    controller.create_job(JobSpec(name="resnet", members=hosts, window=8, token=TOKEN, late=late))
    numbers = [controller.job("resnet").epoch.number]
    done = set()
    for step in range(STEPS):
        rank = chance.randrange(RANKS)
        what = chance.choices(("join", "leave", "evict", "admit", "restart"), (50, 10, 20, 15, 5))[0]
        with suppress(Busy, Evicted, Refused):
            if what == "join":
                controller.join("resnet", TOKEN, rank, chance.choice(["a", "b", str(step)]))
            elif what == "leave":
                controller.leave("resnet", TOKEN, rank, "a")
            elif what == "evict":
                controller.evict("resnet", rank)
            elif what == "admit":
                controller.admit("resnet", rank)
            else:
                switch.restart()
                controller.reconcile()
            done.add(what)
        check(controller, numbers)
    assert len(done) >= 4, "the history says little"


def check(controller: Controller, numbers: list[int]) -> None:
    """Nothing needs reconciling, epoch numbers are new, evicted members are gone, and blocks age when all are there."""
    assert not controller.reconcile()[0].changed
    job = controller.job("resnet")
    assert job.state is JobState.READY
    assert job.epoch.number >= numbers[-1]
    numbers.append(job.epoch.number)
    sources = {seat.src_id for seat in job.epoch.members}
    assert sources
    assert {item.src_id for item in items_on(controller, MemberEntry)} == sources
    assert {item.replica for item in items_on(controller, RewriteEntry)} == sources
    for entry in items_on(controller, JobEntry):
        assert entry.all_sources == sum(1 << source for source in sources)
        everyone = all(seat.joined for seat in job.epoch.members)
        assert (entry.block_exp > 0) == (job.late is Late.DEGRADE and everyone)
        assert entry.quorum == (min(2, len(sources)) if job.late is Late.DEGRADE else 0)
