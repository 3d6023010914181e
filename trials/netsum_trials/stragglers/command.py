"""The ``make stragglers`` command."""

from __future__ import annotations

from collections.abc import Sequence

import click
from netsum.agent.tables import table_console
from netsum_controller.config.job_spec import MAX_BLOCK_EXP, MIN_BLOCK_EXP
from netsum_controller.config.topologies import star
from netsum_testbed.checking import amount_option, count_option, list_option, seed_option, switch_option
from netsum_testbed.commands import MAX_WORKERS, open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import end_on_signals

from netsum_trials.stragglers.pattern import Pattern
from netsum_trials.stragglers.report import results_table, to_json
from netsum_trials.stragglers.run import run_all
from netsum_trials.stragglers.trial import Setting

PROBABILITIES = "0.08,0.16,0.32"


@click.command()
@switch_option("simple_switch_grpc if it is on PATH, else the embedded one")
@count_option("--workers", default=4, told="one on each host", least=2, most=MAX_WORKERS)
@count_option("--stragglers", "sleepy", default=1, told="so many of them")
@count_option("--steps", default=300, told="batches of 128 images", least=2)
@amount_option("--compute", default=40.0, told="ms that a gradient takes", most=60_000)
@amount_option(
    "--block-exp",
    default=20.0,
    told="ms after which a block that waits for a straggler is closed",
    least=MIN_BLOCK_EXP,
    most=MAX_BLOCK_EXP,
)
@list_option("--probabilities", float, 0, 1, PROBABILITIES, "of a sleep")
@count_option("--points", default=3, told="sleeps that a step may have")
@amount_option("--nap", default=20.0, told="steps of one long sleep; 0: none")
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
    console = table_console()
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
