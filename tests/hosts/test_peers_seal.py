"""Seals: who hears every datagram, and sends what it likes in whatever order, is taken for nobody and repeats nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.peers.seal import HELD, REORDERED, Seal
from netsum.peers.wire import RANK, SEAL
from netsum.transports.base import Packet

KEY = bytes(16)


class Ends:
    """Two processes, and all that was ever sent between them."""

    def __init__(self, key: bytes = KEY) -> None:
        self.seals = [Seal(KEY, 0, [1]), Seal(key, 1, [0])]
        self.flown: list[tuple[int, bytes]] = []
        self.taken: list[bytes] = []

    def send(self, sender: int, packets: Iterable[Packet]) -> list[tuple[int, bytes]]:
        """Datagrams on the way, with their receivers."""
        flying = [(1 - sender, b"".join(packet)) for packet in packets]
        self.flown += flying
        return flying

    def say(self, sender: int, text: bytes) -> list[tuple[int, bytes]]:
        return self.send(sender, [self.seals[sender].close(1 - sender, (text,))])

    def arrive(self, receiver: int, datagram: bytes) -> list[tuple[int, bytes]]:
        opened = self.seals[receiver].open(memoryview(datagram))
        if opened is None:
            return []
        if opened.says:
            self.taken.append(datagram[SEAL.size + RANK.size :])
        return self.send(receiver, opened.answers)

    def arrive_all(self, flying: list[tuple[int, bytes]]) -> None:
        while flying:
            flying = [each for way in flying for each in self.arrive(*way)]


@pytest.fixture
def met() -> Ends:
    ends = Ends()
    ends.arrive_all(ends.say(0, b"hello"))
    ends.arrive_all(ends.say(1, b"and you"))
    assert ends.taken == [b"hello", b"and you"]
    return ends


def test_what_is_said_before_the_other_is_known_is_held_and_comes(met: Ends) -> None:
    late = Ends()
    late.flown.clear()
    for number in range(HELD + 2):
        late.say(0, b"%d" % number)  # lost: nobody is there yet
    late.arrive_all(late.say(0, b"now"))
    assert late.taken == [*(b"%d" % number for number in range(3, HELD + 2)), b"now"]
    assert len(met.flown) == 2 + 1 + 1  # question, answer, and once a packet


@given(st.integers(0, 10**6))
def test_whatever_comes_again_and_in_whatever_order_is_taken_once(seed: int) -> None:
    rng = random.Random(seed)
    ends = Ends()
    said = [b"%d" % number for number in range(20)]
    for number, text in enumerate(said):
        ends.say(number % 2, text)
    for _ in range(400):
        ends.arrive(*rng.choice(ends.flown))
    for way in list(ends.flown):
        ends.arrive_all([way])
    assert sorted(ends.taken) == sorted(said)


def test_who_does_not_have_the_key_is_nobody(met: Ends) -> None:
    assert Ends(key=bytes(15) + b"\1").say(1, b"hello")
    for receiver, datagram in list(met.flown):
        for at in range(len(datagram)):
            other = bytearray(datagram)
            other[at] ^= 0x10
            assert met.seals[receiver].open(memoryview(other)) is None
        assert met.seals[receiver].open(memoryview(datagram)[:-1]) is None
        assert met.seals[1 - receiver].open(memoryview(datagram)) is None, "sent back to who has said it"
    stranger = Ends(key=bytes(15) + b"\1")
    stranger.arrive_all(stranger.say(1, b"hello"))
    stranger.arrive_all(stranger.say(0, b"hello"))
    assert stranger.taken == []


def test_a_process_with_the_key_of_another_run_is_not_gone_on_with(met: Ends) -> None:
    """Copies of one descriptor: rank 1 comes again, and what its first process has said is sent again, too."""
    recorded, first = list(met.flown), met.seals[1]
    met.seals[1] = Seal(KEY, 1, [0])
    met.taken.clear()
    met.arrive_all(met.say(1, b"I am new"))
    met.arrive_all(met.say(0, b"to the first"))
    for way in recorded:
        met.arrive_all([way])
    assert met.taken == []
    met.seals[1] = first
    met.arrive_all(met.say(1, b"still here"))
    assert met.taken == [b"still here"]


def test_too_late_is_dropped_and_not_taken_twice(met: Ends) -> None:
    (early,) = met.say(0, b"early")
    for number in range(REORDERED):
        met.arrive_all(met.say(0, b"%d" % number))
    met.taken.clear()
    met.arrive_all([early])
    assert met.taken == []


@pytest.mark.parametrize("size", [0, 1, SEAL.size, SEAL.size + 1, 200])
def test_what_is_no_datagram_of_members_is_nothing(size: int) -> None:
    assert Seal(KEY, 0, [1]).open(memoryview(b"\1" * size)) is None
