# SPDX-License-Identifier: MIT
"""The congestion window: by itself, by the clock that it is given; sharing a link; and in the window of a job."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.core.congestion import AHEAD, BURST, MIN_LOSS_WINDOW, MIN_WINDOW, CongestionWindow
from netsum.frames import CE, ECT, FrameFormat
from netsum.packet_batch import ReceiveBatch, congested
from netsum.transports import UdpTransport

from tests.hosts.bottleneck import Bottleneck, Flow, Member, Reno
from tests.hosts.test_transports import HOST, SWITCH, udp_pair

WINDOW = 64
RTT = 0.001

events = st.lists(
    st.tuples(
        st.sampled_from(["marked", "lost", "stalled", "arrived", "room", "limit"]),
        st.integers(1, 80),
        st.floats(0, 0.01),
    )
)


def play(window: CongestionWindow, history: Sequence[tuple[str, int, float]]) -> float:
    """Drive a window; returns when it ends."""
    now = 1.0
    for what, number, wait in history:
        now += wait
        if what == "room":
            window.sent(max(window.room(now, 0, RTT), 0))
        elif what == "stalled":
            window.stalled()
        elif what == "arrived":
            window.arrived(number)
        elif what == "limit":
            window.limit(number)
        else:
            getattr(window, what)(*([number] if what == "marked" else []), 10)
    return now


@given(st.integers(1, 256), events)
def test_within_its_limits_whatever_happens(most: int, history: list[tuple[str, int, float]]) -> None:
    window = CongestionWindow(most)
    now = play(window, history)
    most = min([most, *(number for what, number, _ in history if what == "limit")])
    assert min(MIN_WINDOW, most) <= window.window <= most
    assert 0 <= window.share <= 1
    assert window.room(now, most, RTT) <= 0
    later = max(now, window.paced_until) + 1.0
    assert window.room(later, 0, RTT) >= 1, "nothing is held back for ever"


@given(st.integers(1, 256), st.lists(st.tuples(st.integers(0, 99), st.floats(0, 1))))
def test_where_nothing_is_congested_nothing_is_held_back(most: int, results: list[tuple[int, float]]) -> None:
    window, now = CongestionWindow(most), 0.0
    for number, wait in results:
        now += wait
        window.arrived(number)
        assert (window.room(now, 0, RTT), window.paced_until) == (most, 0.0)


@given(st.integers(2, 256), events)
def test_a_batch_of_results_is_as_many_single_ones(most: int, history: list[tuple[str, int, float]]) -> None:
    one, many = CongestionWindow(most), CongestionWindow(most)
    play(many, history)
    singly: list[tuple[str, int, float]] = []
    for what, number, wait in history:
        if what == "arrived":
            singly += [("arrived", 1, wait)] + [("arrived", 1, 0.0)] * (number - 1)
        else:
            singly.append((what, number, wait))
    play(one, singly)
    assert (one.window, one.share) == (many.window, many.share)


def test_marks_cut_once_in_a_round_trip_by_half_their_share() -> None:
    window = CongestionWindow(WINDOW)
    for _ in range(5):
        window.marked(2, 30)
        window.arrived(2)
    assert window.window == WINDOW / 2
    window.arrived(WINDOW)
    share = window.share
    assert share < 1
    before = window.window
    window.marked(1, 30)
    assert window.window == pytest.approx(before * (1 - share / 2))


def test_losses_halve_but_not_to_nothing() -> None:
    window = CongestionWindow(WINDOW)
    found = []
    for _ in range(4):
        window.lost(10)
        window.lost(10)
        found.append(window.window)
        window.arrived(10)
    assert found[:2] == [32, MIN_LOSS_WINDOW]
    assert min(found) == MIN_LOSS_WINDOW


def test_after_the_timer_it_is_soon_where_it_was() -> None:
    window = CongestionWindow(WINDOW)
    window.stalled()
    windows = []
    for _ in range(4):
        windows.append(int(window.window))
        window.arrived(int(window.window))
    assert windows == [16, 32, 64, 64]


@given(st.integers(0, 2**16), st.lists(st.floats(0.0001, 0.02), min_size=5, max_size=200))
def test_it_never_bursts_while_links_are_congested(marks: int, waits: list[float]) -> None:
    """However results come, what leaves in any time is at most half a window more than its rate."""
    window, now = CongestionWindow(WINDOW), 1.0
    window.room(now, 0, RTT)
    window.marked(1 + marks % 3, WINDOW)
    rate, left = AHEAD * window.window / RTT, [(now, 0)]
    for wait in waits:
        now += wait
        room = window.room(now, 0, RTT)
        assert room <= max(window.window / 2, BURST)
        window.sent(room)
        left.append((now, left[-1][1] + room))
    for begin, before in left:
        for end, after in left:
            if begin < end:
                assert after - before <= rate * (end - begin) + window.window / 2 + 1


RATE = 3000.0


@pytest.mark.parametrize("ecn", [8, 16, 30])
@pytest.mark.parametrize("delay", [0.001, 0.01])
@pytest.mark.parametrize("others", ["job", "tcp", "jobs"])
def test_a_link_is_shared_fairly_and_used(ecn: int, delay: float, others: str) -> None:
    """Within a fifth of a fair share, over ten seconds, with queues that stay short. ``jobs``: sixteen in all."""
    flows: list[Flow] = [Member(WINDOW, delay)]
    flows += [Reno()] if others == "tcp" else [Member(WINDOW, delay) for _ in range(15 if others == "jobs" else 1)]
    link = Bottleneck(flows, RATE, delay, ecn, queue=200)
    link.run(2.0)
    before, link.longest, link.dropped = list(link.delivered), 0, 0
    link.run(10.0)
    delivered = [after - then for after, then in zip(link.delivered, before, strict=True)]
    assert sum(delivered) >= 0.88 * RATE * 10
    assert all(0.8 <= each * len(flows) / sum(delivered) <= 1.2 for each in delivered)
    assert link.dropped == 0
    assert link.longest <= ecn + 2 * len(flows)


def test_the_property_of_a_fair_share_can_fail() -> None:
    """A window that follows nothing takes what it wants."""

    class Deaf(Member):
        def acknowledged(self, marked: bool) -> None: ...

    link = Bottleneck([Deaf(WINDOW, RTT), Member(WINDOW, RTT)], RATE, RTT, ecn=16, queue=200)
    link.run(10.0)
    assert link.delivered[0] > 5 * link.delivered[1]


def test_sixteen_jobs_into_a_queue_of_sixteen_packets() -> None:
    link = Bottleneck([Member(WINDOW, RTT) for _ in range(16)], RATE, RTT, ecn=8, queue=16)
    link.run(1.0)
    before, dropped = sum(link.delivered), link.dropped
    link.run(10.0)
    assert sum(link.delivered) - before >= 0.95 * RATE * 10
    assert link.dropped - dropped < 0.02 * RATE * 10


@pytest.mark.parametrize("pattern", [[1, 1, 1], [0, 1, 0], [0, 0, 0]])
def test_marks_of_frames_are_counted(pattern: list[int]) -> None:
    ours, theirs = FrameFormat(HOST, SWITCH), FrameFormat(SWITCH, HOST)
    frames = [bytearray(theirs.prefix(32) + bytes([at]) * 32) for at in range(3)]
    assert all(frame[15] & 3 == ECT for frame in frames)
    for frame, mark in zip(frames, pattern, strict=True):
        frame[15] |= CE if mark else 0
    found = ours.payloads(ReceiveBatch.of([bytes(frame) for frame in frames]))
    assert [bytes(packet) for packet in found] == [bytes([at]) * 32 for at in range(3)]
    assert congested(found) == sum(pattern)
    outsider = bytearray(frames[0])
    outsider[26] ^= 1
    mixed = ours.payloads(ReceiveBatch.of([bytes(outsider), *map(bytes, frames)]))
    assert (len(mixed), congested(mixed)) == (3, sum(pattern))


def test_the_kernel_tells_the_marks_of_datagrams() -> None:
    left, right = udp_pair()
    assert isinstance(left, UdpTransport)
    assert left.sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) & 3 == ECT
    left.send([(b"a" * 16,)])
    packets = right.recv(5.0)
    assert congested(packets) == 0
    left.sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT | 4)
    left.send([(b"a" * 16,)])
    packets = right.recv(5.0)
    assert congested(packets) == 0
    left.sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, CE)
    left.send([(b"b" * 16,)] * 2)
    seen, marks = 0, 0
    while seen < 2:
        packets = right.recv(5.0)
        seen, marks = seen + len(packets), marks + congested(packets)
    assert marks == 2
    left.close()
    right.close()
