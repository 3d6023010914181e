"""The table of ``make stragglers`` for people and its last line for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from netsum.agent.tables import make_table
from rich.table import Table

from netsum_trials.stragglers.run import Results
from netsum_trials.stragglers.trial import Outcome

COUNTS = ("degraded", "missed", "unfit", "sat_out", "late", "behind", "resyncs")


def _compared(results: Results) -> Iterator[tuple[Outcome, Outcome]]:
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
        table.add_row("nobody", *_words(outcome, outcome))
    for first, *others in results.rows:
        table.add_section()
        table.add_row(str(first.pattern), *_words(first, first))
        for outcome in others:
            table.add_row("", *_words(outcome, first))
    return table


def _words(outcome: Outcome, waited: Outcome) -> tuple[str, ...]:
    """A training's line, compared with the one that waits for the same straggler."""
    degrade = outcome.mode.degrade
    partial = outcome.count("degraded") / max(1, outcome.count("blocks"))
    return (
        outcome.mode.late if degrade else "wait",
        f"{1000 * outcome.median:.1f}",
        f"{1000 * outcome.mean:.1f}",
        "" if outcome is waited else f"{waited.mean / outcome.mean:.2f}",
        f"{outcome.accuracy:.1%}",
        *(
            (f"{partial:.1%}", str(outcome.count("sat_out")), str(outcome.count("resyncs")))
            if degrade
            else ("", "", "")
        ),
    )


def _figures(outcome: Outcome, waited: Outcome | None) -> dict[str, Any]:
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
