"""Rounds in one process, then rounds on a network, until the time is up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from netsum_testbed.checking import Screen, numbers_from

from tests.system.memory.in_process.stage import SITE, Stage
from tests.system.memory.plan import MemoryPlan, Site, make_plan
from tests.system.memory.report import MemoryTotals

IN_PROCESS: Final = "in-process"
NETWORK: Final = "network"
STAGES: Final = ("both", IN_PROCESS, NETWORK)
SHARE: Final = 0.25
"""Of the time, for the first stage if there are both."""

Play = Callable[[MemoryPlan], None]


@dataclass(frozen=True)
class MemoryCheckOptions:
    """Options of a run. ``duration`` in seconds; ``only``: that round alone; ``instructions`` of each client in a round."""

    duration: float = 60.0
    seed: int = 1
    only: int | None = None
    stage: str = "both"
    instructions: int = 100
    rootless: bool = False

    def has(self, stage: str) -> bool:
        return self.stage in ("both", stage)

    def share(self, stage: str) -> float:
        """Seconds of a stage."""
        if self.stage != "both":
            return self.duration
        return self.duration * (SHARE if stage == IN_PROCESS else 1 - SHARE)

    def replay(self, switch: str, stage: str, number: int) -> str:
        """The command that repeats a round."""
        words = [f"--stage {stage} --only {number}"]
        if self.instructions != MemoryCheckOptions.instructions:
            words.append(f"--instructions {self.instructions}")
        if self.rootless:
            words.append("--rootless")
        return f'make memory-check SWITCH={switch} SEED={self.seed} ARGS="{" ".join(words)}"'


def play_rounds(options: MemoryCheckOptions, stage: str, site: Site, totals: MemoryTotals, screen: Screen, play: Play) -> None:
    """Play a stage's rounds until its time is up; the last one begins before that."""
    began, before = time.monotonic(), totals.seconds
    for number in numbers_from(0, options.only):
        spent = time.monotonic() - began
        if number and options.only is None and spent >= options.share(stage):
            return
        plan = make_plan(options.seed, number, site, instructions=options.instructions)
        failed = totals.failures
        try:
            play(plan)
        finally:
            totals.seconds = before + time.monotonic() - began
            if totals.failures > failed:
                screen.say(f"  round {number}: {plan.describe()}")
                screen.say(f"  again with: {options.replay(totals.switch, stage, number)}")
        totals.rounds += 1
        screen.show(totals)


def play_in_process(options: MemoryCheckOptions, totals: MemoryTotals, screen: Screen) -> None:
    """The first stage."""

    def play(plan: MemoryPlan) -> None:
        with tempfile.TemporaryDirectory(prefix="netsum-") as folder:
            Stage(plan, Path(folder), totals, screen.say).run()

    play_rounds(options, IN_PROCESS, SITE, totals, screen, play)
