# SPDX-License-Identifier: MIT
"""parser_error: the numbers of the program, of which "no error" need not be 0."""

from __future__ import annotations

import json

import pytest
from netsum_switch.pipeline import load_pipeline

from tests.switch.core.conftest import StartProgram
from tests.switch.core.switches import ethernet
from tests.switch.harness.controller import PROGRAMS

NO_ERROR, ODD, STRANGE, TOO_SHORT = 1, 2, 3, 4
PAYLOAD = bytes(8)


@pytest.mark.parametrize(
    ("ether_type", "payload", "error"),
    [
        (0x4444, PAYLOAD, NO_ERROR),
        (0x3333, PAYLOAD, NO_ERROR),
        (0x1111, PAYLOAD, ODD),
        (0x2222, PAYLOAD, STRANGE),
        (0x3333, b"", TOO_SHORT),
    ],
)
def test_the_error_of_a_packet(switch: StartProgram, ether_type: int, payload: bytes, error: int) -> None:
    frame = ethernet(ether_type)
    assert switch("errors").run(1, frame + payload) == [(1, frame + bytes([error, error]) + payload)]


@pytest.mark.parametrize(("ether_type", "error"), [(0x4444, NO_ERROR), (0x2222, STRANGE)])
def test_a_clone_has_the_error_0(switch: StartProgram, ether_type: int, error: int) -> None:
    """Nothing sets the error of a clone, which is parsed again; here 0 is an error's number."""
    device, frame = switch("errors"), ethernet(ether_type)
    device.session(9, [(4, 0)])
    assert device.run(1, frame + PAYLOAD, (1, 4)) == [
        (1, frame + bytes([error, error]) + PAYLOAD),
        (4, frame + bytes([0, ODD]) + PAYLOAD),
    ]


def test_errors_that_a_program_does_not_name_have_the_numbers_behind_its_own() -> None:
    document = json.loads((PROGRAMS / "errors.json").read_text())
    document["errors"] = [each for each in document["errors"] if each[0] in ("Odd", "Strange")]
    pipeline = load_pipeline(json.dumps(document))
    numbers = pipeline.program.errors
    assert numbers == {"Odd": 0, "Strange": 1}
    [(_, out)] = pipeline.process(1, ethernet(0x4444) + PAYLOAD)
    assert out[14] == NO_ERROR  # 2, as p4c numbers it too
