# SPDX-License-Identifier: MIT
"""Diagnosis of a member whose packets, or whose results, do not come through."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from netsum.wire.schema import BlockState, Outcome
from netsum_controller import Controller, JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.entries.aggregation import COUNTER, DROPPED_COUNTER, indices
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.monitoring.paths import Path
from netsum_controller.state.model import Job, Seat, Waiting
from netsum_controller.state.store import Store

from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN
from tests.controller.watched import Watched, put_record

SMALL, LARGE, FRAME = 40, 4136, 42
"""Bytes of a packet without payload, of one with it (of UDP's payload), and of the headers around both."""


@pytest.fixture
def watched(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> Watched:
    return Watched(controller, switch, spec)


@pytest.fixture
def job(watched: Watched) -> Job:
    """Its block 0 is done, and block 1, which has a payload of 4096 bytes, waits for rank 1."""
    put_record(watched.switch, watched.job, 0, 0b111, BlockState.DONE)
    put_record(watched.switch, watched.job, 1, 0b101, lane_cnt=1024, lane=2)
    return watched.job


def cause(controller: Controller) -> str:
    (straggler,) = controller.diagnose("resnet").waiting_for
    assert straggler.rank == 1
    return straggler.cause


def tells(controller: Controller, job: Job, rank: int, ahead: int, sent: int = 5, octets: int = LARGE) -> None:
    """A silent rank asks, and says what it waits for."""
    place = Progress(job.epoch.number, block=job.epoch.first_block_id + ahead, sent=sent, octets=octets)
    controller.join("resnet", TOKEN, rank, "a", progress=place)


@pytest.mark.parametrize(
    ("packets", "octets", "others"),
    [
        (3, 3 * (FRAME + SMALL), "though smaller ones have"),
        (3, 9000, "though others of it have"),
        (0, 0, "nor any other"),
    ],
)
def test_a_block_that_was_sent_and_has_not_come(
    controller: Controller, switch: FakeSwitch, job: Job, packets: int, octets: int, others: str
) -> None:
    switch.let_in({1: packets}, {1: octets})
    tells(controller, job, 1, 1, sent=1)
    assert "has sent" not in cause(controller), "one packet may be lost by chance"
    tells(controller, job, 1, 1)
    said = cause(controller)
    block = job.epoch.first_block_id + 1
    assert f"has sent block {block} 5 times (4136 bytes each), and none of these packets has come" in said
    assert "to port 2 of switch s1" in said
    assert others in said
    assert ("4164 bytes (its MTU)" in said) == (packets > 0)


def test_a_small_block_that_has_not_come_is_no_matter_of_the_mtu(controller: Controller, switch: FakeSwitch, job: Job) -> None:
    switch.let_in({1: 9}, {1: 9000})
    tells(controller, job, 1, 1, octets=296)
    assert cause(controller).endswith("though others of it have: look for a firewall on the way")


def test_small_packets_alone_have_come_from_a_rank_that_tells_nothing(
    controller: Controller, switch: FakeSwitch, job: Job
) -> None:
    slow = f"is 1 block behind: it is slow, or has stopped after block {job.epoch.first_block_id}"
    switch.let_in({1: 9}, {1: 8 * (FRAME + SMALL) + FRAME + LARGE})
    assert cause(controller) == slow, "the ninth may have been large"
    switch.let_in({1: 9}, {1: 8 * (FRAME + SMALL) + FRAME + LARGE - 1})
    assert cause(controller).startswith(f"{slow}; or its packets of 4136 bytes do not come, only smaller ones have: ")


@pytest.mark.parametrize(("later", "known"), [(0.9, False), (1.0, True)])
def test_a_result_that_others_have_does_not_come_through(
    controller: Controller, switch: FakeSwitch, job: Job, later: float, known: bool
) -> None:
    switch.let_in({1: 7}, {1: 7 * FRAME})
    first, number = job.epoch.first_block_id, job.epoch.number

    def told(ahead: int, since: float, at: float) -> Waiting:
        return Waiting(number, first + ahead, 5, LARGE, since, at)

    def waits(rank: int, report: Waiting) -> None:
        with controller.context.store.transaction():
            controller.context.store.set_waiting(rank, report)

    waits(1, told(0, 5.0, 10.0))
    assert "it is slow" in cause(controller), "block 0 may still have been open when it asked"
    waits(0, told(1, 10.0, 14.0))
    waits(1, told(0, 10.0 + later, 10.0 + later))
    said = cause(controller)
    assert (f"sends (7 packets have come), and does not get the result of block {first}, which other ranks have" in said) == known
    host, switch_ip = controller.context.topology.hosts["h2"], controller.context.topology.switches["s1"].ip
    port = job.epoch.seats[1].udp_port
    assert all(word in said for word in (f"UDP from {switch_ip} to port {port}", host.mac)) == known


def test_what_a_member_told_in_an_earlier_epoch_is_forgotten(controller: Controller, job: Job) -> None:
    tells(controller, job, 1, 1)
    assert set(controller.job("resnet").reports) == {1}
    controller.join("resnet", TOKEN, 1, "b")
    assert controller.job("resnet").reports == {}


def test_what_a_member_told_is_known_to_other_processes(controller: Controller, job: Job) -> None:
    """The command line reads the state file, and members talk to the process that serves."""
    tells(controller, job, 1, 1)
    tells(controller, job, 1, 1)
    with closing(Store(controller.context.store.path)) as store:
        (report,) = store.job("resnet").reports.values()
    assert (report.block, report.sent, report.octets) == (job.epoch.first_block_id + 1, 5, LARGE)
    assert report.since <= report.at


def count(controller: Controller, switch: FakeSwitch, counter: str, index: int, number: int) -> None:
    switch.counters[controller.context.program.object_id("counters", counter), index] = number


def test_packets_that_the_switch_drops_at_its_port(controller: Controller, switch: FakeSwitch, job: Job) -> None:
    put_record(switch, job, 0, 0b101)
    count(controller, switch, DROPPED_COUNTER, 2, 37)
    said = cause(controller)
    assert "none of its packets has come; switch s1 has dropped 37 packets at port 2 (`netsum switch ports`)" in said
    assert "VLAN tag (make it an untagged port)" in said


def test_checksums_that_are_wrong(controller: Controller, switch: FakeSwitch, job: Job) -> None:
    put_record(switch, job, 0, 0b101)
    count(controller, switch, COUNTER, indices(job.job_id)[Outcome.CHECKSUM], 4)
    said: Any = controller.diagnose("resnet")
    assert "none of its packets has come with a right checksum; 4 packets had a wrong checksum" in cause(controller)
    assert any("`ethtool -K DEVICE tx off`" in hint for hint in said.hints)


def test_only_the_short_last_block_has_come(controller: Controller, switch: FakeSwitch, job: Job) -> None:
    put_record(switch, job, 2, 0b111, BlockState.DONE)
    assert cause(controller) == "has gone on to later blocks: its packet was lost, and it will send it again"
    switch.let_in({1: 2}, {1: 2 * (FRAME + SMALL)})
    assert "its packets of 4136 bytes do not come, only smaller ones have" in cause(controller)
    tells(controller, job, 1, 1)
    assert "and none of these packets has come" in cause(controller)


def test_a_firewall_before_a_socket() -> None:
    """Where hosts reach the switch by UDP from anywhere, what is blocked is named by the socket."""
    topology = star(3, shared=2).filled({"s1": {"endpoint": "10.1.0.9:12000"}})
    seat = Seat(1, 1, "h2", 20001, joined=True)
    there = Path(topology, seat, "s1", waiting=Waiting(epoch=1, block=7, sent=5, octets=LARGE, since=0.0, at=9.0))
    assert there.not_arriving(7).endswith(
        "none of these packets has come, nor any other, to UDP 10.1.0.9:12000 of switch s1: look for a firewall on the way"
    )
    later = {0: Waiting(epoch=1, block=8, sent=1, octets=LARGE, since=1.0, at=9.0)}
    back = replace(there, packets=12).not_returning(0, later)
    assert "Look for a firewall on the way or there (it must let in UDP from 10.1.0.9:12000, in answer to what the rank" in back
    assert "MAC" not in back
