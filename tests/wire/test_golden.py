# SPDX-License-Identifier: MIT
"""Packets as readable text: a change of the wire shows up as a change of these files.

``NETSUM_UPDATE_GOLDEN=1 python -m pytest tests/wire/test_golden.py`` writes them anew; read the difference, commit it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from netsum.cli import packet_format
from netsum.packets import dissect
from netsum.wire.codec import Header, pack_header, parse_header, value_name
from netsum.wire.schema import HEADER_BYTES, Lane, Op, Outcome, Status

from tests.wire.strategies import udp_frame

GOLDEN = Path(__file__).with_name("golden")
TO_SWITCH, FROM_SWITCH = {"source_port": 20001}, {"source_port": 12000, "destination_port": 20001}
CASES: dict[str, tuple[Header, bytes, dict[str, int]]] = {
    "contribution": (
        Header(3, 4096, src_id=2, gen_id=17, lane_cnt=64, data_cnt=1),
        b"".join(value.to_bytes(4, "big") for value in range(1 << 29, (1 << 29) + 64)),
        TO_SWITCH,
    ),
    "largest": (Header(255, 2**32 - 1, lane_cnt=4096, lane=Lane.L8, data_cnt=1), b"\x7f" * 4096, TO_SWITCH),
    "exponents": (Header(3, 4095, gen_id=17, op=Op.MAX, lane=Lane.L8, lane_cnt=256, data_cnt=1), bytes(256), TO_SWITCH),
    "empty": (Header(3, 4097, src_id=1, gen_id=17), b"", TO_SWITCH),
    "empty-with-room": (Header(3, 4097, src_id=1, gen_id=17), bytes(512), TO_SWITCH),
    "abort": (Header(3, 4098, src_id=1, gen_id=18, status=Status.ABORT), b"", TO_SWITCH),
    "result": (
        Header(3, 4096, src_id=1, worker_cnt=4, gen_id=17, lane_cnt=32, lane=Lane.L64, data_cnt=4),
        b"".join((1 << 63 | value).to_bytes(8, "big") for value in range(32)),
        FROM_SWITCH,
    ),
    "notice": (Header(3, 4097, src_id=1, worker_cnt=4, gen_id=17, data_cnt=2), b"", FROM_SWITCH),
    "stale": (Header(3, 12, worker_cnt=0, status=Status.STALE), b"", FROM_SWITCH),
    "refused": (Header(9, 12, reason=Outcome.UNKNOWN_JOB, worker_cnt=0, status=Status.REFUSED), b"", FROM_SWITCH),
}


def hex_lines(data: bytes) -> list[str]:
    """Sixteen bytes a line; a line that repeats the one before is left out and marked with a star."""
    lines: list[str] = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        if at and row == data[at - 16 : at] and at + 16 < len(data):
            if lines[-1] != "*":
                lines.append("*")
        else:
            lines.append(f"{at:04x}  {row.hex(' ', 2)}")
    return lines


def bytes_of(text: str) -> bytes:
    """The bytes that :func:`hex_lines` wrote."""
    data = b""
    for line in text.splitlines():
        match = re.fullmatch(r"([0-9a-f]{4})  ([0-9a-f ]+)", line)
        if match:
            start = int(match[1], 16)
            while len(data) < start:  # a star stands between
                data += data[-16:]
            data += bytes.fromhex(match[2])
    return data


def readable(frame: bytes) -> str:
    """The frame as the codec and scapy see it, and its bytes."""
    packet = dissect(frame)
    header, payload = parse_header(frame[42:]), frame[42 + HEADER_BYTES :]
    told = packet_format.row(header, payload, from_switch=packet["UDP"].sport == 12000)
    lines = [packet.summary().partition(" / Netsum")[0], packet_format.line(told), ""]
    for name, value in header._asdict().items():
        title = value_name(name, value)
        lines.append(f"{name:<10} {value}" + (f" ({title})" if title != str(value) else ""))
    if header.lane_cnt:
        lines += ["", f"gradients  {packet_format.some(packet_format.lanes(header, payload).tolist(), 4)}"]
    return "\n".join([*lines, "", *hex_lines(frame), ""])


@pytest.mark.parametrize("name", CASES)
def test_golden_packet(name: str) -> None:
    header, payload, ports = CASES[name]
    frame = udp_frame(pack_header(header) + payload, **ports)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("NETSUM_UPDATE_GOLDEN"):
        path.write_text(readable(frame), "utf-8")
    text = path.read_text("utf-8")
    assert readable(frame) == text
    assert bytes_of(text) == frame


def test_no_golden_file_is_without_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)
