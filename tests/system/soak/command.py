"""The command ``soak``."""

from __future__ import annotations

import os
from pathlib import Path

import click
from netsum_controller.errors import InputError
from netsum_testbed.checking import (
    amount_option,
    chosen_switch,
    only_option,
    rootless_option,
    running,
    seed_option,
    switch_option,
)

from tests.system.faults.make import KernelError, Possible, check_kernel
from tests.system.faults.scenario import EventKind, Scenario, Where
from tests.system.soak.cases import MAX_WORKERS, highest_rank
from tests.system.soak.report import SoakTotals
from tests.system.soak.run import Soak, SoakOptions
from tests.system.soak.workers import open_outside, quiet_hosts

MINUTES = 10.0


def possible_on(switch: str, *, rootless: bool) -> tuple[Possible, str | None]:
    """Say what can go wrong on such a fabric, and a remark on what this kernel cannot do."""
    places = [Where.HOSTS]
    missing = None
    if switch == "embedded":
        places.append(Where.SWITCH)
    if not rootless:
        try:
            check_kernel()
            places.append(Where.KERNEL)
        except KernelError as error:
            missing = f"*** NO PACKETS ARE LOST IN THE KERNEL: {error} ***"
    cuts = len(places) > 1  # others than the hosts
    return Possible(tuple(places), tuple(kind for kind in EventKind if cuts or kind is not EventKind.CUT_TRUNK)), missing


@click.command()
@switch_option()
@amount_option("--minutes", default=MINUTES, text="during which rounds are begun", above=True)
@seed_option()
@only_option("round", "--round")
@click.option(
    "--scenario",
    "scenario_file",
    type=click.Path(path_type=Path),
    help="what goes wrong in every round, JSON or YAML, such as the line that a round logs",
)
@rootless_option
def soak(switch: str, minutes: float, seed: int, only: int | None, scenario_file: Path | None, rootless: bool) -> None:
    """Make random calls while packets are lost, ranks stall or are killed, and switches and the controller restart.

    Every result must be exact, or a partial one that says so; every error must come in time. The last line is one
    JSON object; the exit code is 1 if a result was wrong, a rank hung, or an error came late or blamed the innocent.
    """
    name = chosen_switch(switch, rootless=rootless)
    scenario = None if scenario_file is None else Scenario.load(scenario_file)
    quiet_hosts()
    rootless = rootless or os.geteuid() != 0
    possible, missing = possible_on(name, rootless=rootless)
    if scenario is not None and scenario.where not in possible.where:
        raise InputError(f"{scenario_file}: packets cannot be disturbed in the {scenario.where} here")
    options = SoakOptions(60 * minutes, seed, only, scenario, possible)
    totals = SoakTotals(name, seed)
    hosts = MAX_WORKERS if scenario is None else max(MAX_WORKERS, highest_rank(scenario) + 1)
    with running(totals) as screen, open_outside(name, hosts, rootless=rootless) as fabric:
        where = "rootless" if rootless else "namespace"
        screen.say(f"soak on the {name} switch ({where}), seed {seed}, {minutes:g} min")
        if missing is not None:
            screen.say(missing)
        screen.begin(options.duration)
        Soak(fabric, options, totals, screen).run()
