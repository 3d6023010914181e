# SPDX-License-Identifier: MIT
"""A path between a rank and its switch on which UDP is blocked: how it is recognized, and that a job goes around it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.schema import EVERYONE, BlockState, Op, Outcome
from netsum_controller import Controller, JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.entries import BlockRecord, MemberEntry
from netsum_controller.entries.aggregation import COUNTER, DROPPED_COUNTER, indices
from netsum_controller.jobs.migration import leave_blocked_path
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.monitoring.blocked_paths import (
    LOOKS,
    MANY,
    Blocked,
    BlockedPaths,
    Direction,
    PathState,
    may_be_mtu,
)
from netsum_controller.monitoring.collector import every_record
from netsum_controller.monitoring.path_monitor import PathMonitor
from netsum_controller.monitoring.paths import SMALL, Path
from netsum_controller.p4runtime.client import Update, UpdateKind
from netsum_controller.state.model import Job, Seat, Waiting

from tests.controller.fake_switch import FakeSwitch
from tests.controller.items import items_on
from tests.controller.members import TOKEN
from tests.controller.watched import put_record

EPOCH, AFTER, LARGE = 7, 10.0, 4136
TO, FROM = Direction.TO_SWITCH, Direction.FROM_SWITCH
FIRST = PathState(block=3, sent=6, received=20, packets=30, others=90, rejected=0, is_done=True)
LOST_UP = {"sent": 2, "others": 4}
"""What is more at each look if nothing of the rank comes to the switch; below, if nothing comes back to it."""
LOST_DOWN = {"sent": 2, "packets": 2, "others": 4}


def more(state: PathState, **by: int) -> PathState:
    return state._replace(**{name: getattr(state, name) + number for name, number in by.items()})


def looks(states: Sequence[PathState], seconds: float = 4.0, rank: int = 1) -> list[list[Blocked]]:
    """The findings of looks at the path of one rank."""
    paths = BlockedPaths(AFTER)
    return [paths.look(EPOCH, {rank: state}, seconds * number) for number, state in enumerate(states)]


def repeated(times: int, by: Mapping[str, int], first: PathState = FIRST) -> list[PathState]:
    return list(accumulate(range(times - 1), lambda state, _: more(state, **by), initial=first))


@pytest.mark.parametrize(("by", "direction"), [(LOST_UP, TO), (LOST_DOWN, FROM)])
def test_a_path_is_blocked_when_a_block_was_lost_often_and_for_long(by: dict[str, int], direction: Direction) -> None:
    assert looks(repeated(5, by)) == [[], [], [], [Blocked(1, direction, 6)], [Blocked(1, direction, 8)]]
    assert looks(repeated(3, by), seconds=AFTER) == [[]] * 3, "it was sent only four times more"
    often = by | {"sent": MANY, "packets": by.get("packets", 0) and MANY}
    assert looks(repeated(2, often), seconds=AFTER) == [[]] * 2, "one report more is not enough"
    assert looks(repeated(4, often), seconds=AFTER / 4) == [[]] * 4, "it may be over in a moment"
    assert looks(repeated(3, often), seconds=AFTER / 2)[-1] == [Blocked(1, direction, 2 * MANY)]


@pytest.mark.parametrize(
    ("first", "by"),
    [
        (FIRST, {**LOST_UP, "packets": 1, "received": 1}),
        (FIRST._replace(is_done=False), {**LOST_UP, "packets": 1}),
        (FIRST, {**LOST_UP, "rejected": 1}),
        (FIRST, {"sent": 2}),
        (FIRST, {"others": 4, "packets": 9}),
        (FIRST, {**LOST_DOWN, "received": 1}),
        (FIRST, {**LOST_DOWN, "block": 1}),
        (FIRST._replace(is_done=False), LOST_DOWN),
    ],
    ids=[
        "it is slow",
        "few of its packets come",
        "its packets come and are rejected",
        "no packet comes from any rank",
        "it sends nothing: its process is dead or stands still",
        "few results come",
        "it goes on",
        "another rank is late",
    ],
)
def test_all_else_is_no_blocked_path(first: PathState, by: dict[str, int]) -> None:
    assert looks(repeated(20, by, first)) == [[]] * 20


def test_results_count_from_when_the_switch_has_them() -> None:
    """A rank that has waited for a late one for long, and whose block is complete just now, is not cut off."""
    waits = repeated(9, LOST_DOWN, FIRST._replace(is_done=False))
    then = repeated(4, LOST_DOWN, waits[-1]._replace(is_done=True))
    assert looks([*waits, *then]) == [[]] * 12 + [[Blocked(1, FROM, 6)]]


def test_when_no_packet_comes_from_several_ranks_all_are_blocked() -> None:
    paths, blocked = BlockedPaths(AFTER), []
    for number, state in enumerate(repeated(4, {"sent": 2})):
        for rank in (1, 2):
            blocked += paths.look(EPOCH, {rank: state}, 4.0 * number)
    assert blocked == [Blocked(2, TO, 6)], "the second of them to report again"
    assert paths.look(EPOCH, {1: more(FIRST, sent=8)}, 16.0) == [Blocked(1, TO, 8)]


def test_another_epoch_is_another_path() -> None:
    paths, states = BlockedPaths(AFTER), repeated(8, LOST_UP)
    for number, state in enumerate(states[:3]):
        assert paths.look(EPOCH, {1: state}, 4.0 * number) == []
    paths.keep({EPOCH})
    assert paths.look(EPOCH + 1, {1: states[3]}, 12.0) == []
    assert paths.look(EPOCH, {1: states[3]}, 12.0) == [Blocked(1, TO, 6)]
    paths.keep({EPOCH + 1})
    assert paths.look(EPOCH, {1: states[4]}, 16.0) == []


STEPS = st.lists(
    st.builds(
        PathState,
        *(st.integers(0, 1) for _ in ("block",)),
        *(st.integers(0, 4) for _ in ("sent",)),
        *(st.sampled_from([0, 0, 0, 1]) for _ in ("received", "packets")),
        *(st.integers(0, 1), st.sampled_from([0, 0, 0, 1]), st.booleans()),
    ),
    max_size=12,
)


@given(STEPS, st.sampled_from([1.0, 4.0]), st.booleans())
def test_what_is_found_is_what_all_looks_since_one_of_them_show(steps: list[PathState], seconds: float, arrives: bool) -> None:
    """``arrives``: more packets come than the steps say, so that paths back are found, too."""
    states = [FIRST]
    for number, step in enumerate(steps, 1):
        by = step._asdict() | {"block": step.block * (number % 4 == 0), "packets": step.packets + 3 * arrives}
        del by["is_done"]
        states.append(more(states[-1], **by)._replace(is_done=step.is_done))

    def shows(direction: Direction, first: int, last: int) -> bool:
        begin, end, between = states[first], states[last], states[first : last + 1]
        same = ("block", "packets", "rejected") if direction is TO else ("block", "received")
        if last - first + 1 < LOOKS or seconds * (last - first) < AFTER or end.sent - begin.sent < MANY:
            return False
        if any(getattr(each, name) != getattr(begin, name) for each in between for name in same):
            return False
        return end.others > begin.others if direction is TO else begin.is_done and end.packets - begin.packets >= MANY

    for last, found in enumerate(looks(states, seconds)):
        expected = [way for way in (TO, FROM) if any(shows(way, first, last) for first in range(last))]
        assert [each.direction for each in found] == expected


def record(**changes: Any) -> BlockRecord:
    """Of a SUM of 4096 bytes to which all three sources have contributed."""
    values: dict[str, Any] = {"slot": 0, "epoch": EPOCH, "block_id": 0, "state": BlockState.DONE, "seen": 0b111, "gen_id": 0}
    values |= {"worker_cnt": 3, "data_cnt": 3, "status": 0, "start_us": 0, "op": Op.SUM, "lane": 2, "lane_cnt": 1024}
    return BlockRecord(**{**values, "degraded": False, **changes})


@pytest.mark.parametrize(
    ("octets", "records", "expected"),
    [
        (SMALL, {}, False),
        (SMALL + 1, {}, True),
        (LARGE, {4: record()}, False),
        (LARGE, {4: record(lane_cnt=1023)}, True),
        (LARGE, {4: record(seen=0b101)}, True),
        (LARGE, {4: record(op=Op.COPY, data_cnt=1)}, True),
        (LARGE, {4: record(dest=0)}, True),
        (LARGE, {4: record(data_cnt=2)}, True),
        (LARGE, {5: record()}, True),
        (LARGE, {2: record(lane_cnt=1), 4: record()}, False),
    ],
)
@pytest.mark.parametrize("direction", [TO, FROM])
def test_an_mtu_may_be_the_reason_unless_a_packet_as_large_has_come(
    direction: Direction, octets: int, records: dict[int, BlockRecord], expected: bool
) -> None:
    assert record().dest == EVERYONE
    assert may_be_mtu(direction, FIRST, octets, 1, 5, records) == expected
    assert not may_be_mtu(TO, FIRST._replace(packets=0), octets, 1, 5, records), "nothing at all has come"
    assert not may_be_mtu(FROM, FIRST._replace(received=0), octets, 1, 5, records)


def test_the_reason_names_rank_direction_and_address() -> None:
    topology = star(3, shared=2).filled({"s1": {"endpoint": "10.1.0.9:12000"}})
    report = Waiting(epoch=1, block=7, sent=12, octets=LARGE, since=0.0, at=9.0)
    path = Path(topology, Seat(1, 1, "h2", 20001, joined=True), "s1", waiting=report)
    assert path.nothing_arrives(6) == (
        "UDP from rank 1 (h2) to 10.1.0.9:12000 is blocked: it has sent block 7 another 6 times, and none of its packets has "
        "come to switch s1"
    )
    assert path.nothing_returns(5) == (
        "UDP from 10.1.0.9:12000 to rank 1 (h2) is blocked: it has sent block 7 another 5 times to switch s1, which has its "
        "result, and no packet has come back"
    )
    own = replace(path, seat=Seat(0, 0, "h1", 20000, joined=True))
    assert f"to {topology.switches['s1'].ip}:12000 is blocked" in own.nothing_arrives(6)


class Cut:
    """A job of three ranks on the fake switch, of which rank 1 waits for block 1, which has a payload of 4096 bytes, as block 0
    had. Rank 0 waits for the block after it if block 1 has a result."""

    def __init__(self, controller: Controller, switch: FakeSwitch, spec: JobSpec, *, done: bool = False) -> None:
        self.controller, self.switch = controller, switch
        controller.create_job(spec)
        self.now, self.sent, self.packets = 0.0, 4, {0: 9, 1: 9, 2: 9}
        self.received = 5
        self.monitor = PathMonitor(controller.context, 0, blocked_after=AFTER, clock=lambda: self.now)
        self._done = done

    @property
    def job(self) -> Job:
        return self.controller.job("resnet")

    def join(self, peers: Sequence[int] = (0, 1, 2)) -> None:
        for rank in range(3):
            address = f"10.0.0.{rank + 1}:4000" if rank in peers else None
            self.controller.join("resnet", TOKEN, rank, "a", peer=address)
        self.put(0, 0b111, BlockState.DONE)
        self.put(1, *((0b111, BlockState.DONE) if self._done else (0b101, BlockState.OPEN)))

    def put(self, ahead: int, seen: int, state: BlockState, **fields: int) -> None:
        fields = {"lane_cnt": 1024, "lane": 2, "dest": EVERYONE, "data_cnt": seen.bit_count(), **fields}
        put_record(self.switch, self.job, ahead, seen, state, on="", **fields)

    def pass_time(self, come: int, returned: int = 0) -> list[str]:
        """After four seconds, rank 1 reports that it has sent the block two times more; ``come`` of its packets have come, and
        ``returned`` have come to it. The reasons of the moves."""
        self.now += 4.0
        self.sent += 2
        self.received += returned
        self.packets = {0: self.packets[0] + 2, 1: self.packets[1] + come, 2: self.packets[2] + 2}
        self.switch.let_in(self.packets)
        epoch = self.job.epoch
        place = Progress(epoch.number, None, None, epoch.first_block_id + 1, self.sent, LARGE, self.received)
        self.controller.join("resnet", TOKEN, 1, "a", progress=place)
        return [done.why for done in self.monitor.look()]

    def whole_minute(self, come: int, returned: int = 0) -> list[str]:
        return [why for _ in range(15) for why in self.pass_time(come, returned)]


@pytest.mark.parametrize(("come", "words"), [(0, "UDP from rank 1 (h2) to 10.0.0.254"), (2, "to rank 1 (h2) is blocked")])
def test_a_job_leaves_the_switch_that_a_rank_does_not_reach(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, caplog: pytest.LogCaptureFixture, come: int, words: str
) -> None:
    cut = Cut(controller, switch, spec, done=come > 0)
    cut.join()
    old = cut.job.epoch
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert cut.pass_time(come) == []
        assert cut.monitor.look() == [], "nothing is new"
        (why,) = cut.pass_time(come)
    assert words in why
    assert f"job resnet: {why}; it goes on under epoch" in caplog.text
    job = controller.job("resnet")
    assert (job.by_switch, job.combines, job.epoch.resumes) == (False, "auto", old.number)
    assert cut.monitor.look() == []
    assert leave_blocked_path(controller.context, "resnet", old.number, why) is None, "it is in another epoch"
    assert controller.move("resnet", "auto").job.by_switch


@pytest.mark.parametrize("come", [0, 2])
@pytest.mark.parametrize("changes", [{"algorithm": "switch"}, {"late": "degrade", "block_exp": 50.0}], ids=str)
def test_jobs_that_are_to_stay_do(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, changes: dict[str, Any], come: int
) -> None:
    cut = Cut(controller, switch, JobSpec.model_validate(spec.model_dump() | changes), done=come > 0)
    cut.join()
    assert cut.whole_minute(come) == []
    assert cut.job.by_switch


@pytest.mark.parametrize("come", [0, 2])
def test_a_rank_that_the_others_cannot_reach_keeps_the_job_at_its_switch(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, come: int
) -> None:
    cut = Cut(controller, switch, spec, done=come > 0)
    cut.join(peers=(0, 1))
    assert cut.whole_minute(come) == []


@pytest.mark.parametrize("come", [0, 2])
def test_where_large_packets_alone_may_be_lost_the_job_stays(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, come: int
) -> None:
    cut = Cut(controller, switch, spec, done=come > 0)
    cut.join()
    cut.put(0, 0b111, BlockState.DONE, lane_cnt=2)
    assert cut.whole_minute(come) == []
    assert cut.job.by_switch


@pytest.mark.parametrize(("come", "returned"), [(1, 0), (1, 1), (2, 1)])
def test_a_path_that_loses_some_packets_keeps_the_job_at_its_switch(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, come: int, returned: int
) -> None:
    cut = Cut(controller, switch, spec, done=returned > 0)
    cut.join()
    assert cut.whole_minute(come, returned) == []


def test_a_report_counts_once(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    cut = Cut(controller, switch, spec)
    cut.join()
    cut.pass_time(0)
    cut.sent += MANY
    assert cut.pass_time(0) == []
    for _ in range(5):
        cut.now += AFTER
        assert cut.monitor.look() == []
    assert len(cut.pass_time(0)) == 1


def test_the_result_of_an_earlier_epoch_is_none(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    cut = Cut(controller, switch, spec, done=True)
    cut.join()
    cut.put(1, 0b111, BlockState.DONE, epoch=cut.job.epoch.number - 1)
    assert cut.whole_minute(2) == []


@pytest.mark.parametrize(
    "why", [Outcome.CHECKSUM, Outcome.NOT_MEMBER, None], ids=["checksum", "not member", "dropped at its port"]
)
def test_packets_that_are_rejected_are_no_silence(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, why: Outcome | None
) -> None:
    cut = Cut(controller, switch, spec)
    cut.join()
    counter, index = (DROPPED_COUNTER, 2) if why is None else (COUNTER, indices(cut.job.job_id)[why])
    for number in range(15):
        switch.counters[controller.context.program.object_id("counters", counter), index] = number
        assert cut.pass_time(0) == []


def test_a_member_that_is_missing_in_the_tables_keeps_the_job_there(
    controller: Controller, switch: FakeSwitch, spec: JobSpec
) -> None:
    cut = Cut(controller, switch, spec)
    cut.join()
    (entry,) = [item for item in items_on(controller, MemberEntry, "s1") if item.src_id == 1]
    with controller.context.client("s1") as client:
        client.write([Update(UpdateKind.DELETE, entry)])
    assert cut.whole_minute(0) == []


def test_a_packet_that_comes_at_the_last_moment_counts(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch that was busy takes it in before it answers queries."""
    cut = Cut(controller, switch, spec)
    cut.join()
    for _ in range(3):
        assert cut.pass_time(0) == []

    def late(*args: Any, **options: Any) -> Any:
        cut.packets[1] += 1
        switch.let_in(cut.packets)
        return every_record(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr("netsum_controller.monitoring.path_monitor.every_record", late)
        assert cut.pass_time(0) == []
    assert cut.job.by_switch


def test_a_switch_that_does_not_answer_is_left_to_its_monitor(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    cut = Cut(controller, switch, spec)
    cut.join()
    for _ in range(3):
        assert cut.pass_time(0) == []
    switch.stop()
    assert cut.pass_time(0) == []
    switch.start()
    assert len(cut.pass_time(0)) == 1
