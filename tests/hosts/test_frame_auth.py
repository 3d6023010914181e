# SPDX-License-Identifier: MIT
"""Seals: an attacker who hears every byte and sends anything, on its own or others' connections, cannot pass for a member."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.peers.wire import HELLO, TAG_BYTES, FrameAuth, Identity

KEY = bytes(16)
OTHER_KEY = bytes(15) + b"\1"
BODIES = [b"", b"hello", b"and", b"again", b"again"]


class Connection:
    """A connection from one process to another, and everything that passed."""

    def __init__(self, sender: Identity, receiver: Identity, to: int = 1) -> None:
        self.greeting = receiver.greet()
        answer = sender.answer(self.greeting, to)
        assert answer is not None
        self.hello, self.closing = answer
        self.met = receiver.meet(self.greeting, self.hello)
        self.frames = [(self.closing.tag((body,)), body) for body in BODIES]

    @property
    def opening(self) -> FrameAuth:
        assert self.met is not None
        return self.met[1]

    def takes(self, frame: tuple[bytes, bytes]) -> bool:
        """True if a tag and a body are accepted as the next frame."""
        return self.opening.holds(frame[0], (frame[1],))


@pytest.fixture
def ends() -> tuple[Identity, Identity]:
    return Identity(KEY, 0), Identity(KEY, 1)


def test_members_know_each_other_and_take_every_frame(ends: tuple[Identity, Identity]) -> None:
    for _ in range(2):
        connection = Connection(*ends)
        assert connection.met is not None
        assert connection.met[0] == 0
        assert all(map(connection.takes, connection.frames))
    back = Connection(ends[1], ends[0], to=0)
    assert back.met is not None
    assert back.met[0] == 1


def test_a_frame_in_parts_is_the_same(ends: tuple[Identity, Identity]) -> None:
    connection = Connection(*ends)
    assert connection.opening.holds(connection.frames[0][0], ())
    assert connection.opening.holds(connection.frames[1][0], (b"hel", b"lo"))


def test_a_sender_without_the_key_is_rejected(ends: tuple[Identity, Identity]) -> None:
    assert Connection(Identity(OTHER_KEY, 0), ends[1]).met is None
    assert Connection(*ends).met is not None, "the outsider's process is not the first of its rank"


@given(st.integers(0, HELLO.size * 8 - 1))
def test_a_changed_hello_is_rejected(bit: int) -> None:
    receiver = Identity(KEY, 1)
    greeting = receiver.greet()
    answer = Identity(KEY, 0).answer(greeting, 1)
    assert answer is not None
    hello = bytearray(answer[0])
    hello[bit // 8] ^= 1 << bit % 8
    assert receiver.meet(greeting, bytes(hello)) is None
    assert receiver.meet(greeting, answer[0]) is not None


def test_what_was_recorded_is_of_no_use_on_another_connection(ends: tuple[Identity, Identity]) -> None:
    """It is repeated to the same member, another one, the sender itself, or a later process with the same key."""
    recorded = Connection(*ends)
    assert recorded.met is not None
    for other in (*ends, Identity(KEY, 1), Identity(KEY, 2)):
        assert other.meet(other.greet(), recorded.hello) is None
    relayed = Identity(KEY, 2)
    assert relayed.meet(recorded.greeting, recorded.hello) is None, "rank 0 has said it to rank 1"
    again = Connection(*ends)
    assert not again.takes(recorded.frames[1])


@pytest.mark.parametrize("order", [[1], [0, 0], [0, 2], [0, 1, 1], [0, 1, 2, 4]])
def test_frames_hold_in_their_turn_alone(ends: tuple[Identity, Identity], order: list[int]) -> None:
    connection = Connection(*ends)
    held = [connection.takes(connection.frames[which]) for which in order]
    assert held == [True] * (len(order) - 1) + [False], "though the last two bodies are the same"


def test_frames_that_were_changed_do_not_hold(ends: tuple[Identity, Identity]) -> None:
    for at in range(TAG_BYTES):
        connection = Connection(*ends)
        tag = bytearray(connection.frames[0][0])
        tag[at] ^= 0x10
        assert not connection.takes((bytes(tag), b""))
    for body in (b"x", b"\0"):
        connection = Connection(*ends)
        assert not connection.takes((connection.frames[0][0], body))


def test_a_process_with_the_key_of_another_run_is_not_gone_on_with(ends: tuple[Identity, Identity]) -> None:
    """Copies of one descriptor: a rank comes again, and neither is heard nor spoken to."""
    zero, one = ends
    assert Connection(zero, one).met is not None
    second = Identity(KEY, 0)
    assert Connection(second, one).met is None
    assert one.answer(second.greet(), 0) is None
    assert one.answer(zero.greet(), 0) is not None
    assert Connection(zero, one).met is not None, "the first is still there"


def test_two_processes_have_neither_sessions_nor_greetings_in_common(ends: tuple[Identity, Identity]) -> None:
    one = ends[0]
    assert len({one.greet() for _ in range(100)}) == 100
    assert len({Identity(KEY, 0).greet()[:16] for _ in range(100)}) == 100
