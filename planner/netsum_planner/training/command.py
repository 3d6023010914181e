# SPDX-License-Identifier: MIT
"""The ``netsum predict`` commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from netsum_controller.cli.options import console, json_option, print_json, print_table
from netsum_controller.errors import InputError

from netsum_planner.options import figure, machine_option, plot_option, topology_options
from netsum_planner.simulator.collectives import ALGORITHMS
from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import Machine, from_torch, read_training, to_yaml
from netsum_planner.training.job import calibrate as measure
from netsum_planner.training.timeline import Point, StepTimeline, changes, predict, scaling, simulated

# Pictures of steps and of scaling.


def plot_step(path: Path, name: str, step: StepTimeline) -> None:
    """A Gantt chart of one step."""
    with figure(path, width=9.0, height=2.6) as axes:
        axes.barh("compute", step.forward * 1e3, color="tab:blue", label="forward")
        axes.barh("compute", step.backward * 1e3, left=step.forward * 1e3, color="tab:cyan", label="backward")
        for number, (begin, end) in enumerate(step.calls):
            label = "a bucket's allreduce" if not number else None
            axes.barh("network", (end - begin) * 1e3, left=begin * 1e3, color="tab:orange", edgecolor="white", label=label)
        axes.barh("input", step.input * 1e3, color="tab:green", label="input")
        axes.set_xlabel(f"ms; {name}: {step.step * 1e3:.1f} ms a step, {step.efficiency:.0%} efficient")
        axes.legend(loc="lower right")


def plot_scaling(path: Path, name: str, points: Sequence[Point]) -> None:
    """Efficiency over the number of workers, a panel for each algorithm, a line for each rate."""
    algorithms = list(dict.fromkeys(point.algorithm for point in points))
    with figure(path, max(2, len(algorithms)), width=5.0) as panels:
        for axes, algorithm in zip(panels, algorithms, strict=False):
            for gbps in dict.fromkeys(point.gbps for point in points):
                line = [point for point in points if (point.algorithm, point.gbps) == (algorithm, gbps)]
                workers, shares = [point.workers for point in line], [100 * point.step.efficiency for point in line]
                axes.plot(workers, shares, marker="o", label=f"{gbps:g} Gbit/s")
            axes.set_xscale("log", base=2)
            axes.set_ylim(0, 102)
            axes.set_title(f"{name}: {algorithm}")
            axes.set_xlabel("workers")
            axes.set_ylabel("efficiency, %")
            axes.legend()


_training = click.argument("training", metavar="TRAINING", type=click.Path(path_type=Path))


@click.group("predict")
def predict_group() -> None:
    """Predict how long a training step takes, what bounds it, and what to change.

    TRAINING is a YAML file with layers, batch and buckets, made by hand or by `netsum predict torch`.
    """


@predict_group.command()
@_training
@topology_options
@click.option("--algorithm", type=click.Choice(ALGORITHMS), default="in_network", show_default=True)
@machine_option
@plot_option
@json_option
def step(topology: Topology, training: Path, algorithm: str, machine: Machine, plot: Path | None, as_json: bool) -> None:
    """One step on TOPOLOGY, with a worker on each host."""
    job, workers = read_training(training), len(topology.hosts)
    with console().status(f"{job.name}: simulating its calls"):
        found = predict(job, machine, simulated(topology, algorithm, machine), workers=workers)
        better = list(changes(job, topology, machine, algorithm, found))
    if plot is not None:
        plot_step(plot, job.name, found)
    if as_json:
        gains = [{"what": each.what, "step_ms": each.step.step * 1e3, "gain": each.gain} for each in better]
        print_json({"training": job.name, "workers": workers, "algorithm": algorithm, **found.to_json(), "changes": gains})
        return
    click.echo(f"{job.name} on {topology.name}: {workers} workers, {algorithm}")
    print_table(("PART", "ms"), _parts(found))
    click.echo(f"{found.efficiency:.0%} efficient, bound by {found.bound_by}")
    if better:
        rows = [(each.what, f"{each.step.step * 1e3:.2f}", f"{each.gain:+.0%}") for each in better]
        print_table(("WHAT WOULD CHANGE IT", "A STEP\nms", "SAMPLES\na second"), rows)


def _parts(found: StepTimeline) -> list[tuple[str, str]]:
    parts = {
        "forward": found.forward,
        "backward": found.backward,
        "communication": found.communication,
        "  of it not hidden": found.exposed,
        "input": found.input,
        "step": found.step,
    }
    return [(name, f"{seconds * 1e3:.2f}") for name, seconds in parts.items()]


def _numbers(kind: type, least: float) -> Callable[..., Any]:
    def read(_context: click.Context, _option: click.Parameter, text: str) -> tuple[Any, ...]:
        try:
            values = tuple(kind(word) for word in text.split(","))
        except ValueError:
            raise click.BadParameter(f"{text!r} is not a list of numbers like 8,64") from None
        if min(values) < least or max(values) == float("inf"):
            raise click.BadParameter(f"{text!r}: each must be a number from {least:g} on")
        return values

    return read


@predict_group.command()
@_training
@click.option("--workers", default="8,64,512,4096", show_default=True, callback=_numbers(int, 2))
@click.option("--rates", default="1,10,100,400", show_default=True, callback=_numbers(float, 0.001), help="Gbit/s.")
@machine_option
@plot_option
@json_option
def scale(
    training: Path,
    workers: tuple[int, ...],
    rates: tuple[float, ...],
    machine: Machine,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Predict how far a training scales: steps on fat-trees, in the network against a ring."""
    job = read_training(training)
    points = []
    with console().status(f"{job.name}: starting") as status:
        for point in scaling(job, machine, workers, rates):
            points.append(point)
            status.update(f"{job.name}: {point.workers} workers, {point.gbps:g} Gbit/s, {point.algorithm}")
    if plot is not None:
        plot_scaling(plot, job.name, points)
    if as_json:
        print_json([point.to_json() for point in points])
        return
    columns = dict.fromkeys(point.algorithm for point in points)
    by = {(point.workers, point.gbps, point.algorithm): point.step for point in points}
    rows = [
        (number, f"{rate:g}", *(text for name in columns for text in _cells(by[number, rate, name])))
        for number in workers
        for rate in rates
    ]
    titles = [f"{name}\n{what}" for name in columns for what in ("ms a step", "efficient")]
    print_table(("WORKERS", "Gbit/s", *titles), rows)


def _cells(found: StepTimeline) -> tuple[str, str]:
    return f"{found.step * 1e3:.1f}", f"{found.efficiency:.0%}"


@predict_group.command()
def calibrate() -> None:
    """Measure this machine for a second; prints the JSON that --machine takes."""
    print_json(measure().to_json())


@predict_group.command()
@click.argument("model", metavar="MODULE:FUNCTION")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
def torch(model: str, batch: int) -> None:
    """Write the TRAINING of a torch model: FUNCTION(BATCH) returns the module and a tuple of its inputs."""
    from importlib import import_module  # noqa: PLC0415

    place, colon, name = model.partition(":")
    try:
        make = getattr(import_module(place), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{model}: {error}") from None
    if not colon or not callable(make):
        raise click.UsageError(f"{model}: write MODULE:FUNCTION")
    module, inputs = make(batch)
    click.echo(to_yaml(from_torch(module, inputs)), nl=False)
