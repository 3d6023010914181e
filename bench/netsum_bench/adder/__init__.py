# SPDX-License-Identifier: MIT
"""The bare adder, to compare with: ``adder.p4`` says what it does, and ``make p4`` compiles it into the files beside it."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from netsum_controller.p4runtime.p4info import CompiledProgram

ALL_PORTS: Final = 1
"""The multicast group to which the sums go."""


def adder_program() -> CompiledProgram:
    folder = files(__name__)
    p4info, program = (folder.joinpath(f"adder.{kind}").read_text("utf-8") for kind in ("p4info.txtpb", "json"))
    return CompiledProgram(p4info, program)
