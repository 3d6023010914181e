"""The ``make stragglers`` command."""

from __future__ import annotations

from collections.abc import Sequence

import click
from netsum_controller.config.job_spec import MAX_BLOCK_EXP, MIN_BLOCK_EXP
from netsum_controller.config.topologies import star
from netsum_testbed.checking import list_option, seed_option, switch_option
from netsum_testbed.commands import MAX_WORKERS, open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import end_on_signals
from rich.console import Console

from netsum_trials.stragglers.pattern import Pattern
from netsum_trials.stragglers.report import results_table, to_json
from netsum_trials.stragglers.run import run_all
from netsum_trials.stragglers.trial import Setting

PROBABILITIES = "0.08,0.16,0.32"


@click.command()
@switch_option("simple_switch_grpc if it is on PATH, else the embedded one")
@click.option("--workers", type=click.IntRange(2, MAX_WORKERS), default=4, show_default=True, help="one on each host")
@click.option(
    "--stragglers", "sleepy", type=click.IntRange(min=1), default=1, show_default=True, help="so many of them"
)
@click.option("--steps", type=click.IntRange(min=2), default=300, show_default=True, help="batches of 128 images")
@click.option(
    "--compute", type=click.FloatRange(0, 60_000), default=40.0, show_default=True, help="ms that a gradient takes"
)
@click.option(
    "--block-exp",
    type=click.FloatRange(MIN_BLOCK_EXP, MAX_BLOCK_EXP),
    default=20.0,
    show_default=True,
    help="ms after which a block that waits for a straggler is closed",
)
@list_option("--probabilities", float, 0, 1, PROBABILITIES, "of a sleep")
@click.option("--points", type=click.IntRange(min=1), default=3, show_default=True, help="sleeps that a step may have")
@click.option(
    "--nap", type=click.FloatRange(min=0), default=20.0, show_default=True, help="steps of one long sleep; 0: none"
)
@seed_option("of the sleeps")
@click.option("--rootless", is_flag=True, help="on the loopback, not in Mininet, even as root")
def stragglers(
    switch: str,
    workers: int,
    sleepy: int,
    steps: int,
    compute: float,
    block_exp: float,
    probabilities: Sequence[float],
    points: int,
    nap: float,
    seed: int,
    rootless: bool,
) -> None:
    """Train with workers that sleep at random, in a job that waits for them and in one that degrades, and compare.

    A straggler sleeps as in Trio-ML's evaluation: at each of the points of a step, with each of the probabilities, for 0.5
    to 2 times what a step takes without sleepers. The last line is one JSON object.
    """
    if sleepy > workers:
        raise click.UsageError(f"--stragglers {sleepy}: there are {workers} workers")
    end_on_signals()
    console = Console()
    setting = Setting(workers, steps, compute / 1000, block_exp / 1000, sleepy)
    patterns = [Pattern(chance, points, seed) for chance in probabilities]
    patterns += [Pattern(0.0, points, seed, nap)] if nap else []

    def say(words: str) -> None:
        console.print(words, highlight=False, soft_wrap=True)

    reason = "--rootless" if rootless else without_mininet()
    with open_topology(star(workers), switch, reason, console) as fabric:
        say(f"{fabric.switch} switch and {workers} workers: up")
        results = run_all(fabric, setting, patterns, say)
    console.print(results_table(results))
    click.echo(to_json(results))
    if any(outcome.difference for outcome in results.trainings):
        raise TestbedError("the replicas differ: they must be equal to the last bit")
