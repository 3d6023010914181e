# SPDX-License-Identifier: MIT
"""``netsum plan place``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import click
from netsum.text import counted
from netsum_controller.cli.options import console, json_option, print_json, print_table
from netsum_controller.errors import InputError

from netsum_planner.errors import PlanError
from netsum_planner.options import figure, machine_option, plot_option, topology_options
from netsum_planner.placement.failover import Failover, fail_over
from netsum_planner.placement.failure_domains import FailureDomains, derived, read_failure_domains
from netsum_planner.placement.jobs import read_jobs
from netsum_planner.placement.search import PlacementPlan, Placer, Progress
from netsum_planner.ranks.command import FORMATS
from netsum_planner.simulator.collectives import IN_NETWORK
from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import Machine

# A picture of the placement.


def plot_plan(path: Path, plan: PlacementPlan) -> None:
    """A column for each rack, a square for each host: the job by its color; stage and replica, by number."""
    racks = plan.scopes.racks(plan.scopes.of)
    told: dict[str, tuple[str, str]] = {}
    for n, placement in enumerate(plan.placements):
        for number, group in enumerate(placement.tensor_groups):
            stage, replica = divmod(number, placement.sizes.dp)
            told |= dict.fromkeys(group, (f"C{n}", f"{replica + 1}.{stage + 1}"))
    with figure(path, width=max(4.0, 0.8 * len(racks)), height=1.5 + 0.4 * max(map(len, racks.values()))) as axes:
        for column, hosts in enumerate(racks.values()):
            for row, host in enumerate(hosts):
                color, words = told.get(host, ("0.6" if host in plan.scopes.taken else "white", ""))
                axes.bar(column, 1, bottom=row, width=0.95, color=color, edgecolor="0.3")
                axes.text(column, row + 0.5, f"{host} {words}".strip(), ha="center", va="center", fontsize=7)
        for n, placement in enumerate(plan.placements):
            axes.bar(0, 0, color=f"C{n}", label=f"{placement.job.name}: replica.stage")
        axes.bar(0, 0, color="0.6", label="taken")
        axes.set_xticks(range(len(racks)), list(racks), rotation=30)
        axes.set_yticks([])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=3, fontsize=8)


@click.command()
@topology_options
@click.argument("jobs", metavar="JOBS", type=click.Path(path_type=Path))
@click.option("--scopes", type=click.Path(path_type=Path), metavar="YAML", help="Racks, zones, buildings. [default: derived]")
@click.option("--taken", metavar="H,H...", help="Hosts that are not free.")
@click.option("--spare", type=click.IntRange(0), default=0, help="Free hosts to keep in each rack.")
@machine_option
@click.option("--lost", multiple=True, metavar="HOST", help="Who takes over if this host is lost; repeatable.")
@click.option("--compare", is_flag=True, help="With first-fit and random placements as well.")
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, help="Random placements of --compare.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the search.")
@click.option("--job", "only", metavar="NAME", help="Of --as, if there are several jobs.")
@click.option("--as", "as_file", type=click.Choice(list(FORMATS)), help="Only the order of a job's hosts, as of `ranks`.")
@plot_option
@json_option
def place(
    topology: Topology,
    jobs: Path,
    scopes: Path | None,
    taken: str | None,
    spare: int,
    machine: Machine,
    lost: Sequence[str],
    compare: bool,
    seeds: int,
    seed: int,
    only: str | None,
    as_file: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Choose hosts for trainings, and how they are spread over them.

    JOBS is a YAML file; its first job has the first choice. Tensor parallelism stays in a rack and a pipeline in a zone, unless
    a job says otherwise.
    """
    if as_file and (as_json or compare or lost):
        raise click.UsageError("--as prints the order alone: leave --json, --compare and --lost out")
    placer = Placer(topology, _scopes(topology, scopes, taken), read_jobs(jobs), machine, spare)
    _check(placer, lost, only, as_file)
    with console().status(f"{topology.name}: placing") as status:

        def show(words: str) -> None:
            status.update(f"{topology.name}: {words}")

        found = placer.place(seed, show)
        lose = [(host, fail_over(placer, found, host)) for host in lost]
        others = _others(placer, seeds, show) if compare else {}
    if plot is not None:
        plot_plan(plot, found)
    if as_file:
        click.echo(_ordered(found, only, as_file), nl=False)
    elif as_json:
        print_json(_json(placer, found, lose, others))
    else:
        _show(placer, found, lose, others)


def _check(placer: Placer, lost: Sequence[str], only: str | None, as_file: str | None) -> None:
    """The errors that are known before anything is placed."""
    names = [job.name for job in placer.jobs]
    if only is not None and not as_file:
        raise click.UsageError("--job is of --as")
    if as_file and (only not in names if only else len(names) > 1):
        raise PlanError(f"--as prints one job: choose it with --job ({', '.join(names)})")
    if unknown := sorted(set(lost) - set(placer.topology.hosts)):
        raise InputError(f"--lost: {placer.topology.name} has no host {', '.join(unknown)}")


