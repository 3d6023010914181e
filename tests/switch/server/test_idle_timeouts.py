# SPDX-License-Identifier: MIT
"""Idle timeouts: IdleTimeoutNotification, `idle_timeout_ns` and `time_since_last_hit`.

Most tests drive the clock of the pipeline; the last ones take the switches as they are, in real time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2
from hypothesis import given
from hypothesis import strategies as st
from netsum_p4runtime import p4info_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.p4runtime import idle_timeouts
from netsum_switch.p4runtime.control import Control
from netsum_switch.p4runtime.p4info import P4Info
from netsum_switch.p4runtime.reconciliation import Reconciliation
from netsum_switch.p4runtime.status import RpcError
from netsum_switch.pipeline import Pipeline, dump, load_pipeline

from tests.switch.harness.api import SILENCE, SwitchUnderTest
from tests.switch.harness.contract import refusal_of
from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, Program
from tests.switch.harness.frames import frame
from tests.switch.server.conftest import Connect

INVALID = code_pb2.INVALID_ARGUMENT
MILLISECOND, SECOND = 10**6, 10**9
"""Nanoseconds."""


@pytest.fixture(scope="module")
def program() -> Program:
    return Program("state")


class Aging:
    """The program under control, at a time that the test sets."""

    def __init__(self, program: Program) -> None:
        self._time = 0
        self._program = program
        self.messages: list[Any] = []
        self.pipeline, self.control = self._load()
        self.control.start()

    def _load(self) -> tuple[Pipeline, Control]:
        pipeline = load_pipeline(self._program.json, clock=lambda: self._time)
        return pipeline, Control(P4Info.parse(self._program.p4info), pipeline, self.messages.append)

    def save(self) -> Control:
        """Load the program anew, without running it. The old one, which runs."""
        old = self.control
        self.pipeline, self.control = self._load()
        return old

    def reconcile(self) -> None:
        """Load the program anew, with the entries of the old one, and run it."""
        running, old = self.pipeline, self.save()
        reconciliation = Reconciliation(running, old, self.control)
        with self.pipeline.changing(nullcontext()):
            reconciliation.write_entities()
        reconciliation.copy_cells()
        self.control.start()
        old.close()

    def exact(self, dst: int = 1, ttl: int = SECOND, **fields: Any) -> Any:
        """An entry of `exact_timed`."""
        return self._program.marking("exact_timed", {1: bytes([dst])}, 1, idle_timeout_ns=ttl, **fields)

    def write(self, *updates: tuple[Any, Any]) -> None:
        """A batch of (type, entity)."""
        with self.pipeline.changing(nullcontext()):
            for kind, entity in updates:
                self.control.write(p4rt.Update(type=kind, entity=entity))

    def insert(self, *entities: Any) -> None:
        self.write(*((INSERT, each) for each in entities))

    def hit(self, dst: int = 1, src: int = 0) -> None:
        self.pipeline.process(1, frame(dst, src=src))

    def wait(self, nanoseconds: int) -> None:
        """Let time go by."""
        self._time += nanoseconds // 1000
        self.control.idle_timeouts.check()

    def go(self, nanoseconds: int) -> list[Any]:
        """Let time go by; the entries of which notifications came since."""
        self.wait(nanoseconds)
        return self.taken()

    def taken(self) -> list[Any]:
        """The entries of the notifications that came."""
        found = [entry for each in self.messages for entry in each.idle_timeout_notification.table_entry]
        self.messages.clear()
        return found

    def since_hit(self, entity: Any) -> int | None:
        """What a read says of the time since an entry was hit."""
        question = p4rt.Entity.FromString(entity.SerializeToString())
        question.table_entry.time_since_last_hit.SetInParent()
        response = p4rt.ReadResponse()
        self.control.read(question, response)
        [found] = response.entities
        return found.table_entry.time_since_last_hit.elapsed_ns if found.table_entry.HasField("time_since_last_hit") else None


@pytest.fixture
def aging(program: Program) -> Iterator[Aging]:
    aging = Aging(program)
    yield aging
    aging.control.close()


def key_of(entity: Any) -> Any:
    """What a notification holds of an entry."""
    entry = p4rt.TableEntry.FromString(entity.table_entry.SerializeToString())
    entry.ClearField("action")
    return entry


def test_one_notification_for_each_time_without_a_hit(aging: Aging) -> None:
    aging.insert(aging.exact())
    assert aging.go(SECOND - 1000) == []
    assert aging.go(1000) == [key_of(aging.exact())]
    assert aging.go(SECOND - 1000) == []
    assert aging.go(1000) == [key_of(aging.exact())]
    assert aging.go(9 * SECOND) == [key_of(aging.exact())]  # those that are late are not made up for
    assert aging.go(SECOND) == [key_of(aging.exact())]


def test_a_hit_begins_a_new_time(aging: Aging) -> None:
    aging.insert(aging.exact(), aging.exact(2))
    for _ in range(5):
        aging.go(SECOND // 4)
        aging.hit()
    aging.taken()
    assert aging.go(SECOND - 1000) == [key_of(aging.exact(2))]
    assert aging.go(1000) == [key_of(aging.exact())]


def test_a_packet_that_misses_is_no_hit(aging: Aging) -> None:
    aging.insert(aging.exact())
    aging.go(SECOND // 2)
    aging.hit(9)
    assert aging.go(SECOND // 2) == [key_of(aging.exact())]


def test_what_a_notification_holds(aging: Aging, program: Program) -> None:
    match = {1: p4rt.FieldMatch.Ternary(value=b"\x10", mask=b"\xf0"), 2: p4rt.FieldMatch.Optional(value=b"\x03")}
    entity = program.marking(
        "ternary_timed", match, 7, priority=5, metadata=b"cookie", controller_metadata=9, idle_timeout_ns=SECOND + 1
    )
    aging.insert(entity)
    aging.wait(SECOND)
    assert aging.messages == []  # a part of a microsecond is rounded up
    before = time.time_ns()
    aging.wait(1000)
    [message] = aging.messages
    assert before <= message.idle_timeout_notification.timestamp <= time.time_ns()
    assert aging.taken() == [key_of(entity)]


@pytest.mark.parametrize("table", ["exact_timed", "lpm_timed", "ternary_timed", "member_timed"])
def test_hits_in_each_kind_of_table(aging: Aging, program: Program, table: str) -> None:
    matches = {
        "lpm_timed": [{1: p4rt.FieldMatch.LPM(value=bytes([src, 0]), prefix_len=40)} for src in (1, 2)],
        "ternary_timed": [{1: p4rt.FieldMatch.Ternary(value=bytes([dst]), mask=b"\xff")} for dst in (1, 2)],
    }  # fmt: skip
    priority = int(table == "ternary_timed")
    entities = []
    for match in matches.get(table, [{1: b"\x01"}, {1: b"\x02"}]):
        entity = program.marking(table, match, 1, priority=priority, idle_timeout_ns=SECOND)
        if table == "member_timed":
            entity.table_entry.action.action_profile_member_id = 1
        entities.append(entity)
    if table == "member_timed":
        member = p4rt.Entity(action_profile_member={"action_profile_id": program.ids["members"], "member_id": 1})
        member.action_profile_member.action.CopyFrom(program.action("mark", b"\x01"))
        aging.insert(member)
    aging.insert(*entities)
    aging.go(SECOND // 2)
    aging.hit(dst=2, src=0x201)
    assert aging.go(SECOND // 2) == [key_of(entities[0])]
    assert [aging.since_hit(each) for each in entities] == [SECOND, SECOND // 2]
    assert aging.go(SECOND // 2) == [key_of(entities[1])]


def test_modify_begins_a_new_time(aging: Aging) -> None:
    aging.insert(aging.exact())
    aging.go(SECOND // 2)
    aging.write((MODIFY, aging.exact(ttl=2 * SECOND)))
    assert aging.go(2 * SECOND - 1000) == []
    assert aging.go(1000) == [key_of(aging.exact(ttl=2 * SECOND))]
    aging.write((MODIFY, aging.exact(ttl=SECOND, controller_metadata=3)))
    assert aging.go(SECOND) == [key_of(aging.exact(ttl=SECOND, controller_metadata=3))]
    aging.write((MODIFY, aging.exact(ttl=0)))
    assert aging.go(9 * SECOND) == []
    assert aging.since_hit(aging.exact()) == 12 * SECOND + SECOND // 2  # which MODIFY does not change


def test_deleted_entries(aging: Aging) -> None:
    """An entry in the place of one that was hit has not been hit."""
    aging.insert(aging.exact())
    aging.go(SECOND // 2)
    aging.hit()
    aging.go(SECOND // 4)
    aging.write((DELETE, aging.exact()), (INSERT, aging.exact(2)))
    assert aging.since_hit(aging.exact(2)) == 0
    assert aging.go(SECOND - 1000) == []
    assert aging.go(1000) == [key_of(aging.exact(2))]
    aging.write((DELETE, aging.exact(2)))
    assert aging.go(9 * SECOND) == []


def test_entries_that_packets_do_not_see_yet(aging: Aging) -> None:
    """Their time begins with the end of the batch."""
    with aging.pipeline.changing(nullcontext()):
        aging.control.write(p4rt.Update(type=INSERT, entity=aging.exact()))
        assert aging.go(3 * SECOND) == []
        assert aging.since_hit(aging.exact()) == 0
    assert aging.since_hit(aging.exact()) == 0
    assert aging.go(SECOND) == [key_of(aging.exact())]


def test_default_and_const_entries_do_not_time_out(aging: Aging, program: Program) -> None:
    default = program.entry("exact_timed", {}, program.action("mark", b"\x02"), is_default_action=True)
    aging.write((MODIFY, default))
    default.table_entry.idle_timeout_ns = SECOND
    with pytest.raises(RpcError, match="Default table entries do not support idle timeouts") as error:
        aging.write((MODIFY, default))
    assert error.value.code == INVALID
    assert aging.go(9 * SECOND) == []
    const = program.entry("const_timed", {1: b"\xc0"})
    assert aging.since_hit(const) == 9 * SECOND
    aging.hit(0xC0)
    assert aging.since_hit(const) == 0


def test_an_entry_without_a_timeout(aging: Aging) -> None:
    """The time since its last hit is known all the same."""
    aging.insert(aging.exact(ttl=0))
    assert aging.go(SECOND) == []
    assert aging.since_hit(aging.exact()) == SECOND
    aging.hit()
    aging.go(5000)
    assert aging.since_hit(aging.exact()) == 5000
    response = p4rt.ReadResponse()
    question = aging.exact()
    aging.control.read(question, response)
    assert not response.entities[0].table_entry.HasField("time_since_last_hit")


def test_the_shortest_time(aging: Aging) -> None:
    """10 ms, for a shorter one too; it is read as it was written."""
    aging.insert(aging.exact(ttl=1))
    assert aging.go(10 * MILLISECOND - 1000) == []
    assert aging.go(1000) == [key_of(aging.exact(ttl=1))]


def test_many_entries(aging: Aging) -> None:
    """One notification of all that are due; the table's memory grows."""
    entities = [aging.exact(dst) for dst in range(200)]
    aging.insert(*entities)
    aging.go(SECOND // 2)
    for dst in range(0, 200, 2):
        aging.hit(dst)
    aging.wait(SECOND // 2)
    assert len(aging.messages) == 1
    expected = sorted((key_of(each) for each in entities[1::2]), key=str)
    assert sorted(aging.taken(), key=str) == expected
    assert len(aging.go(SECOND // 2)) == 100


def test_large_notifications_are_split(aging: Aging) -> None:
    entities = [aging.exact(dst, metadata=bytes(400_000)) for dst in range(5)]
    aging.insert(*entities, aging.exact(9, metadata=bytes(2_000_000)))
    aging.wait(SECOND)
    assert sorted(len(each.idle_timeout_notification.table_entry) for each in aging.messages) == [1, 1, 2, 2]
    assert len(aging.taken()) == 6


def test_what_is_out_of_date_takes_no_room(aging: Aging) -> None:
    aging.insert(aging.exact(), aging.exact(2))
    for _ in range(3000):
        aging.write((MODIFY, aging.exact()))
    assert len(aging.control.idle_timeouts._heap) <= 2 * 2 + idle_timeouts._SLACK


def test_entries_of_a_program_that_does_not_run_yet(aging: Aging) -> None:
    """Their time begins with the COMMIT."""
    aging.insert(aging.exact())
    old = aging.save()
    aging.insert(aging.exact(2))
    assert aging.go(SECOND) == []
    old.idle_timeouts.check()
    assert aging.taken() == [key_of(aging.exact())]  # the old program still runs
    aging.control.start()
    old.close()
    assert aging.go(SECOND - 1000) == []
    assert aging.go(1000) == [key_of(aging.exact(2))]


def test_entries_that_are_kept(aging: Aging) -> None:
    """A reconciled program knows when packets hit its entries."""
    aging.insert(aging.exact(2), aging.exact())
    aging.go(SECOND // 2)
    aging.write((DELETE, aging.exact(2)))
    aging.hit()
    aging.go(SECOND // 4)
    aging.reconcile()
    assert aging.since_hit(aging.exact()) == SECOND // 4
    aging.go(SECOND // 2)
    aging.hit()
    assert aging.go(SECOND - 1000) == []
    assert aging.go(1000) == [key_of(aging.exact())]


def test_no_notification_after_the_end(aging: Aging) -> None:
    aging.insert(aging.exact())
    aging.control.close()
    assert aging.go(9 * SECOND) == []


def test_p4info_of_another_program(program: Program) -> None:
    info = p4info_pb2.P4Info.FromString(program.p4info.SerializeToString())
    table = next(each for each in info.tables if each.preamble.alias == "untimed")
    table.idle_timeout_behavior = p4info_pb2.Table.NOTIFY_CONTROL
    with pytest.raises(RpcError, match="untimed has idle timeouts in the p4info and not in the JSON") as error:
        Control(P4Info.parse(info), load_pipeline(program.json), lambda _: None)
    assert error.value.code == INVALID


def test_a_table_without_timeouts_reads_no_clock(program: Program) -> None:
    without = json.loads(program.json)
    for table in without["pipelines"][0]["tables"]:
        table["support_timeout"] = False
    counts = [len(re.findall(r"call i64 %\w+\(ptr %c\)", dump(text))) for text in (program.json, json.dumps(without))]
    assert counts[0] - counts[1] == 5


class Model:
    """The rule, without a heap: when each entry's time began, and its length."""

    def __init__(self) -> None:
        self.time = 0
        self.entries: dict[int, tuple[int, int]] = {}

    def go(self, microseconds: int) -> set[int]:
        self.time += microseconds
        found = {dst for dst, (begin, ttl) in self.entries.items() if ttl and begin + ttl <= self.time}
        for dst in found:
            self.entries[dst] = self.time, self.entries[dst][1]
        return found


STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "delete", "hit", "go"]), st.integers(1, 4), st.sampled_from([0, 20, 30, 70])), max_size=60
)


@given(STEPS)
def test_the_rule(steps: list[tuple[str, int, int]]) -> None:
    """Notifications come for the entries for which a slower way finds them due."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_timeouts, "_SLACK", 1)  # the heap is made anew all the time
        aging, model = Aging(Program("state")), Model()
        for kind, dst, milliseconds in steps:
            if kind == "set":
                update = MODIFY if dst in model.entries else INSERT
                aging.write((update, aging.exact(dst, milliseconds * MILLISECOND)))
                model.entries[dst] = model.time, milliseconds * 1000
            elif kind == "delete" and dst in model.entries:
                aging.write((DELETE, aging.exact(dst)))
                del model.entries[dst]
            elif kind == "hit":
                aging.hit(dst)
                if dst in model.entries:
                    model.entries[dst] = model.time, model.entries[dst][1]
            elif kind == "go":
                found = {each.match[0].exact.value[0] for each in aging.go(milliseconds * MILLISECOND)}
                assert found == model.go(milliseconds * 1000)
        aging.control.close()


# The switches


def test_a_notification_comes(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    entity = program.marking("exact_timed", {1: b"\x01"}, 1, idle_timeout_ns=20 * MILLISECOND, controller_metadata=7)
    controller.write(INSERT, entity)
    expected = key_of(entity)
    for _ in range(2):
        found = controller.next("idle_timeout_notification")
        assert list(found.table_entry) == [expected]
        assert found.timestamp > 0
    entity.table_entry.idle_timeout_ns = 0
    controller.write(MODIFY, entity)
    question = program.entry("exact_timed", {1: b"\x01"})
    question.table_entry.time_since_last_hit.SetInParent()
    [found] = controller.read(question)
    assert found.table_entry.HasField("time_since_last_hit")
    assert found.table_entry.idle_timeout_ns == 0
    assert p4rt_switch.passed(frame(1), 2) is not None


def test_the_longest_time(p4rt_embedded: SwitchUnderTest, program: Program) -> None:
    """292 years, and another entry's notification comes all the same."""
    with Controller(p4rt_embedded.grpc_address).become_primary() as controller:
        controller.push(program)
        longest = program.marking("exact_timed", {1: b"\x02"}, 1, idle_timeout_ns=2**63 - 1)
        entity = program.marking("exact_timed", {1: b"\x01"}, 1, idle_timeout_ns=20 * MILLISECOND)
        controller.write(INSERT, longest)
        controller.write(INSERT, entity)
        assert list(controller.next("idle_timeout_notification").table_entry) == [key_of(entity)]
        question = program.entry("exact_timed", {1: b"\x02"})
        assert controller.read(question)[0].table_entry.idle_timeout_ns == 2**63 - 1


def test_only_the_primary_is_notified(connect: Connect, program: Program) -> None:
    primary, backup = connect(2).become_primary(), connect(1)
    backup.ask_for_mastership()
    backup.next("arbitration")
    primary.push(program)
    primary.write(INSERT, program.marking("exact_timed", {1: b"\x01"}, 1, idle_timeout_ns=20 * MILLISECOND))
    primary.next("idle_timeout_notification")
    primary.next("idle_timeout_notification")
    assert backup.none_within(SILENCE)


def test_timeouts_that_are_refused(controller: Controller, program: Program) -> None:
    negative = program.marking("exact_timed", {1: b"\x01"}, 1, idle_timeout_ns=-1)
    assert controller.refused(INSERT, negative) == (INVALID, "idle_timeout_ns must be a positive value")
    untimed = program.marking("untimed", {1: b"\x01"}, 1, idle_timeout_ns=1)
    text = "idle_timeout_ns must be set to 0 for tables which do not support idle timeout"
    assert controller.refused(INSERT, untimed) == (INVALID, text)
    stamped = program.marking("exact_timed", {1: b"\x01"}, 1)
    stamped.table_entry.time_since_last_hit.SetInParent()
    assert controller.refused(INSERT, stamped) == (INVALID, "has_time_since_last_hit must not be set in WriteRequest")
    for table, is_default in (("untimed", False), ("exact_timed", True)):
        question = program.entry(table, {}, is_default_action=is_default)
        question.table_entry.time_since_last_hit.SetInParent()
        with pytest.raises(grpc.RpcError) as error:
            controller.read(question)
        assert refusal_of(error.value).endswith("INVALID_ARGUMENT")
