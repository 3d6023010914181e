# SPDX-License-Identifier: MIT
"""The command ``cluster-check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click
from netsum.text import counted
from netsum_testbed.commands import without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import end_on_signals

from tests.system.cluster.network import Rates
from tests.system.cluster.run import TRIALS, in_one_switch, time_calls, time_ways, train

ROOT: Final = Path(__file__).parents[3]
PYTHON: Final = ROOT / ".venv-hosts" / "bin" / "python"
LARGE: Final = 16 << 20
SMALL: Final = 4 << 10
HOST_MBPS: Final = 1000
AGGREGATOR_MBPS: Final = 4000
EQUAL_RATES: Final = Rates(HOST_MBPS, HOST_MBPS)
"""Of an aggregator whose cable is no faster than a host's."""
RANKS_OF_ONE: Final = 4
"""Ranks of a server that needs no network."""


@click.command("cluster-check")
@click.option("--hosts", type=click.IntRange(2, 16), default=4, show_default=True, help="Servers with ranks.")
@click.option("--ranks", type=click.IntRange(1, 8), default=2, show_default=True, help="Ranks of each.")
@click.option("--steps", type=click.IntRange(20), default=60, show_default=True, help="Steps of each training.")
@click.option("--only", multiple=True, metavar="WORDS", help="Only trials whose name has these words; may be repeated.")
@click.option("--calls", type=click.IntRange(0), default=10, show_default=True, help="Timed calls of each size; 0: none.")
@click.option(
    "--python",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=PYTHON,
    help="Of an environment that has netsum by `pip install .`, and PyTorch [default: .venv-hosts].",
)
def cluster_check(hosts: int, ranks: int, steps: int, only: tuple[str, ...], calls: int, python: Path) -> None:
    """Train under torchrun on servers of an ordinary network, with an aggregator, in spite of all that may happen there.

    The losses must be those of an undisturbed training on a P4 switch. Then calls are timed, beside Gloo on the same network, and
    as an `auto` job makes them beside a ring and the aggregator alone. The last line is one JSON object. Needs root.
    """
    end_on_signals()
    if reason := without_mininet():
        raise TestbedError(f"the servers are network namespaces, and the training to compare with is in Mininet: {reason}")
    trials = [trial for trial in TRIALS if not only or any(words in trial.name for words in only)]
    if not trials:
        names = "; ".join(trial.name for trial in TRIALS)
        raise click.UsageError(f"--only {' '.join(only)}: no trial has these words (there are: {names})")
    right = {}
    for mtu in dict.fromkeys(trial.mtu for trial in trials):
        click.echo(f"{hosts * ranks} ranks on a P4 switch's own ports, undisturbed, MTU {mtu}", err=True)
        right[mtu] = in_one_switch(python, hosts * ranks, steps, mtu)
    said: dict[str, Any] = {"hosts": hosts, "ranks": ranks, "steps": steps, "trials": {}, "wrong": 0}
    for trial in trials:
        click.echo(f"{hosts} servers of {ranks}: {trial.name}", err=True)
        line, found = train(trial, python, hosts, ranks, steps)
        said["trials"][trial.name] = {"losses_equal": line == right[trial.mtu], **found}
        said["wrong"] += line != right[trial.mtu]
    forged = [each for each in said["trials"].values() if "forged" in each]
    said["losses_equal"] = said["wrong"] == 0
    said["forged_changes"] = sum(not each["losses_equal"] for each in forged) if forged else None
    if calls:
        said |= _timed(python, hosts, ranks, calls) | _by_ways(python, hosts, ranks, calls)
    click.echo(json.dumps(said))
    if said["wrong"]:
        raise TestbedError(f"{said['wrong']} of {len(trials)} trainings have other losses than the undisturbed one")


def _timed(python: Path, hosts: int, ranks: int, calls: int) -> dict[str, Any]:
    """Seconds of calls, with one rank a host and with several, and on one server alone, and how many times as fast as Gloo netsum
    is."""
    found: dict[str, Any] = {"host_mbps": HOST_MBPS, "aggregator_mbps": AGGREGATOR_MBPS, "calls": {}}
    shapes = dict.fromkeys(((hosts, 1), (hosts, ranks), (1, RANKS_OF_ONE)))
    for servers, each in shapes:
        click.echo(f"{counted(servers, 'server')} of {counted(each, 'rank')}: timing calls beside Gloo's", err=True)
        times = time_calls(python, servers, each, calls, Rates(HOST_MBPS, AGGREGATOR_MBPS), (LARGE, SMALL))
        ratios = {size: round(times["gloo"][size] / times["netsum"][size], 2) for size in times["netsum"]}
        found["calls"][f"{servers}x{each}"] = {"seconds": times, "times_gloo": ratios}
    last, alone = (found["calls"][shape]["times_gloo"] for shape in (f"{hosts}x{ranks}", f"1x{RANKS_OF_ONE}"))
    return {
        **found,
        "times_gloo_16M": last[str(LARGE)],
        "times_gloo_4K": last[str(SMALL)],
        "times_gloo_16M_one_server": alone[str(LARGE)],
    }


def _by_ways(python: Path, hosts: int, ranks: int, calls: int) -> dict[str, Any]:
    """Large calls of an ``auto`` job beside the ways that it chooses from, where the aggregator's cable is no faster than a
    host's."""
    found = {}
    for each in dict.fromkeys((1, ranks)):
        click.echo(f"{counted(hosts, 'server')} of {counted(each, 'rank')}: timing calls by ring, aggregator and both", err=True)
        found[f"{hosts}x{each}"] = time_ways(python, hosts, each, calls, EQUAL_RATES, LARGE)
    return {"ways": found, "times_better_of_ring_and_aggregator": min(each["times_better"] for each in found.values())}
