"""Conversations as text: what goes in, what comes out, down to the bytes of the headers.

``NETSUM_UPDATE_GOLDEN=1 pytest tests/protocol/test_golden.py -k pipeline`` writes the files anew; read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from netsum.frames import PREFIX_BYTES
from netsum.wire.schema import EVERYONE, HEADER_BYTES, SWITCH_SOURCE, AgeOp, Lane, Op, Outcome, Status

from tests.protocol import star
from tests.protocol.frame_model import FrameModel
from tests.protocol.frames import UDP, Datagram, arp, chunks_of
from tests.protocol.replay import Change, Event, Scan, Step, contribute, play
from tests.protocol.targets import Target

GOLDEN = Path(__file__).parent / "golden"
PAIR = star.JOBS[star.PAIR]
HEADERS = PREFIX_BYTES + HEADER_BYTES
ARP = 42


Line = tuple[str, Event]
"""Of a conversation: why, and what happens."""


def say(about: str, rank: int, block: int, value: int | None = None, room: int = 0, **fields: int) -> Line:
    """A contribution of job 200: one chunk whose last lane is ``value``, or an empty one with room for ``room`` chunks."""
    return about, contribute(star.PAIR, PAIR, rank, block, value, room, **{"gen_id": 9, **fields})


SCAN = Scan(star.PAIR)
AGES = ("blocks of job 200 age out in a microsecond", Change(star.PAIR, PAIR._replace(block_exp=1, quorum=1, window=4)))
ASKS = arp(1, (star.station(4).mac, star.station(4).ip), (0, star.SWITCH_IP), 2**48 - 1)

CONVERSATIONS: dict[str, tuple[Line, ...]] = {
    "sum": (
        say("rank 0 contributes", 0, 0, 40),
        say("again: a duplicate is not answered", 0, 0, 40),
        say("rank 1 completes the block: everyone gets the sum", 1, 0, 2),
        say("rank 0 asks again: the result, to it alone", 0, 0, 40),
    ),
    "empties": (
        say("rank 0 has nothing to add", 0, 0),
        say("rank 1 has: the result is its payload", 1, 0, 7),
        say("rank 1 first this time", 1, 1, 7),
        say("an empty without room completes: a notice", 0, 1),
        say("rank 0 fetches with room", 0, 1, room=1),
        say("a barrier, rank 0", 0, 2),
        say("a barrier, rank 1", 1, 2),
    ),
    "answers": (
        say("a block before the first", 0, -8, 1),
        say("a block beyond the window", 0, 16, 1),
        say("an operation that the switch does not run", 0, 0, 1, op=7),
        say("rank 0 says MAX", 0, 0, 1, op=Op.MAX),
        say("rank 1 says SUM", 1, 0, 1),
        say("rank 1 gives up: MISMATCH for both", 1, 0, status=Status.MISMATCH),
    ),
    "destination": (say("for rank 1", 0, 0, 40, dest=1), say("rank 0 gets an acknowledgment", 1, 0, 2, dest=1)),
    "aging": (
        AGES,
        say("rank 0 contributes", 0, 0, 40),
        say("and asks again: the block is old enough, rank 1 is late", 0, 0, 40),
        say("rank 1 comes: the result, without it", 1, 0, 2),
        say("rank 1 has nothing to say about the next block and is not to be counted", 1, 1, worker_cnt=0, degraded=1),
        say("rank 0 completes it", 0, 1, 7),
        say("a firm block", 0, 2, 1, no_aging=1),
        say("waits, however old", 0, 2, 1, no_aging=1),
        say("for rank 1", 1, 2, 2, no_aging=1),
    ),
    "scan": (
        AGES,
        say("rank 0 contributes", 0, 0, 40),
        ("notices for both", SCAN),
        say("rank 0 fetches", 0, 0, 40),
        say("rank 1 is a straggler: no rank waits for it", 0, 1, 7),
        ("nothing to close", SCAN),
    ),
    "arp": (("who has 10.0.0.254?", Step(4, ASKS)),),
}


def frame_text(frame: bytes) -> Iterator[str]:
    """A frame as people read it: its fields, then the bytes of its headers."""
    if len(frame) > ARP and frame[12:14] == b"\x08\x00":
        datagram = Datagram.parse(frame)
        h = datagram.header
        ends = f"UDP {datagram.udp_src} > {datagram.udp_dst} length {datagram.udp_length - UDP}"
        to = "everyone" if h.dest == EVERYONE else f"rank {h.dest}"
        reason = f" {AgeOp(h.age_op).name}" if h.age_op else f" {Outcome(h.reason).name}" if h.reason else ""
        reason += "".join(f" {name}" for name in ("degraded", "no_aging", "query", "early") if getattr(h, name))
        who = f"receiver {h.receiver_id}" if h.src_id == SWITCH_SOURCE else f"source {h.src_id}"
        op = Op(h.op).name if h.op <= Op.COPY else f"op {h.op}"
        yield f"{ends}: job {h.job_id} block {h.block_id} gen {h.gen_id} {who} for {to}"
        yield (
            f"{op} {Lane(h.lane).name} lane_cnt {h.lane_cnt} worker_cnt {h.worker_cnt} data_cnt {h.data_cnt} "
            f"{Status(h.status).name}{reason}"
        )
        if datagram.payload:
            yield f"payload {[f'{chunk:#x}' for chunk in chunks_of(datagram.payload)]}"
    size = min(len(frame), HEADERS)
    for at in range(0, size, 16):
        yield f"  {frame[at : min(at + 16, size)].hex(' ', 2)}"


def answered(target: Target, event: Event) -> Iterator[str]:
    """An event, then the switch's answers."""
    if isinstance(event, Change):
        play(target, FrameModel(), event)
        return
    frame = event.frame if isinstance(event, Step) else star.scan_frame(event.job_id)
    yield from (f"> {text}" for text in frame_text(frame))
    closed, sent = play(target, FrameModel(), event)
    if isinstance(event, Scan):
        yield f"< to the controller: {closed} closed"
    for port, answer in sorted(sent):
        yield f"< port {port}, {len(answer)} bytes"
        yield from (f"< {text}" for text in frame_text(answer))
    if not sent:
        yield "< nothing"


def conversation_text(lines: tuple[Line, ...], target: Target) -> str:
    """The events and the switch's answers, as text."""
    return "\n".join(text for about, event in lines for text in (f"# {about}", *answered(target, event), ""))


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation(target: Target, name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = conversation_text(CONVERSATIONS[name], target)
    if os.environ.get("NETSUM_UPDATE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")
