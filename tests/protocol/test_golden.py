# SPDX-License-Identifier: MIT
"""Golden packets: conversations with a switch, byte by byte, for whoever implements the protocol. The codec, the model and the
program on every switch agree with them.

``NETSUM_UPDATE_GOLDEN=1 pytest tests/protocol/test_golden.py -k pipeline`` writes the file anew; read the difference.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from netsum.frames import PREFIX_BYTES
from netsum.numeric.fixed_point import bias
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import HEADER_BYTES, AgeOp, Lane, Op, Status

from tests.model.rules import Job
from tests.protocol import star
from tests.protocol.frame_model import FrameModel, without_padding
from tests.protocol.frames import Datagram, arp
from tests.protocol.replay import Change, Event, Scan, Step, contribute, follow, play
from tests.protocol.targets import Target

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "packets.json"
PAIR, KEYED, LEAF = (star.JOBS[job_id] for job_id in (star.PAIR, star.KEYED, star.LEAF))
HEADERS = PREFIX_BYTES + HEADER_BYTES
MASK = 0xFFFFFFFF


Line = tuple[str, Event]
"""Of a conversation: why, and what happens."""


def say(
    about: str, member: int, block: int, value: int | None = None, room: int = 0, job_id: int = star.PAIR, **fields: int
) -> Line:
    """A contribution: one chunk whose last lane is ``value``, or an empty one with room for ``room`` chunks."""
    return about, contribute(job_id, star.JOBS[job_id], member, block, value, room, **{"gen_id": 9, **fields})


def parent(about: str, block: int, value: int, **fields: int) -> Line:
    """A result from the parent of job 41."""
    block_id = (LEAF.first_block_id + block) & MASK
    header = Header(star.LEAF, block_id, gen_id=9, worker_cnt=6, data_cnt=6, lane_cnt=64)._replace(**fields)
    up = LEAF.uplink_of(block_id)
    return about, Step(up.port, star.from_parent(star.LEAF, up, header, (value,)).to_bytes())


SCAN = Scan(star.PAIR)
AGES = ("blocks of job 200 age out in a microsecond", Change(star.PAIR, PAIR._replace(block_exp=1, quorum=1, window=4)))
ASKS = arp(1, (star.station(4).mac, star.station(4).ip), (0, star.SWITCH_IP), 2**48 - 1)

CONVERSATIONS: dict[str, tuple[Line, ...]] = {
    "sum": (
        say("rank 0 contributes", 0, 0, 40),
        say("again: a duplicate is not answered", 0, 0, 40),
        say("rank 1 completes the block: everyone gets the sum", 1, 0, 2),
        say("rank 0 sends it again: the result, to it alone", 0, 0, 40),
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
    "copy": (
        say("rank 0 brings the payload, which goes ahead to both", 0, 0, 40, op=Op.COPY),
        say("rank 1 needs no room: a notice", 1, 0, op=Op.COPY),
    ),
    "aging": (
        AGES,
        say("rank 0 contributes", 0, 0, 40),
        say("and once more: the block is old enough, rank 1 is late", 0, 0, 40),
        say("rank 1 comes: the result, without it", 1, 0, 2),
        say("rank 1 passes the next block and is not to be counted", 1, 1, worker_cnt=0, degraded=1),
        say("rank 0 completes it", 0, 1, 7),
        say("a block that never ages", 0, 2, 1, no_aging=1),
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
    "keyed": (
        say("rank 0, whose key says who it is", 0, 0, 40, job_id=star.KEYED),
        say("a sender without its key", 0, 1, 41, job_id=star.KEYED, key=1),
        say("ranks 1 and 2 share a source", 1, 0, 2, job_id=star.KEYED),
        say("rank 3 completes the block: each result has its receiver's key", 2, 0, 1, job_id=star.KEYED),
    ),
    "leaf": (
        say("rank 0 of a leaf", 0, 0, 40, job_id=star.LEAF),
        say("rank 2", 1, 0, 2, job_id=star.LEAF),
        say("a child switch with two ranks completes the block: a partial to the parent", 2, 0, 1, job_id=star.LEAF),
        say("rank 0 sends it again, and so the partial goes up again", 0, 0, 40, job_id=star.LEAF),
        parent("the parent's result goes down to all", 0, 100),
        say("rank 0 sends it once more: the result", 0, 0, 40, job_id=star.LEAF),
    ),
    "arp": (("which MAC has 10.0.0.254?", Step(4, ASKS)),),
}


def packet(port: int, frame: bytes) -> dict[str, Any]:
    """A packet as the file has it: its port, its bytes, and the header fields that are not 0."""
    if len(frame) < HEADERS or frame[12:14] != b"\x08\x00":
        return {"port": port, "frame": frame.hex()}
    fields = {name: value for name, value in Datagram.parse(frame).header._asdict().items() if value}
    return {"port": port, "frame": frame.hex(), "fields": fields}


def exchanged(target: Target, model: FrameModel, line: Line) -> dict[str, Any]:
    """A line of a conversation with what leaves the target, which the model must say, too."""
    about, event = line
    closed, sent = play(target, model, event)
    right, expected = follow(model, event)
    assert (closed, without_padding(sent)) == (right, without_padding(expected)), about
    answers = [packet(port, frame) for port, frame in sorted(sent)]
    if isinstance(event, Change):
        return {
            "meaning": about,
            "job": event.job_id,
            **{name: getattr(event.job, name) for name in ("block_exp", "quorum", "window")},
        }
    if isinstance(event, Scan):
        return {"meaning": about, "scan": event.job_id, "closed": closed, "answers": answers}
    return {"meaning": about, **packet(event.port, event.frame), "answers": answers}


def configuration(job: Job) -> dict[str, Any]:
    """A job as the controller installs it. Addresses are those of the host or switch on the port."""
    numbers = {
        name: getattr(job, name) for name in ("epoch", "first_block_id", "slots", "slot_base", "block_exp", "quorum", "window")
    }

    def end(port: int, switch: bool) -> dict[str, Any]:
        at = (star.neighbor if switch else star.station)(port)
        return {"port": port, "mac": f"{at.mac:012x}", "ip": f"{at.ip:08x}"}

    members = [
        {**end(m.port, m.switch), "src_id": m.src_id, "workers": m.workers}
        | ({"child_switch": True} if m.switch else {"rank": m.rank})
        | ({"key": f"{m.key:016x}"} if m.key else {"udp_port": m.udp_port})
        for m in job.members
    ]
    parents = [{**end(up.port, True), "udp_port": up.udp_port, "src_id": up.src_id} for up in job.uplinks]
    return {**numbers, "members": members, "parents": parents}


def head() -> dict[str, Any]:
    """Everything but the conversations."""
    return {
        "about": "A conversation begins with a switch that has these jobs and no records. `answers` is all that leaves, by port. "
        "See PROTOCOL.md.",
        "switch": {"mac": f"{star.SWITCH_MAC:012x}", "ip": f"{star.SWITCH_IP:08x}"},
        "jobs": {str(job_id): configuration(star.JOBS[job_id]) for job_id in (star.PAIR, star.KEYED, star.LEAF)},
    }


def write(name: str, lines: list[dict[str, Any]]) -> None:
    """Put a conversation into the file, a packet a line."""
    there = json.loads(GOLDEN.read_text("utf-8"))["conversations"] if GOLDEN.exists() else {}
    conversations = {**there, name: lines}
    known = [each for each in CONVERSATIONS if each in conversations]

    def text(line: dict[str, Any]) -> str:
        plain = json.dumps({key: value for key, value in line.items() if key != "answers"})
        if not line.get("answers"):
            return json.dumps(line)
        return plain[:-1] + ', "answers": [\n    ' + ",\n    ".join(map(json.dumps, line["answers"])) + "]}"

    parts = [f'  "{each}": [\n   ' + ",\n   ".join(map(text, conversations[each])) + "]" for each in known]
    begin = head()
    jobs = ",\n".join(f'  "{job_id}": {json.dumps(job)}' for job_id, job in begin.pop("jobs").items())
    begun = "".join(f' "{key}": {json.dumps(value)},\n' for key, value in begin.items())
    whole = f'{{\n{begun} "jobs": {{\n{jobs}}},\n "conversations": {{\n' + ",\n".join(parts) + "}\n}\n"
    GOLDEN.write_text(whole, "utf-8")


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation(target: Target, name: str) -> None:
    model = FrameModel()
    made = [exchanged(target, model, line) for line in CONVERSATIONS[name]]
    if os.environ.get("NETSUM_UPDATE_GOLDEN"):
        write(name, made)
    assert made == json.loads(GOLDEN.read_text("utf-8"))["conversations"][name]


def packets() -> Iterator[dict[str, Any]]:
    """Every packet in the file."""
    for lines in json.loads(GOLDEN.read_text("utf-8"))["conversations"].values():
        for line in lines:
            yield from (each for each in (line, *line.get("answers", ())) if "fields" in each)


def test_the_codec_agrees() -> None:
    seen = set()
    for each in packets():
        header = bytes.fromhex(each["frame"])[PREFIX_BYTES:HEADERS]
        fields = Header(**(dict.fromkeys(Header._fields, 0) | each["fields"]))
        assert pack_header(fields) == header
        assert parse_header(header) == fields
        seen |= set(each["fields"])
    unused = {"final", "reserved", "reserved_flags", "reserved_cnt", "backoff", "query", "call_fingerprint"}
    assert seen == set(Header._fields) - unused


def test_the_file_has_nothing_else() -> None:
    text = json.loads(GOLDEN.read_text("utf-8"))
    assert [*text.pop("conversations")] == [*CONVERSATIONS]
    assert text == head()


def test_the_headers_in_the_specification_are_the_golden_ones() -> None:
    text = (ROOT / "PROTOCOL.md").read_text("utf-8")
    shown = [bytes.fromhex(line) for line in re.findall(r"^    (c8 .*)$", text, re.MULTILINE)]
    first = json.loads(GOLDEN.read_text("utf-8"))["conversations"]["sum"]
    frames = [bytes.fromhex(each["frame"])[PREFIX_BYTES:HEADERS] for each in (first[0], first[2]["answers"][0])]
    assert shown == frames


def test_the_sum_in_the_specification_is_right() -> None:
    text = " ".join((ROOT / "PROTOCOL.md").read_text("utf-8").split())
    b = bias(Lane.L32, 2)
    assert f"B = {b:#x}: {b + 40:#x} and {b + 2:#x} add up to {2 * b + 42:#x}, and {2 * b + 42:#x} - 2B = 42." in text


def test_who_is_late_is_told_so() -> None:
    """The file shows the rarer fields, too."""
    assert {each["fields"].get("age_op", 0) for each in packets()} == set(AgeOp)
