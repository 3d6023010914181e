# SPDX-License-Identifier: MIT
"""Egress queues: what waits, for how long, and what a program sees of it; packets that start over many times."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_switch.errors import SwitchError
from netsum_switch.native.layout import MAX_PASSES, PASSES_IN_TURN
from netsum_switch.pipeline import load_pipeline
from netsum_switch.ports import Port
from netsum_switch.queues import DEFAULT_DEPTH, QueueError, QueueOptions, Queues

from tests.switch.harness.controller import PROGRAMS

UNICAST, MULTICAST, CLONE, RECIRCULATE, RESUBMIT = range(5)
REQUEST, TRACE = struct.Struct(">BBBxI"), struct.Struct(">IIIIHH")
JSON = (PROGRAMS / "queues.json").read_bytes()


def request(operation: int = UNICAST, target: int = 1, priority: int = 0, passes: int = 0, number: int = 0) -> bytes:
    return REQUEST.pack(operation, target, priority, passes) + bytes(48) + number.to_bytes(4, "big")


class Seen(NamedTuple):
    """What egress saw of a packet, and its number."""

    port: int
    number: int
    enqueued: int
    depth_before: int
    waited: int
    depth_after: int
    rid: int


def seen(port: int, frame: bytes) -> Seen:
    enqueued, before, waited, after, egress_port, rid = TRACE.unpack_from(frame)
    assert egress_port == port
    return Seen(port, int.from_bytes(frame[-4:], "big"), enqueued, before, waited, after, rid)


class SlowPort:
    """A port that takes so many packets, and then is full."""

    def __init__(self, room: int = 0) -> None:
        self.room = room

    def is_full(self) -> bool:
        return self.room <= 0


class Bench:
    """A program with queues, and a clock that stands still until a test moves it."""

    def __init__(self, options: QueueOptions, ports: dict[int, SlowPort] | None = None) -> None:
        self.now = 1_000_000_000  # nanoseconds
        self.ports = ports or {}
        known: dict[int, Port] = {number: port for number, port in self.ports.items()}  # type: ignore[misc]  # noqa: C416
        self.queues = Queues(known, options, lambda: self.now)
        self.pipeline = load_pipeline(JSON, clock=lambda: self.now // 1000, queued=options.are_wanted)
        self.pipeline.bind_queues(self.queues)
        for port in self.ports:  # as machine code does for an interface that is full
            self.queues.hold(port)

    def send(self, *frames: bytes) -> list[Seen]:
        return [seen(*out) for frame in frames for out in self.pipeline.process(9, frame)]

    def go_on(self, until: int | None = None) -> list[Seen]:
        """Let the packets go whose time has come, one after the other, up to a time, in microseconds from now."""
        end = self.now + (until or 0) * 1000
        found: list[Seen] = []
        while (due := self.queues.due()) is not None and due <= end:
            self.now = max(self.now, due)
            while (job := self.queues.take()) is not None:
                for port, frame in job():
                    found.append(seen(port, frame))
                    if port in self.ports:
                        self.ports[port].room -= 1
        self.now = end
        return found

    def depth(self, port: int, priority: int = 0) -> int:
        return self.queues.memory.number((port * 8 + priority) * 8, 4)


def test_a_port_that_nothing_slows_down_has_no_queue() -> None:
    bench = Bench(QueueOptions())
    assert bench.send(*(request(number=number) for number in range(100))) == [
        Seen(1, number, 1_000_000, 0, 0, 0, 0) for number in range(100)
    ]
    assert bench.queues.due() is None


def test_a_rate_spaces_the_packets_of_a_queue() -> None:
    bench = Bench(QueueOptions(rate=1000))
    assert bench.send(*(request(number=number) for number in range(4))) == []
    assert bench.go_on(10_000) == [Seen(1, n, 1_000_000, n, n * 1000, 3 - n, 0) for n in range(4)]
    assert bench.send(request(number=9)) == []
    assert [each.waited for each in bench.go_on(10_000)] == [0]


def test_a_full_queue_drops_what_comes() -> None:
    bench = Bench(QueueOptions(rate=1000, depths={2: 3}))
    for port, depth in ((1, DEFAULT_DEPTH), (2, 3)):
        assert bench.send(*(request(target=port, number=number) for number in range(depth + 7))) == []
        assert bench.depth(port) == depth
        out = [each for each in bench.go_on(1_000_000) if each.port == port]
        assert [each.number for each in out] == list(range(depth))
        assert [each.depth_before for each in out] == list(range(depth))
        assert [each.depth_after for each in out] == list(reversed(range(depth)))
        assert bench.depth(port) == 0


def test_rates_of_ports_are_their_own() -> None:
    bench = Bench(QueueOptions(rates={2: 10}))
    assert [each.number for each in bench.send(request(target=1, number=5), request(target=2, number=6))] == [5]
    assert [each.number for each in bench.send(request(target=2, number=7), request(target=1, number=8))] == [8]
    assert [(each.number, each.waited) for each in bench.go_on(1_000_000)] == [(6, 0), (7, 100_000)]


def test_the_highest_priority_is_served_first_and_each_in_order() -> None:
    bench = Bench(QueueOptions(priorities=8), {1: SlowPort()})
    order = [3, 0, 7, 3, 7, 0, 1]
    assert bench.send(*(request(priority=priority, number=at) for at, priority in enumerate(order))) == []
    bench.ports[1].room = 100
    assert [each.number for each in bench.go_on(2000)] == [2, 4, 0, 3, 6, 1, 5]


@pytest.mark.parametrize(("priorities", "left"), [(1, 1), (2, 2), (8, 8)])
def test_a_priority_without_a_queue_is_dropped(priorities: int, left: int) -> None:
    bench = Bench(QueueOptions(priorities=priorities))
    assert len(bench.send(*(request(priority=priority) for priority in range(8)))) == left


def test_packets_wait_for_a_full_interface_and_no_other_port_does() -> None:
    bench = Bench(QueueOptions(), {1: SlowPort(room=2)})
    frames = [request(target=target, number=target) for target in (1, 2, 1, 1, 2)]
    assert [each.number for each in bench.send(*frames)] == [2, 2]
    assert [(each.port, each.depth_before, each.depth_after) for each in bench.go_on()] == [(1, 0, 2), (1, 1, 1)]
    assert bench.go_on(100_000) == []
    bench.ports[1].room = 1
    [last] = bench.go_on(2000)
    assert (last.depth_before, last.depth_after) == (2, 0)
    assert 100_000 <= last.waited <= 102_000
    assert bench.queues.due() is None
    assert len(bench.send(request())) == 1  # nothing waits any more


def test_copies_wait_each_at_its_port() -> None:
    bench = Bench(QueueOptions(rates={2: 100, 3: 1000}))
    bench.pipeline.pre.set_group(5, [(1, 11), (2, 22), (3, 33)])
    bench.pipeline.pre.set_clone_session(7, [(3, 77)])
    assert [(each.port, each.rid) for each in bench.send(request(MULTICAST, 5))] == [(1, 11)]
    assert [(each.port, each.rid) for each in bench.send(request(CLONE, 1))] == [(1, 0)]
    out = bench.go_on(100_000)
    assert sorted((each.port, each.rid, each.waited) for each in out) == [(2, 22, 0), (3, 33, 0), (3, 77, 1000)]


def test_clones_have_the_priority_of_their_session() -> None:
    bench = Bench(QueueOptions(priorities=8), {1: SlowPort()})
    for priority, rids in ((5, [77, 77, 0, 0]), (2, [0, 0, 77, 77]), (0, [0, 0, 77, 77])):
        bench.pipeline.pre.set_clone_session(7, [(1, 77)], priority=priority)
        assert bench.send(*(request(CLONE, 1, priority=3) for _ in range(2))) == []
        bench.ports[1].room = 4
        assert [each.rid for each in bench.go_on(2000)] == rids
        bench.queues.hold(1)


def test_a_packet_that_waited_may_start_over() -> None:
    bench = Bench(QueueOptions(rate=1000))
    assert bench.send(request(RECIRCULATE, 1, passes=3, number=4)) == []
    assert [(each.number, each.waited) for each in bench.go_on(10_000)] == [(4, 1000)]  # each pass through the queue is new


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3000)), max_size=40), st.integers(1, 6))
def test_queues_are_those_of_the_definition(packets: list[tuple[int, int, int]], depth: int) -> None:
    """Against the definition: a packet leaves a millisecond after the one before it in its queue, or at once."""
    bench = Bench(QueueOptions(depth=depth, rate=1000, priorities=3))
    expected: list[tuple[int, int, int]] = []
    leaving: dict[tuple[int, int], list[int]] = {}
    found: list[Seen] = []
    for number, (port, priority, pause) in enumerate(packets):
        queue = leaving.setdefault((port, priority), [])
        if sum(at > bench.now for at in queue) < depth:
            queue.append(max(bench.now, queue[-1] + 1_000_000) if queue else bench.now)
            expected.append((queue[-1], number, port))
        assert bench.send(request(UNICAST, port, priority, number=number)) == []
        found += bench.go_on(pause)
    found += bench.go_on(1_000_000)
    assert sorted((each.number, each.port) for each in found) == sorted((number, port) for _, number, port in expected)
    times = {number: at for at, number, _ in expected}
    assert all((each.enqueued + each.waited) * 1000 == times[each.number] for each in found)


# Packets that start over


@pytest.mark.parametrize("operation", [RECIRCULATE, RESUBMIT])
@pytest.mark.parametrize("passes", [0, 1, PASSES_IN_TURN, PASSES_IN_TURN + 1, 1000])
def test_a_packet_starts_over_as_often_as_it_wants(operation: int, passes: int) -> None:
    pipeline = load_pipeline(JSON)
    [(port, frame)] = pipeline.process(9, request(operation, 2, passes=passes, number=3))
    assert seen(port, frame).number == 3


@pytest.mark.parametrize("operation", [RECIRCULATE, RESUBMIT])
def test_a_packet_that_starts_over_for_ever_lets_others_pass(operation: int) -> None:
    bench = Bench(QueueOptions())
    assert bench.send(request(operation, passes=1 << 31)) == []
    for _ in range(MAX_PASSES // PASSES_IN_TURN - 2):
        job = bench.queues.take_deferred()
        assert job is not None
        assert job() == []
        assert len(bench.send(request())) == 1
    last = bench.queues.take_deferred()
    assert last is not None
    with pytest.raises(SwitchError, match=f"started over {MAX_PASSES} times"):
        last()
    assert bench.queues.take_deferred() is None


def test_packets_that_start_over_are_bounded() -> None:
    bench = Bench(QueueOptions())
    for _ in range(1100):
        bench.send(request(RESUBMIT, passes=1 << 31))
    waiting = 0
    while bench.queues.take_deferred() is not None:
        waiting += 1
    assert waiting == 1024


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priorities": 0}, "0 priority queues: a port has 1 to 8"),
        ({"priorities": 9}, "9 priority queues"),
        ({"depth": -1}, "a queue of -1 packets"),
        ({"depths": {1: 1 << 21}}, "a queue of 2097152 packets"),
        ({"rate": -1.0}, "a rate of -1 packets per second"),
        ({"rates": {600: 5.0}}, "port 600: ports are numbered 0 to 511"),
    ],
)
def test_options_out_of_range(options: dict[str, int], message: str) -> None:
    with pytest.raises(QueueError, match=message):
        QueueOptions(**options)  # type: ignore[arg-type]
