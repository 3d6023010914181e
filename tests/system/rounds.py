# SPDX-License-Identifier: MIT
"""Rounds until the time is up, as soak and memory-check make them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from netsum_testbed.checking import Screen, Totals, numbers_from


@dataclass
class RoundTotals(Totals):
    """The counts of a run that consists of rounds."""

    rounds: int = 0


def play_rounds(
    totals: RoundTotals,
    screen: Screen,
    seconds: float,
    only: int | None,
    play: Callable[[int], None],
    again: Callable[[int], str],
) -> None:
    """Play the rounds, or the one that is given, until so many ``seconds`` are over; the last one begins before that and is
    completed. One that has failures is followed by the command that repeats it, which ``again`` makes."""
    began, before = time.monotonic(), totals.seconds
    for number in numbers_from(0, only):
        if number and only is None and time.monotonic() - began >= seconds:
            return
        failures = totals.failures
        try:
            play(number)
        finally:
            totals.seconds = before + time.monotonic() - began
            if totals.failures > failures:
                screen.say(f"  again with: {again(number)}")
        totals.rounds += 1
        screen.show(totals)
