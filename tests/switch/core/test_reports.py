# SPDX-License-Identifier: MIT
"""Digests, log_msg, assert, timestamps."""

from __future__ import annotations

import logging
import struct

import pytest
from netsum_switch.errors import ProgramAbortError
from netsum_switch.pipeline import load_pipeline

from tests.switch.core.switches import ethernet, load
from tests.switch.harness.controller import PROGRAMS

PAYLOAD = bytes(20)


def test_a_digest_has_the_values_of_its_fields() -> None:
    pipeline = load("reports")
    learnt: list[tuple[int, list[tuple[int, ...]]]] = []
    pipeline.process(3, ethernet(0x1111, src=9) + PAYLOAD)  # there is no listener
    pipeline.on_digest = lambda number, samples: learnt.append((number, samples))
    pipeline.process(3, ethernet(0x1111, src=0xAABB) + PAYLOAD)
    pipeline.process(3, ethernet(0x1112, src=0xAABB) + PAYLOAD)
    assert learnt == [(1, [(0xAABB, 3)])]
    assert pipeline.digests[1].widths == (48, 9)


def test_log_msg(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "netsum_switch"):
        load("reports").process(3, ethernet(0x2222, src=77) + PAYLOAD)
    assert [record.getMessage() for record in caplog.records] == ["100% of 77 on port 3"]


def test_a_failed_assertion_drops_the_packet_only() -> None:
    pipeline = load("reports")
    with pytest.raises(ProgramAbortError):
        pipeline.process(3, ethernet(0x3333) + PAYLOAD)
    assert len(pipeline.process(3, ethernet(0x3334) + PAYLOAD)) == 1


def test_timestamps_are_those_of_the_clock() -> None:
    now = iter(range(1000, 2000, 7))
    pipeline = load_pipeline((PROGRAMS / "reports.json").read_bytes(), clock=lambda: next(now))
    [(_, out)] = pipeline.process(3, ethernet() + PAYLOAD)
    ingress, egress = int.from_bytes(out[14:20], "big"), int.from_bytes(out[20:26], "big")
    enqueued, waited, depth = struct.unpack(">III", out[26:38])
    assert 1000 == ingress < egress
    assert ingress < enqueued <= egress + 7
    assert (waited, depth) == (0, 0)


def test_the_clock_starts_with_the_program() -> None:
    [(_, out)] = load("reports").process(3, ethernet() + PAYLOAD)
    assert 0 <= int.from_bytes(out[14:20], "big") < 600_000_000
