# SPDX-License-Identifier: MIT
"""Messages between members over connections that break, and frames that are lost, doubled and reordered; time is simulated."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.peers.connections import ACK_EVERY
from netsum.peers.messenger import QUERY_AFTER, QUERY_FIRST, Messenger
from netsum.peers.wire import HEAD, RANK, Flag, rank_of
from netsum.stats import Stats

LATENCY = 0.001
LAST = 0.01
"""Seconds after which a member asks again when nothing is on the way."""


class Mail:
    """Members' mailers and the network between them."""

    def __init__(
        self, workers: int, seed: int, loss: float = 0.0, twice: float = 0.0, late: float = 0.0, cut: float = 0.0
    ) -> None:
        self.mailers = [Messenger([other for other in range(workers) if other != rank], 1, 0, Stats()) for rank in range(workers)]
        self.got: dict[tuple[int, int], list[bytes]] = {}
        self.now = 0.0
        self.rng = random.Random(seed)
        self.loss, self.twice, self.late, self.cut = loss, twice, late, cut
        self.flying: list[tuple[float, int, int, bytes]] = []
        self.flown = 0

    def launch(self, sender: int, frame: tuple[bytes | bytearray | memoryview, ...]) -> None:
        data = b"".join(frame)
        for _ in range(2 if self.rng.random() < self.twice else 1):
            if self.rng.random() < self.cut:
                self.break_connection(sender, rank_of(data))
                continue
            if self.rng.random() < self.loss:
                continue
            delay = LATENCY * (self.rng.uniform(1, 10) if self.rng.random() < self.late else 1)
            self.fly(delay, sender, data)

    def fly(self, delay: float, sender: int, data: bytes) -> None:
        self.flown += 1
        heapq.heappush(self.flying, (self.now + delay, self.flown, rank_of(data), RANK.pack(sender) + data[RANK.size :]))

    def break_connection(self, sender: int, receiver: int) -> None:
        """Messages on the way are lost, and the receiver is told so over another connection."""
        self.flying = [each for each in self.flying if (rank_of(each[3]), each[2]) != (sender, receiver)]
        heapq.heapify(self.flying)
        self.fly(LATENCY, sender, RANK.pack(receiver))

    def step(self, waiting: Collection[int] = ()) -> None:
        """Let everyone send what it may, and those that wait ask now and then; advance time to the next event."""
        for rank, messenger in enumerate(self.mailers):
            for frame in messenger.poll(self.now, waiting=rank in waiting):
                self.launch(rank, frame)
        self.now = self.flying[0][0] if self.flying else self.now + LAST
        while self.flying and self.flying[0][0] <= self.now:
            _, _, receiver, data = heapq.heappop(self.flying)
            rank, messages = self.mailers[receiver].receive(memoryview(data), self.now)
            self.got.setdefault((rank, receiver), []).extend(messages)

    def run(self) -> None:
        """Go on until everything has arrived and is known to have: a member waits for that, and asks."""
        for _ in range(20_000):
            before = self.flown - len(self.flying)
            self.step(range(len(self.mailers)))
            if self.flown == before and all(messenger.settled for messenger in self.mailers):
                return  # nothing was on the way, and no member had anything to say
        pytest.fail("it does not end")


@given(
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(0, 1500)), max_size=40),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.02, 0.3]),
)
def test_messages_arrive_once_whole_and_in_order(
    seed: int, letters: list[tuple[int, int, int]], loss: float, twice: float, late: float, cut: float
) -> None:
    mail = Mail(3, seed, loss, twice, late, cut)
    sent: dict[tuple[int, int], list[bytes]] = {}
    for sender, distance, size in letters:
        receiver = (sender + distance) % 3
        message = mail.rng.randbytes(size)
        mail.mailers[sender].post(receiver, message)
        sent.setdefault((sender, receiver), []).append(message)
        if mail.rng.random() < 0.3:
            mail.step()
    mail.run()
    assert {way: got for way, got in mail.got.items() if got} == sent
    for messenger in mail.mailers:
        assert messenger.stats.malformed == 0
        if not (loss or twice or late or cut):
            assert messenger.stats.retransmissions == messenger.stats.duplicates == 0


def test_what_a_broken_connection_loses_is_sent_again_at_once_and_once() -> None:
    mail = Mail(2, 1)
    letters = [bytes([number]) * 10 for number in range(30)]
    for number, letter in enumerate(letters):
        mail.mailers[0].post(1, letter)
        if number == 9:
            mail.step()
    for frame in mail.mailers[0].poll(mail.now, waiting=False):
        mail.launch(0, frame)
    mail.break_connection(0, 1)
    for _ in range(3):
        mail.step()
    assert mail.got[0, 1] == letters
    assert mail.now < 5 * LATENCY
    assert (mail.mailers[0].stats.retransmissions, mail.mailers[1].stats.duplicates) == (20, 0)


