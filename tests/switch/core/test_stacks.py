# SPDX-License-Identifier: MIT
"""Header stacks, unions, validity."""

from __future__ import annotations

import pytest

from tests.switch.core.conftest import StartProgram
from tests.switch.core.switches import ethernet

PUSH, POP, MOVE, WRITE, PUSH3, POP3, COPY, UNION, RENEW = range(1, 10)
PAYLOAD = b"\x09payload.payload.payload"


def frame(operation: int, index: int, labels: str, rest: bytes = PAYLOAD) -> bytes:
    return ethernet() + bytes([operation, index]) + bytes.fromhex(labels) + rest


@pytest.mark.parametrize(
    ("operation", "index", "labels", "report", "out"),
    [
        # report: count (1: labels[1] is valid, 2: labels[3] is, 8: the union is), first label, equal, error
        pytest.param(0, 0, "0205", "01810000", "0205", id="two labels"),
        pytest.param(0, 0, "05", "00820000", "05", id="one label"),
        pytest.param(0, 0, "02020205", "03810100", "02020205", id="full stack, equal headers"),
        pytest.param(PUSH, 0, "0205", "01d50000", "aa0205", id="push"),
        pytest.param(PUSH, 0, "02040609", "03d50000", "aa020406", id="push drops the last"),
        pytest.param(POP, 0, "020407", "01820000", "0407", id="pop"),
        pytest.param(POP, 0, "05", "00000100", "", id="pop the only one: two invalid headers are equal"),
        pytest.param(MOVE, 0, "0205", "01000000", "0205", id="assignment from a header, then invalid"),
        pytest.param(WRITE, 1, "0205", "01810000", "0255", id="write at a run-time index"),
        pytest.param(WRITE, 0, "0205", "01aa0000", "5405", id="write at run-time index 0"),
        pytest.param(PUSH3, 0, "0205", "02000100", "02", id="push three"),
        pytest.param(POP3, 0, "02040609", "00840000", "09", id="pop three"),
        pytest.param(COPY, 0, "0205", "01810000", "0205", id="assignment from an invalid header"),
        pytest.param(RENEW, 0, "0205", "01800000", "0105", id="a new header is all zeros"),
        # The parser stops with an error; what it did not take is payload.
        pytest.param(0, 0, "020406080b", "038100ee", "020406080b", id="more labels than the stack holds"),
    ],
)
def test_stack(switch: StartProgram, operation: int, index: int, labels: str, report: str, out: str) -> None:
    [(port, got)] = switch("stacks").run(1, frame(operation, index, labels))
    assert (port, got.hex()) == (1, (ethernet() + bytes.fromhex(report + out) + PAYLOAD).hex())


def test_packet_too_short_for_a_label(switch: StartProgram) -> None:
    [(_, got)] = switch("stacks").run(1, frame(0, 0, "0204", b""))
    assert got == ethernet() + bytes.fromhex("018100ee0204")


@pytest.mark.parametrize(
    ("operation", "member", "out"),
    [
        pytest.param(0, "0177", "0177", id="the short one"),
        pytest.param(0, "02777777", "02777777", id="the long one"),
        pytest.param(UNION, "0177", "02abcdef", id="the other becomes valid"),
    ],
)
def test_union(switch: StartProgram, operation: int, member: str, out: str) -> None:
    [(_, got)] = switch("stacks").run(1, frame(operation, 0, "05", bytes.fromhex(member) + PAYLOAD))
    assert got == ethernet() + bytes.fromhex("0882000005" + out) + PAYLOAD
