"""The ``detection`` trial."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click
from netsum.agent.tables import table_console
from netsum_controller.config.job_spec import MAX_BLOCK_EXP, MIN_BLOCK_EXP
from netsum_testbed.checking import count_option, list_option, names_of, seed_option, switch_option
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabrics import open_fabric
from netsum_testbed.interrupts import end_on_signals

from netsum_trials.stragglers.detection import Detected, detect
from netsum_trials.stragglers.detection_report import histogram_table, to_json

SAMPLES = 200
EXPIRIES = "5,10,20,50,100"


@click.command()
@switch_option("both, simple_switch_grpc if it is on PATH (and root)")
@list_option("--block-exp", float, MIN_BLOCK_EXP, MAX_BLOCK_EXP, EXPIRIES, "milliseconds")
@count_option("--samples", default=SAMPLES, told="blocks of each")
@seed_option("of the moments when blocks begin")
def detection(switch: str, block_exp: Sequence[float], samples: int, seed: int) -> None:
    """Measure how long a block waits for a straggler before the switch closes it, for several block_exp.

    First contributions are sent once, so that only scans can close a block; then a host repeats them. The last line is
    one JSON object.
    """
    rootless = os.geteuid() != 0
    if rootless and switch == "bmv2":
        raise TestbedError("simple_switch_grpc needs network interfaces: run as root, or with --switch embedded")
    end_on_signals()
    console = table_console()
    console.print("From a contribution to the partial result of its block, in units of block_exp.", highlight=False)
    measured: list[Detected] = []
    for name in names_of(switch):
        with console.status(f"{name}: starting") as status, open_fabric(name, hosts=2, rootless=rootless) as fabric:
            for repeats in (False, True):
                some = []
                for expiry in block_exp:
                    status.update(f"{name}: block_exp {expiry:g} ms, {'repeated' if repeats else 'sent once'}")
                    some.append(detect(name, fabric, expiry / 1000, samples, repeats=repeats, seed=seed))
                console.print(histogram_table(some))
                measured += some
    click.echo(to_json(measured))
