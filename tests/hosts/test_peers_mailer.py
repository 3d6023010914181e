"""Messages between members over datagrams that are lost, doubled and reordered; time is simulated."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.peers.mailer import ASK_AFTER, ASK_FIRST, Mailer
from netsum.peers.wire import RANK, SEGMENT, Flag
from netsum.stats import Stats

ROOM = 100
LATENCY = 0.001


class Mail:
    """Members' mailers and the network between them."""

    def __init__(self, workers: int, seed: int, loss: float = 0.0, twice: float = 0.0, late: float = 0.0) -> None:
        self.mailers = [
            Mailer([other for other in range(workers) if other != rank], 1, ROOM, 0, Stats()) for rank in range(workers)
        ]
        self.got: dict[tuple[int, int], list[bytes]] = {}
        self.now = 0.0
        self.rng = random.Random(seed)
        self.loss, self.twice, self.late = loss, twice, late
        self.flying: list[tuple[float, int, int, bytes]] = []
        self.flown = 0

    def launch(self, sender: int, datagram: tuple[bytes | bytearray | memoryview, ...]) -> None:
        data = b"".join(datagram)
        for _ in range(2 if self.rng.random() < self.twice else 1):
            if self.rng.random() < self.loss:
                continue
            delay = LATENCY * (self.rng.uniform(1, 10) if self.rng.random() < self.late else 1)
            self.flown += 1
            heapq.heappush(self.flying, (self.now + delay, self.flown, data[0], RANK.pack(sender) + data[1:]))

    def step(self) -> None:
        """Everyone sends what it may; time goes on to what happens next."""
        for rank, mailer in enumerate(self.mailers):
            for datagram in mailer.poll(self.now, waiting=False):
                self.launch(rank, datagram)
        deadlines = [deadline for mailer in self.mailers if (deadline := mailer.next_deadline()) is not None]
        self.now = min([*deadlines, *(when for when, *_ in self.flying[:1])], default=self.now)
        while self.flying and self.flying[0][0] <= self.now:
            _, _, receiver, data = heapq.heappop(self.flying)
            rank, messages = self.mailers[receiver].receive(memoryview(data), self.now)
            self.got.setdefault((rank, receiver), []).extend(messages)

    def run(self) -> None:
        """Until everything has arrived and is known to have."""
        for _ in range(20_000):
            before = self.flown - len(self.flying)
            self.step()
            if self.flown == before and all(mailer.settled for mailer in self.mailers):
                return  # nothing was on the way, and nobody had anything to say
        pytest.fail("it does not end")


@given(
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(1, 15 * ROOM)), max_size=40),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.3]),
)
def test_messages_arrive_once_whole_and_in_order(
    seed: int, letters: list[tuple[int, int, int]], loss: float, twice: float, late: float
) -> None:
    mail = Mail(3, seed, loss, twice, late)
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
    for mailer in mail.mailers:
        assert mailer.stats.malformed == 0
        if not (loss or twice or late):
            assert mailer.stats.retransmissions == mailer.stats.duplicates == 0


def test_what_is_lost_in_the_middle_is_found_before_the_timer() -> None:
    mail = Mail(2, 1)
    mail.mailers[0].post(1, bytes(8 * ROOM))
    for number, datagram in enumerate(mail.mailers[0].poll(0.0, waiting=False)):
        if number != 2:
            mail.launch(0, datagram)
    mail.run()
    stats = mail.mailers[0].stats
    assert (stats.retransmissions, stats.fast_retransmissions) == (1, 1)
    assert mail.now < 0.01
    assert mail.got[0, 1] == [bytes(8 * ROOM)]


def test_segments_under_way_are_bounded_and_grow_with_success() -> None:
    mail = Mail(2, 1)
    mail.mailers[0].post(1, bytes(1000 * ROOM))
    flights = []
    while not mail.mailers[0].settled:
        before = mail.mailers[0].stats.packets_sent
        mail.step()
        flights.append(mail.mailers[0].stats.packets_sent - before)
    assert flights[0] == 10
    assert 32 < max(flights) <= 64
    assert mail.got[0, 1] == [bytes(1000 * ROOM)]


def test_a_silent_end_is_asked_less_and_less_and_others_are_served() -> None:
    mail = Mail(3, 1)
    silent = mail.mailers[2]
    mail.mailers[2] = Mailer([0, 1], 1, ROOM, 0, Stats())
    mail.mailers[2].receive = lambda datagram, now: (datagram[0], [])  # type: ignore[method-assign]  # noqa: ARG005
    for receiver in (1, 2):
        mail.mailers[0].post(receiver, b"letter")
    while mail.now < 10.0:
        mail.step()
    assert mail.got[0, 1] == [b"letter"]
    assert mail.mailers[0].stats.retransmissions < 15
    mail.mailers[2] = silent
    mail.run()
    assert mail.got[0, 2] == [b"letter"]


def test_whoever_waits_asks_and_hears_how_far_the_others_are() -> None:
    mail = Mail(3, 1)
    mail.mailers[1].at = 7
    assert mail.mailers[0].poll(0.0, waiting=True) == []
    assert mail.mailers[0].poll(ASK_FIRST / 2, waiting=True) == []
    mail.now = ASK_FIRST
    for datagram in mail.mailers[0].poll(mail.now, waiting=True):
        mail.launch(0, datagram)
    mail.run()
    assert mail.mailers[0].others_at == {1: 7, 2: 0}
    assert mail.mailers[0].algorithms == {1: 1, 2: 1}
    assert mail.mailers[0].heard(1) == pytest.approx(ASK_FIRST + 2 * LATENCY)
    assert mail.mailers[0].unanswered == {1: 0, 2: 0}


def test_questions_that_nobody_answers_are_counted_and_get_fewer() -> None:
    asked = []
    mailer = Mail(2, 1).mailers[0]
    for step in range(200):
        if mailer.poll(step / 100, waiting=True):
            asked.append(step / 100)
    assert mailer.unanswered == {1: len(asked)}
    pauses = [round(later - earlier, 2) for earlier, later in itertools.pairwise(asked)]
    assert pauses == pytest.approx([0.1, 0.2] + [ASK_AFTER] * (len(asked) - 3), abs=0.015)


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


@pytest.mark.parametrize("datagram", [b"", b"\x01", bytes(SEGMENT.size), b"\x05" + bytes(SEGMENT.size)])
def test_datagrams_that_make_no_sense_are_counted(datagram: bytes) -> None:
    mailer = Mail(2, 1).mailers[0]
    assert mailer.receive(memoryview(datagram), 0.0)[1] == []
    assert mailer.stats.malformed == 1


def test_numbers_go_around() -> None:
    mail = Mail(2, 3, loss=0.2, late=0.2)
    for mailer, peer in zip(mail.mailers, (1, 0), strict=True):
        end = mailer._ends[peer]
        end._next = end._expected = 0xFFFFFFF0
    letters = [bytes([number]) * 250 for number in range(30)]
    for letter in letters:
        mail.mailers[0].post(1, letter)
    mail.run()
    assert mail.got[0, 1] == letters
