# SPDX-License-Identifier: MIT
"""Captured bytes through the Wireshark dissector, the codec and the schema: the same fields."""

from __future__ import annotations

import random

import pytest
from netsum.wire.codec import Header, pack_header, parse_record
from netsum.wire.schema import HEADER_FIELDS, QUERY_FIELDS, RECORD_BITS, RECORD_FIELDS, Lane, Status

from tests.wire.conftest import Dissect
from tests.wire.strategies import fields_of, frame_of, lanes_of, udp_frame, well_formed

USER0 = 147
pytestmark = pytest.mark.tshark


def test_every_header_field_and_every_lane(wireshark: Dissect) -> None:
    rng = random.Random(1)
    packets = [well_formed(rng) for _ in range(120)]
    names = [field.name for field in HEADER_FIELDS]
    lane_fields = [f"netsum.lane{lane.bits}" for lane in Lane]
    fields = [*(f"netsum.{name}" for name in names), "netsum.room", *lane_fields]
    rows = wireshark([frame_of(header, payload) for header, payload in packets], fields)
    for (header, payload), row in zip(packets, rows, strict=True):
        shown = dict(zip(fields, row, strict=True))
        assert {name: int(shown[f"netsum.{name}"]) for name in names} == fields_of(header)
        for name in lane_fields:
            here = header.lane_cnt and name == f"netsum.lane{Lane(header.lane).bits}"
            assert shown[name] == (",".join(map(str, lanes_of(header, payload))) if here else "")
        assert shown["netsum.room"].replace(":", "") == ("" if header.lane_cnt else payload.hex())


def test_results_are_recognized_by_their_source_port(wireshark: Dissect) -> None:
    message = pack_header(Header(3, 7, src_id=2))
    frame = udp_frame(message, source_port=12000, destination_port=20001)
    (row,) = wireshark([frame], ["_ws.col.Protocol", "netsum.src_id"])
    assert row == ["netsum", "2"]


@pytest.mark.parametrize(
    ("header", "source_port", "kind"),
    [
        (Header(1, 2, lane_cnt=0), 20001, "empty contribution"),
        (Header(1, 2, data_cnt=4), 12000, "notice"),
        (Header(1, 2, data_cnt=4, dest=1), 12000, "header-only result"),
        (Header(1, 2, status=Status.ABORT), 12000, "result"),
        (Header(1, 2, status=Status.STALE), 12000, "answer"),
    ],
)
def test_info_says_what_the_packet_is(wireshark: Dissect, header: Header, source_port: int, kind: str) -> None:
    (row,) = wireshark([udp_frame(pack_header(header), source_port=source_port)], ["_ws.col.Info"])
    assert row[0].startswith(f"{kind} job 1 block 2 ")


def test_refusals_say_their_reason(wireshark: Dissect) -> None:
    frames = [frame_of(Header(1, 2, status=Status.REFUSED, reason=9), b""), frame_of(Header(1, 2, age_op=1), b"")]
    refused, other = wireshark(frames, ["netsum.reason"])
    assert (refused, other) == (["9"], ["0"])


def test_lengths_that_disagree_are_marked(wireshark: Dissect) -> None:
    good = frame_of(Header(1, 2, lane_cnt=64, data_cnt=1), bytes(256))
    bad = frame_of(Header(1, 2, lane_cnt=65, data_cnt=1), bytes(256))
    rows = wireshark([good, bad], ["netsum.bad_length"])
    assert not rows[0][0]
    assert rows[1][0]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"hello",
        pack_header(Header(1, 2, version=1)),
        pack_header(Header(1, 2, lane=4)),
        pack_header(Header(1, 2)) + b"x",
    ],
    ids=["empty", "short", "version", "lane", "length"],
)
def test_other_datagrams_on_the_port_are_left_alone(wireshark: Dissect, message: bytes) -> None:
    (row,) = wireshark([udp_frame(message)], ["_ws.col.Protocol", "netsum.job_id"])
    assert row == ["UDP", ""]


def test_records_of_a_query(wireshark: Dissect) -> None:
    rng = random.Random(2)
    answers = [rng.randbytes(7 + RECORD_BITS // 8) for _ in range(10)]
    names = [field.name for field in (*QUERY_FIELDS, *RECORD_FIELDS)]
    rows = wireshark(answers, [f"netsum_record.{name}" for name in names], USER0)
    for answer, row in zip(answers, rows, strict=True):
        starts = {"kind": (0, 1), "slot": (1, 3), "cookie": (3, 5), "closed": (5, 7)}
        query = {name: int.from_bytes(answer[low:high], "big") for name, (low, high) in starts.items()}
        expected = {**query, **parse_record(answer[7:])}
        shown = dict(zip(names, row, strict=True))
        seen = int(shown.pop("seen").replace(":", ""), 16)
        assert {"seen": seen, **{name: int(value) for name, value in shown.items()}} == expected
