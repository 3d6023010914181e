# SPDX-License-Identifier: MIT
"""Frames as bytes: whatever is damaged is found as soon as the frame that it is in is there, and half a frame has a deadline."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.peers.wire import FRAME, SIZE, STALLED, BrokenError, FrameAuth, FrameReader, framed

LARGEST = 1000
BODIES = st.lists(st.binary(max_size=50), min_size=1, max_size=4)


def frames_of(bodies: list[bytes]) -> list[bytes]:
    auth = FrameAuth(bytes(16), b"between")
    return [framed(auth, (body[:3], body[3:])) for body in bodies]


def reader() -> FrameReader:
    return FrameReader(FrameAuth(bytes(16), b"between"), LARGEST)


@given(BODIES, st.lists(st.integers(1, 40)))
def test_frames_come_whole_however_their_bytes_do(bodies: list[bytes], pieces: list[int]) -> None:
    stream, at, reading = b"".join(frames_of(bodies)), 0, reader()
    got = []
    for size in [*pieces, len(stream)]:
        got += reading.take(stream[at : at + size], 0.0)
        at += size
    assert got == bodies


@given(BODIES, st.data())
def test_a_bit_that_was_flipped_is_found_before_anything_else_comes(bodies: list[bytes], data: st.DataObject) -> None:
    frames = frames_of(bodies)
    number = data.draw(st.integers(0, len(frames) - 1), "frame")
    damaged = bytearray(frames[number])
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1), "bit")
    damaged[bit // 8] ^= 1 << bit % 8
    reading = reader()
    assert reading.take(b"".join(frames[:number]), 0.0) == bodies[:number]
    with pytest.raises(BrokenError):
        reading.take(bytes(damaged), 0.0)


@pytest.mark.parametrize("bit", range(8 * SIZE.size))
def test_a_size_that_was_altered_is_not_waited_for(bit: int) -> None:
    head = bytearray(frames_of([b"body"])[0][: FRAME.size])
    head[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BrokenError):
        reader().take(bytes(head), 0.0)


def test_a_body_larger_than_there_can_be_is_not_waited_for_although_it_is_sealed() -> None:
    assert reader().take(frames_of([bytes(LARGEST)])[0], 0.0) == [bytes(LARGEST)]
    with pytest.raises(BrokenError):
        reader().take(frames_of([bytes(LARGEST + 1)])[0][: FRAME.size], 0.0)


def test_a_tag_does_not_hold_in_the_place_of_another() -> None:
    """Neither is a size's tag a body's, when the body is the size, nor the reverse."""
    size = SIZE.pack(SIZE.size)
    auth = FrameAuth(bytes(16), b"between")
    tag, tag_of_body = auth.tag((size,)), auth.tag((size,))
    for tags in ((tag, tag), (tag_of_body, tag), (tag_of_body, tag_of_body)):
        with pytest.raises(BrokenError):
            reader().take(size + b"".join(tags) + size, 0.0)
    assert reader().take(size + tag + tag_of_body + size, 0.0) == [size]


@pytest.mark.parametrize("pause", [0.0, STALLED])
def test_half_a_frame_has_a_deadline_and_a_slow_connection_has_none(pause: float) -> None:
    frames = frames_of([b"", b"hello", b"", b"again"])
    ends = set(accumulate(map(len, frames)))
    reading, now = reader(), 0.0
    for at, byte in enumerate(b"".join(frames), 1):
        reading.take(bytes([byte]), now)
        assert not reading.stalled(now + STALLED)
        assert reading.stalled(now + 1.01 * STALLED) == (at not in ends)
        now += pause
