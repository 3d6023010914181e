# SPDX-License-Identifier: MIT
"""Targets of the fuzzer: the pipeline in this process, the embedded switch over its ports, simple_switch_grpc."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.fuzz.targets import InProcess, OnWires, Target

TARGETS = [
    "pipeline",
    "datagrams-embedded",
    pytest.param("veths-embedded", marks=[pytest.mark.root, pytest.mark.full]),
    pytest.param("veths-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A fresh switch with the site's entries and no blocks yet."""
    if request.param == "pipeline":
        yield InProcess()
        return
    wires, kind = request.param.split("-")
    on_wires = OnWires(kind, rootless=wires == "datagrams")
    yield on_wires
    on_wires.close()
