"""The command ``memory-check``."""

from __future__ import annotations

import os
from typing import Any

import click
from netsum_testbed.checking import (
    chosen_switch,
    count_option,
    duration_option,
    only_option,
    rootless_option,
    running,
    seed_option,
    switch_option,
)

from tests.system.memory.on_network.stage import play_on_network
from tests.system.memory.report import MemoryTotals
from tests.system.memory.run import IN_PROCESS, NETWORK, STAGES, MemoryCheckOptions, play_in_process


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
        if options.has(IN_PROCESS):
            screen.say(f"memory-check in one process, seed {options.seed}")
            play_in_process(options, totals, screen)
        if options.has(NETWORK):
            play_on_network(options, totals, screen)
