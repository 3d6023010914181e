# SPDX-License-Identifier: MIT
"""Messages survive being packets; a packet that is none is refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.memory import MAX_MESSAGE, MAX_PAYLOAD, Instruction, MemoryHeader
from netsum_memory import message
from netsum_memory.message import MemoryMessage
from netsum_memory.replication import messages

BLANK = MemoryHeader(0, key=13, shard=3, region=7, replica=1)

u8, u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))
names = st.tuples(u64, u32)
entries = st.lists(st.builds(messages.OrderEntry, u32, u32, names), max_size=5).map(tuple)
segments = st.lists(u64, max_size=messages.RECORD_SEGMENTS).map(tuple)


@st.composite
def records(draw: st.DrawFn) -> messages.Given:
    own, payload = draw(segments), draw(st.binary(max_size=64))
    header = MemoryHeader(
        draw(st.sampled_from([Instruction.WRITE, Instruction.COPY, Instruction.OPTIMIZE])).value,
        draw(u64),
        draw(u16),
        client=draw(u64),
        sequence=draw(u32),
        lane=draw(u8),
        segments=len(own),
        argument=draw(u64),
    )
    return messages.Given(draw(u32), draw(u64), draw(u32), MemoryMessage(header, own, payload))


every_letter = st.one_of(
    st.builds(messages.Order, u32, u64, entries, u64, u64),
    st.builds(messages.Ack, u32, u64, u64, st.booleans()),
    st.builds(messages.Counted, u32, u64),
    st.builds(messages.Fetch, u32, u64, u32),
    records(),
    st.builds(messages.Offer, u32, u64, u32),
    st.builds(messages.FetchPiece, u32, u64, u32),
    st.builds(messages.Piece, u32, u64, u32, st.binary(max_size=64)),
)


@given(every_letter)
def test_a_message_survives_being_a_packet(peer_message: messages.PeerMessage) -> None:
    told = message.parse(messages.pack(peer_message, BLANK))
    header = told.header
    assert (header.key, header.region, header.shard, header.replica) == (13, 7, 3, 1)
    heard = messages.parse(told)
    assert type(heard) is type(peer_message)
    assert heard == peer_message


@given(st.sampled_from([16, 17, 18, 19]), u8, u64, segments, st.binary(max_size=40))
def test_anything_is_a_message_or_none(
    instruction: int, status: int, argument: int, own: tuple[int, ...], payload: bytes
) -> None:
    header = MemoryHeader(instruction, status=status, argument=argument)
    messages.parse(message.parse(MemoryMessage(header, own, payload).pack()))


def test_the_longest_record_fits_a_packet() -> None:
    own = (1,) * messages.RECORD_SEGMENTS
    inner = MemoryMessage(MemoryHeader(Instruction.WRITE, length=MAX_PAYLOAD, segments=len(own)), own, bytes(MAX_PAYLOAD))
    assert len(messages.pack(messages.Given(1, 1, 1, inner), BLANK)) <= MAX_MESSAGE
