# SPDX-License-Identifier: MIT
"""The ``make stragglers`` command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
from netsum.cli.tables import make_table, table_console
from netsum_controller.config.job_spec import MAX_BLOCK_EXP, MIN_BLOCK_EXP
from netsum_controller.config.topologies import star
from netsum_testbed.checking import amount_option, count_option, list_option, seed_option, switch_option
from netsum_testbed.commands import MAX_WORKERS, open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import end_on_signals
from rich.table import Table

from tests.system.stragglers.experiment import Pattern, Results, Setting, TrainingOutcome, run_all

# The table of ``make stragglers`` for people and its last line for programs.


COUNTS = ("degraded", "missed", "overflowed", "sat_out", "late", "behind", "resyncs")


def _compared(results: Results) -> Iterator[tuple[TrainingOutcome, TrainingOutcome]]:
    """Every training with a straggler, and the one that waits for the same straggler."""
    for row in results.rows:
        for outcome in row:
            yield outcome, row[0]


def results_table(results: Results) -> Table:
    """A line a training."""
    setting = results.setting
    title = f"{results.switch}: {setting.workers} workers, block_exp {1000 * setting.block_exp:g} ms"
    figures = ("step ms\nmedian", "\nmean", "speed\nup", "accuracy", "partial\nblocks", "sat\nout", "re-\nsyncs")
    table = make_table(title, ("asleep", "job", *(f">{name}" for name in figures)))
    for outcome in results.alone:
        table.add_row("none", *_words(outcome, outcome))
    for first, *others in results.rows:
        table.add_section()
        table.add_row(str(first.pattern), *_words(first, first))
        for outcome in others:
            table.add_row("", *_words(outcome, first))
    return table


def _words(outcome: TrainingOutcome, waited: TrainingOutcome) -> tuple[str, ...]:
    """A training's line, compared with the one that waits for the same straggler."""
    degrade = outcome.mode.degrade
    partial = outcome.count("degraded") / max(1, outcome.count("blocks"))
    return (
        outcome.mode.late if degrade else "wait",
        f"{1000 * outcome.median:.1f}",
        f"{1000 * outcome.mean:.1f}",
        "" if outcome is waited else f"{waited.mean / outcome.mean:.2f}",
        f"{outcome.accuracy:.1%}",
        *((f"{partial:.1%}", str(outcome.count("sat_out")), str(outcome.count("resyncs"))) if degrade else ("", "", "")),
    )


def _figures(outcome: TrainingOutcome, waited: TrainingOutcome | None) -> dict[str, Any]:
    pattern = outcome.pattern
    known: dict[str, Any] = {
        "job": "degrade" if outcome.mode.degrade else "wait",
        "policy": outcome.mode.late if outcome.mode.degrade else None,
        "probability": pattern.probability,
        "nap": pattern.nap,
        "iteration_ms_median": round(1000 * outcome.median, 2),
        "iteration_ms_mean": round(1000 * outcome.mean, 2),
        "accuracy": round(outcome.accuracy, 4),
        "max_weight_difference": outcome.difference,
        "slept_s": round(sum(diary.slept for diary in outcome.stragglers), 2),
        "blocks": outcome.count("blocks"),
        **{name: outcome.count(name) for name in COUNTS},
    }
    if waited is not None:
        known["speed_up"] = round(waited.mean / outcome.mean, 3)
    if len(outcome.stragglers) == 1 and pattern.probability:
        known["speed_up_bound"] = round(1 + pattern.mean, 3)  # as if sleeping cost the others nothing
    return known


def to_json(results: Results) -> str:
    """One line."""
    setting = results.setting
    trainings = [_figures(outcome, None) for outcome in results.alone]
    trainings += [_figures(outcome, waited) for outcome, waited in _compared(results)]
    accuracy = results.alone[0].accuracy
    partial = [outcome for outcome, _ in _compared(results) if outcome.mode.degrade]
    return json.dumps(
        {
            "switch": results.switch,
            "workers": setting.workers,
            "stragglers": setting.stragglers,
            "steps": setting.steps,
            "compute_ms": round(1000 * setting.compute, 3),
            "block_exp_ms": round(1000 * setting.block_exp, 3),
            "quorum": setting.quorum,
            "iteration_ms": round(1000 * results.usual, 2),
            "accuracy": round(accuracy, 4),
            "best_speed_up": round(max((waited.mean / each.mean for each, waited in _compared(results)), default=0), 3),
            "largest_accuracy_loss": round(max((accuracy - each.accuracy for each in partial), default=0), 4),
            "trainings": trainings,
        }
    )


PROBABILITIES = "0.08,0.16,0.32"


@click.command()
@switch_option("simple_switch_grpc if it is on PATH, else the embedded one")
@count_option("--workers", default=4, text="one on each host", least=2, most=MAX_WORKERS)
@count_option("--stragglers", "sleepy", default=1, text="so many of them")
@count_option("--steps", default=300, text="batches of 128 images", least=2)
@amount_option("--compute", default=40.0, text="ms that a gradient takes", most=60_000)
@amount_option(
    "--block-exp",
    default=20.0,
    text="ms after which a block that waits for a straggler is closed",
    least=MIN_BLOCK_EXP,
    most=MAX_BLOCK_EXP,
)
@list_option("--probabilities", float, 0, 1, PROBABILITIES, "of a sleep")
@count_option("--points", default=3, text="sleeps that a step may have")
@amount_option("--nap", default=20.0, text="steps of one long sleep; 0: none")
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
