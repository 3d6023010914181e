# SPDX-License-Identifier: MIT
"""Loops in actions and stacks of header unions on all switches; meters against a model of their own."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from netsum_switch.errors import MeterError, SwitchError
from netsum_switch.externs import GREEN, RED, YELLOW, MeterConfig
from netsum_switch.pipeline import load_pipeline

from tests.switch.core.conftest import StartProgram
from tests.switch.core.switches import Core, call
from tests.switch.harness.controller import PROGRAMS

PACKETS, BYTES, SUM, COUNT = 1, 2, 5, 6
KEEP, POP, PUSH, GROW, COPY = range(0x40, 0x45)
SIZE = 14 + 10


@pytest.mark.parametrize(
    ("below", "turns", "total"), [(0, 0, 0), (1, 1, 0), (2, 2, 1), (10, 10, 25), (100, 100, 2500), (5000, 101, 2500)]
)
def test_a_loop_with_continue_and_break(switch: StartProgram, below: int, turns: int, total: int) -> None:
    assert switch("constructs").run(1, call(SUM, a=below)) == [(1, call(SUM, turns, below, total))]


@pytest.mark.parametrize(("outer", "inner"), [(0, 7), (7, 0), (1, 1), (30, 40)])
def test_a_loop_in_a_loop(switch: StartProgram, outer: int, inner: int) -> None:
    assert switch("constructs").run(1, call(COUNT, 0, outer, inner)) == [(1, call(COUNT, 0, outer, outer * inner))]


def test_a_loop_without_an_end_costs_the_packet_alone() -> None:
    core = Core("constructs")
    with pytest.raises(SwitchError, match="an action loops more than 1048576 times"):
        core.run(1, call(COUNT, a=1 << 20, b=1))
    assert core.run(1, call(COUNT, a=2, b=2)) == [(1, call(COUNT, a=2, b=4))]


@pytest.mark.parametrize(
    ("operation", "units", "after", "first"),
    [
        pytest.param(KEEP, "", "", False, id="none"),
        pytest.param(KEEP, "0111022222", "0111022222", True, id="one of each"),
        pytest.param(KEEP, "011102222201330144", "011102222201330144", True, id="more than there is room for"),
        pytest.param(KEEP, "011102", "011102", True, id="cut off in the second"),
        pytest.param(POP, "", "", False, id="pop none"),
        pytest.param(POP, "0111", "0111", False, id="pop the only one: it is the last then"),
        pytest.param(POP, "01110222220133", "02222201330111", True, id="pop the first of three"),
        pytest.param(PUSH, "0111022222", "0111022222", False, id="push before two"),
        pytest.param(PUSH, "01110222220133", "01330111022222", True, id="push before three: the last is the first then"),
        pytest.param(GROW, "01110222220133", "011101770133", True, id="another member becomes valid"),
        pytest.param(GROW, "", "0177", False, id="an element becomes valid"),
        pytest.param(COPY, "01110222220133", "01110222220111", True, id="an element from another"),
        pytest.param(COPY, "02222201110133", "0222220111022222", True, id="of the other member"),
    ],
)
def test_a_stack_of_unions(switch: StartProgram, operation: int, units: str, after: str, first: bool) -> None:
    """A union that push and pop should make invalid stays valid at the other end, as in BMv2."""
    out = call(operation, int(first), units=after)
    assert switch("constructs").run(1, call(operation, units=units)) == [(1, out)]


class Bucket:
    """Tokens of one rate in exact numbers. An increase counts when it is whole, as of the meter's beginning."""

    def __init__(self, rate: int, burst: int) -> None:
        self.rate, self.burst, self.tokens, self.earned = rate, burst, burst, 0

    def take(self, wanted: int, now: int) -> bool:
        earned = int(Fraction(self.rate * now, 1_000_000))
        self.tokens = min(self.burst, self.tokens + earned - self.earned)
        self.earned = earned
        enough = self.tokens >= wanted
        self.tokens -= wanted if enough else 0
        return enough


@pytest.mark.parametrize("operation", [PACKETS, BYTES])
@pytest.mark.parametrize("seed", range(3))
def test_colors(operation: int, seed: int) -> None:
    chance, now = random.Random(seed), [1_000]
    pipeline = load_pipeline((PROGRAMS / "constructs.json").read_bytes(), clock=lambda: now[0])
    meter = pipeline.meters["IngressImpl.packets" if operation == PACKETS else "IngressImpl.bytes"]
    size = 1 if operation == PACKETS else SIZE
    committed, peak = chance.randrange(10) * size, chance.randrange(10, 40) * size
    config = MeterConfig(committed, chance.randrange(1, 5) * size, peak, chance.randrange(3, 12) * size)
    meter.configure(2, config)
    buckets = Bucket(config.pir, config.pburst), Bucket(config.cir, config.cburst)
    seen = set()
    for _ in range(300):
        now[0] += chance.choice([0, 0, 1, 900, 20_000, 90_000])
        red = not buckets[0].take(size, now[0])
        color = RED if red else GREEN if buckets[1].take(size, now[0]) else YELLOW
        assert pipeline.process(1, call(operation, 2)) == [(1, call(operation, 2, b=color))]
        seen.add(color)
    assert seen == {GREEN, YELLOW, RED}


def test_a_meter_that_is_not_configured_or_not_there() -> None:
    core = Core("constructs")
    meter = core.pipeline.meters["IngressImpl.packets"]
    assert core.run(1, call(PACKETS, 0, b=9)) == [(1, call(PACKETS, 0, b=GREEN))]
    meter.configure(0, MeterConfig(0, 0, 0, 0))
    assert core.run(1, call(PACKETS, 0)) == [(1, call(PACKETS, 0, b=RED))]
    with pytest.raises(MeterError, match="the peak rate 3 of a meter is below its committed rate 4"):
        meter.configure(0, MeterConfig(4, 1, 3, 1))
    assert core.run(1, call(PACKETS, 0)) == [(1, call(PACKETS, 0, b=RED))]
    assert core.run(1, call(PACKETS, 200)) == [(1, call(PACKETS, 200))]
    meter.configure(0, None)
    assert core.run(1, call(PACKETS, 0)) == [(1, call(PACKETS, 0, b=GREEN))]
    fastest = MeterConfig((1 << 64) - 1, (1 << 32) - 1, (1 << 64) - 1, (1 << 32) - 1)
    meter.configure(0, fastest)
    assert core.run(1, call(PACKETS, 0)) == [(1, call(PACKETS, 0, b=GREEN))]