def test_a_loss_in_the_middle_is_found_before_it_is_requested() -> None:
    mail = Mail(2, 1)
    letters = [bytes([number]) for number in range(8)]
    for letter in letters:
        mail.mailers[0].post(1, letter)
    for number, frame in enumerate(mail.mailers[0].poll(0.0, waiting=False)):
        if number != 2:
            mail.launch(0, frame)
    for _ in range(3):
        mail.step()
    assert mail.got[0, 1] == letters
    assert mail.mailers[0].stats.retransmissions == 6
    assert mail.now < QUERY_FIRST


def test_what_is_lost_at_the_end_is_found_by_asking() -> None:
    for loser in (0, 1):
        mail = Mail(2, 1)
        mail.mailers[0].post(1, b"letter")
        assert len(mail.mailers[0].poll(0.0, waiting=False)) == 1  # lost
        while mail.now < 2 * QUERY_FIRST:
            mail.step([loser])
        assert mail.got[0, 1] == [b"letter"], f"rank {loser} asks"


def test_few_frames_do_nothing_but_acknowledge() -> None:
    mail = Mail(2, 1)
    for number in range(10 * ACK_EVERY):
        mail.mailers[0].post(1, bytes([number]))
        mail.step()
    mail.step()
    assert mail.mailers[1].stats.packets_sent == 10
    assert mail.mailers[0].settled


def test_a_silent_end_is_sent_to_once_and_others_are_served() -> None:
    mail = Mail(3, 1)
    silent = mail.mailers[2]
    mail.mailers[2] = Messenger([0, 1], 1, 0, Stats())
    mail.mailers[2].receive = lambda frame, now: (rank_of(frame), [])  # type: ignore[method-assign]  # noqa: ARG005
    for receiver in (1, 2):
        mail.mailers[0].post(receiver, b"letter")
    while mail.now < 10.0:
        mail.step([0])
    assert mail.got[0, 1] == [b"letter"]
    assert mail.mailers[0].stats.retransmissions == 0
    mail.mailers[2] = silent
    mail.run()
    assert mail.got[0, 2] == [b"letter"]


def test_a_waiting_rank_learns_how_far_the_others_are() -> None:
    mail = Mail(3, 1)
    mail.mailers[1].at = 7
    assert mail.mailers[0].poll(0.0, waiting=True) == []
    assert mail.mailers[0].poll(QUERY_FIRST / 2, waiting=True) == []
    mail.now = QUERY_FIRST
    for frame in mail.mailers[0].poll(mail.now, waiting=True):
        mail.launch(0, frame)
    mail.run()
    assert mail.mailers[0].others_at == {1: 7, 2: 0}
    assert mail.mailers[0].algorithms == {1: 1, 2: 1}
    assert mail.mailers[0].last_received(1) == pytest.approx(QUERY_FIRST + 2 * LATENCY)
    assert mail.mailers[0].unanswered == {1: 0, 2: 0}


def test_unanswered_requests_are_counted_and_get_fewer() -> None:
    asked = []
    messenger = Mail(2, 1).mailers[0]
    for step in range(200):
        if messenger.poll(step / 100, waiting=True):
            asked.append(step / 100)
    assert messenger.unanswered == {1: len(asked)}
    pauses = [round(later - earlier, 2) for earlier, later in itertools.pairwise(asked)]
    assert pauses == pytest.approx([0.1, 0.2] + [QUERY_AFTER] * (len(asked) - 3), abs=0.015)


def test_who_differs_or_leaves_says_so_in_everything_it_sends() -> None:
    mail = Mail(2, 1)
    one, other = mail.mailers
    one.say(Flag.DIFFER, 42)  # lost
    one.post(1, b"letter")
    mail.run()
    assert other.differing == {0: 42}
    other.post(0, b"answer")
    one.say(Flag.BYE, 42)
    one.post(1, b"last")
    while not other.gone:
        mail.step()
    assert other.settled, "it needs nothing more"
    other.post(0, b"too late")
    assert other.settled


def test_answers_and_acknowledgments_of_what_was_never_sent_change_nothing() -> None:
    mail = Mail(2, 1)
    nonsense = RANK.pack(1) + HEAD.pack(Flag.AGAIN, 1, 0, 7, 1 << 63)
    mail.mailers[0].receive(memoryview(nonsense), 0.0)
    mail.mailers[0].post(1, b"letter")
    mail.mailers[0].receive(memoryview(nonsense), 0.0)
    mail.run()
    assert mail.got[0, 1] == [b"letter"]


@pytest.mark.parametrize("frame", [b"", b"\x05", b"\x01" + bytes(HEAD.size - 1), b"\x05" + bytes(HEAD.size)])
def test_frames_that_make_no_sense_are_counted(frame: bytes) -> None:
    messenger = Mail(2, 1).mailers[0]
    assert messenger.receive(memoryview(frame), 0.0)[1] == []
    assert messenger.stats.malformed == 1
    assert messenger.poll(0.0, waiting=False) == []