def _others(placer: Placer, seeds: int, progress: Progress) -> dict[str, list[PlacementPlan]]:
    """The placements of other policies."""
    progress("first-fit")
    found = {"first-fit": [placer.by_policy("first-fit")], "random": []}
    for number in range(1, seeds + 1):
        progress(f"random, {number} of {seeds}")
        found["random"].append(placer.by_policy("random", number))
    return found


def _scopes(topology: Topology, file: Path | None, taken: str | None) -> FailureDomains:
    found = derived(topology) if file is None else read_failure_domains(file, topology)
    if taken is None:
        return found
    named = set(taken.split(","))
    if unknown := sorted(named - set(topology.hosts)):
        raise InputError(f"--taken {taken}: {topology.name} has no host {', '.join(unknown)}")
    return replace(found, taken=found.taken | named)


def _ordered(found: PlacementPlan, only: str | None, as_file: str) -> str:
    for job, why in found.waiting:
        if job.name == only:
            raise PlanError(f"job {only} waits: {why}")
    one = next(each for each in found.placements if only in (None, each.job.name))
    algorithm = "switch" if one.job.wanted.algorithm == IN_NETWORK else one.job.wanted.algorithm
    return FORMATS[as_file](one.order, one.job.name, algorithm)


def _json(
    placer: Placer, found: PlacementPlan, lose: Sequence[tuple[str, Failover | None]], others: dict[str, list[PlacementPlan]]
) -> dict[str, Any]:
    told = {"topology": placer.topology.name, "fragmentation_before": placer.scopes.fragmentation(placer.free)}
    told |= found.to_json()
    if lose:
        told["lost"] = [{"lost": host, "job": None} if each is None else each.to_json() for host, each in lose]
    if others:
        told["compared"] = {name: [plan.to_json() for plan in plans] for name, plans in others.items()}
    return told


def _show(
    placer: Placer, found: PlacementPlan, lose: Sequence[tuple[str, Failover | None]], others: dict[str, list[PlacementPlan]]
) -> None:
    free = placer.free
    click.echo(f"{placer.topology.name}: {counted(len(free), 'host')} of {len(placer.topology.hosts)} free")
    parts = ("COMPUTE", "BUBBLE", "TENSOR", "PIPELINE", "GRADIENTS")
    columns = ("JOB", "TENSOR x STAGES\nx REPLICAS", "A STEP\nms", *parts, "EFFICIENT")
    rows = []
    for each, told in zip(found.placements, found.predicted, strict=True):
        seconds = (told.step, told.compute, told.bubble, told.tensor, told.pipeline, told.gradients)
        milliseconds = (f"{part * 1e3:.2f}" for part in seconds)
        rows.append((each.job.name, each.sizes, *milliseconds, f"{told.efficiency:.1%}"))
    print_table(columns, rows)
    for each in found.placements:
        click.echo(f"{each.job.name}: {','.join(each.order)}")
    for job, why in found.waiting:
        click.echo(f"{job.name} waits: {why}")
    before = placer.scopes.fragmentation(free)
    click.echo(f"fragmentation {before:.1%} before, {found.fragmentation:.1%} after; {len(found.free)} free")
    for host, takeover in lose:
        click.echo(_lost(host, takeover))
    if others:
        _compared({"placed": [found], **others})


def _lost(host: str, told: Failover | None) -> str:
    if told is None:
        return f"{host} lost: no job has it"
    words = f"{host} lost: {told.job} "
    if told.after is None:
        return f"{words}stops: no host can take over, and no replica is left"
    step = f"a step takes {told.after.step * 1e3:.2f} ms instead of {told.before.step * 1e3:.2f}"
    if not told.by:
        return f"{words}goes on with a replica fewer; {step}"
    near = f"from {', '.join(told.source)} in {(told.seconds or 0.0) * 1e3:.0f} ms"
    where = near if told.source else "from a checkpoint"
    moved = f"{told.nbytes / 1e6:.0f} MB {where}"
    return f"{words}goes on with {', '.join(told.by)}, which {'gets' if len(told.by) == 1 else 'get'} {moved}; {step}"


def _compared(plans: dict[str, list[PlacementPlan]]) -> None:
    rows = []
    for name, each in plans.items():
        done = [plan.efficiency for plan in each]
        rows.append(
            (
                name if len(each) == 1 else f"{name}, {len(each)} seeds",
                f"{mean(done):.1%}",
                f"{min(done):.1%}",
                f"{max(done):.1%}",
                f"{mean(plan.fragmentation for plan in each):.1%}",
                f"{mean(len(plan.waiting) for plan in each):g}",
            )
        )
    print_table(("HOSTS", "EFFICIENT\nmean", "\nworst", "\nbest", "FRAGMENTATION", "JOBS THAT\nWAIT"), rows)
