# SPDX-License-Identifier: MIT
"""The command ``memory-check``: rounds in one process, then rounds on a network, until the time is up."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from netsum_testbed.checking import (
    Screen,
    chosen_switch,
    count_option,
    duration_option,
    only_option,
    option_words,
    rootless_option,
    running,
    seed_option,
    switch_option,
)

from tests.system.memory.in_process.stage import SITE, Stage
from tests.system.memory.on_network.stage import NetworkRound, open_site, start_devices
from tests.system.memory.plan import MemoryPlan, Site, make_plan
from tests.system.memory.round import MemoryTotals
from tests.system.rounds import play_rounds

IN_PROCESS: Final = "in-process"
NETWORK: Final = "network"
STAGES: Final = ("both", IN_PROCESS, NETWORK)
SHARE: Final = {IN_PROCESS: 0.25, NETWORK: 0.75}
"""Of the time, if there are both stages."""


@dataclass(frozen=True)
class MemoryCheckOptions:
    """Options of a run. ``duration`` in seconds; ``only``: that round alone; ``instructions`` of each client in a round."""

    duration: float = 60.0
    seed: int = 1
    only: int | None = None
    stage: str = "both"
    instructions: int = 100
    rootless: bool = False

    def play(self, stage: str, site: Site, totals: MemoryTotals, screen: Screen, play: Callable[[MemoryPlan], None]) -> None:
        """Play a stage's rounds until its time is up."""

        def plan(number: int) -> MemoryPlan:
            return make_plan(self.seed, number, site, instructions=self.instructions)

        def again(number: int) -> str:
            screen.say(f"  round {number}: {plan(number).describe()}")
            words = [f"--stage {stage} --only {number}", *option_words(self, "instructions"), *["--rootless"] * self.rootless]
            return f'make memory-check SWITCH={totals.switch} SEED={self.seed} ARGS="{" ".join(words)}"'

        seconds = self.duration * (SHARE[stage] if self.stage == "both" else 1)
        play_rounds(totals, screen, seconds, self.only, lambda number: play(plan(number)), again)


@click.command()
@switch_option()
@duration_option
@seed_option()
@only_option("round", "--round")
@click.option(
    "--stage",
    type=click.Choice(STAGES),
    default=MemoryCheckOptions.stage,
    show_default=True,
    help="pure devices and clients in this process, or real ones on a network",
)
@count_option("--instructions", default=MemoryCheckOptions.instructions, text="of each client in a round", most=100_000)
@rootless_option
def memory_check(switch: str, rootless: bool, **given: Any) -> None:
    """Ask random instructions of memory in the network while packets are lost, devices die and regions move, and check every
    answer against a model.

    The last line is one JSON object; the exit code is 1 if anything was wrong, lost, or done twice.
    """
    name = chosen_switch(switch, rootless=rootless)
    options = MemoryCheckOptions(**given, rootless=rootless or os.geteuid() != 0)
    totals = MemoryTotals(name, options.seed)

    with running(totals) as screen:
        screen.begin(options.duration)
        if options.stage != NETWORK:
            screen.say(f"memory-check in one process, seed {options.seed}")

            def play(plan: MemoryPlan) -> None:
                with tempfile.TemporaryDirectory(prefix="netsum-") as folder:
                    Stage(plan, Path(folder), totals, screen.say).run()

            options.play(IN_PROCESS, SITE, totals, screen, play)
        if options.stage != IN_PROCESS:
            with open_site(name, rootless=options.rootless) as fabric:
                where = "rootless" if fabric.rootless else "namespace"
                screen.say(f"memory-check on the {name} switch ({where}), seed {options.seed}")
                site = start_devices(fabric)
                options.play(NETWORK, site, totals, screen, lambda plan: NetworkRound(fabric, plan, totals, screen).run())
