# SPDX-License-Identifier: MIT
"""The embedded switch's parser and pipeline, running the compiled program: every frame meets the predicted fate."""

from __future__ import annotations

from netsum.wire.schema import OUTCOMES_PER_JOB

from tests.fuzz.targets.api import FuzzTarget
from tests.protocol.targets import OUTCOMES
from tests.system.fuzz.expect import CHANGES, Expectation
from tests.system.fuzz.generate import make_batch
from tests.system.fuzz.setup import make_blocks
from tests.system.fuzz.site import PORTS
from tests.system.fuzz.targets import InProcess


def target() -> FuzzTarget:
    """An input is a port (one byte) and a frame."""
    switch = InProcess()
    expectation = Expectation(make_blocks(switch))
    pipeline = switch.pipeline
    cells = pipeline.counters[OUTCOMES].packets
    registers = [(cells, cells.tobytes()) for cells in pipeline.registers.values()]

    def take(data: bytes) -> None:
        port, frame = PORTS[data[0] % len(PORTS)] if data else 0, data[1:]
        verdict = expectation.judge(port, frame)
        if verdict.fate in CHANGES:
            return
        before = sum(cells)
        index = None if isinstance(verdict.fate, str) else verdict.job_id * OUTCOMES_PER_JOB + verdict.fate
        counted = 0 if index is None else cells[index]
        sent = pipeline.process(port, frame)
        assert sum(cells) - before == (index is not None), "counted as something else"
        assert index is None or cells[index] == counted + 1, f"not counted as {verdict.fate!r}"
        assert sorted(out for out, _ in sent) == sorted(verdict.egress), f"{verdict}: left on other ports"
        if verdict.is_answer:
            assert all(len(each) <= len(frame) for _, each in sent), "an answer larger than its question"
        else:
            assert all(each == frame for _, each in sent), "other people's frame was changed"
        assert all(cells.tobytes() == held for cells, held in registers), "a register was changed"

    packets = make_batch(expectation, 0, 0, 120).packets
    return FuzzTarget(take, [bytes((PORTS.index(port),)) + frame for port, frame in packets if len(frame) < 1000])
