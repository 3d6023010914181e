"""The commands that time a collective: ``netsum bench allreduce`` and so on, with nccl-tests' options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final

import click
from netsum.text import counted
from netsum_controller.config.topologies import star
from netsum_testbed.checking import Decorator, count_option, list_option, names_of
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import fabric_of
from rich.console import Console
from rich.status import Status

from netsum_bench import nccl_json
from netsum_bench.cli_options import every_switch, file_option, print_figures, read_size, sizes_option
from netsum_bench.collectives import (
    OPERATIONS,
    REDUCTIONS,
    Calls,
    Line,
    collective_table,
    straggler_note,
    time_collective,
)

SIZES: Final = "4K,64K,1M,4M"
ITERATIONS: Final = 5
MOST_WORKERS: Final = 8
_STEP: Final = 1 << 20


def scan(begin: int, end: int | None, step: int | None, factor: int | None) -> tuple[int, ...]:
    """The sizes of ``-b``, ``-e``, and ``-i`` or ``-f``, as nccl-tests makes them."""
    end = begin if end is None else end
    if end < begin:
        raise click.UsageError(f"-e {end} is less than -b {begin}")
    if step is not None and factor is not None:
        raise click.UsageError("give -i, a step, or -f, a factor, not both")
    if factor is not None:
        if begin < 1:
            raise click.UsageError("-f multiplies: -b must be 1 or more")
        return tuple(takewhile(lambda size: size <= end, (begin * factor**number for number in count())))
    return tuple(range(begin, end + 1, _STEP if step is None else step))


def _options(name: str) -> list[Decorator]:
    operation = OPERATIONS[name]
    size: dict[str, Any] = {"callback": read_size, "metavar": "SIZE"}
    options = [
        every_switch,
        sizes_option(SIZES, "of arrays; or -b, -e and -f"),
        click.option("--minbytes", "-b", **size, help="the smallest size"),
        click.option("--maxbytes", "-e", **size, help="the largest size [default: -b]"),
        click.option("--stepbytes", "-i", **size, help="from one size to the next [default: 1M]"),
        click.option("--stepfactor", "-f", type=click.IntRange(2), help="from one size to the next, instead of -i"),
        click.option("--dtype", "-d", type=click.Choice(list(nccl_json.TYPES)), default="float32", show_default=True),
        list_option("--workers", int, 1, MOST_WORKERS, "4", "ranks, each on its own host; several are compared"),
        count_option("--iterations", "--iters", "-n", default=ITERATIONS, text="timed calls of each size"),
        count_option("--warmup", "-w", default=1, text="calls of each size before them", least=0),
        click.option("--check", "-c", type=click.IntRange(0), help="how many calls are checked [default: all]"),
        list_option("--loss", float, 0, 0.5, None, "share of packets that each host loses; several are compared"),
        click.option("--rate-mbps", type=click.IntRange(min=1), help="what a host may send"),
        file_option("--json", "-J", "file", text="write nccl-tests' JSON (of the first run)"),
    ]
    if operation.reduces:
        redop = click.Choice(list(REDUCTIONS))
        options.append(click.option("--op", "-o", "redop", type=redop, default="sum", show_default=True))
    if operation.rooted:
        options.append(count_option("--root", "-r", default=0, text="the rank that gives or gets", least=0))
    if name == "allreduce":
        scale = click.Choice(["agreed", "predicted", "exact"])
        options.append(click.option("--scale", type=scale, default="agreed", show_default=True, help="of the sums"))
    return options


def collectives() -> list[click.Command]:
    """A command for each collective."""
    return [_command(name) for name in OPERATIONS]


def _command(name: str) -> click.Command:
    def run(**given: Any) -> None:
        bench_collective(BenchRequest.read(name, **given))

    for option in reversed(_options(name)):
        run = option(run)
    return click.command(name, help=f"Time whole calls of {name}, end to end, as nccl-tests does.")(run)


@dataclass(frozen=True)
class BenchRequest:
    """The request: the first run, and the runs to compare it with."""

    names: Sequence[str]
    calls: Calls
    workers: Sequence[int]
    losses: Sequence[float]
    rate_mbps: int | None
    file: Path | None

    @classmethod
    def read(
        cls,
        operation: str,
        switch: str,
        sizes: tuple[int, ...],
        workers: tuple[int, ...],
        loss: tuple[float, ...],
        **given: Any,
    ) -> BenchRequest:
        """Raises a UsageError for options that do not go together."""
        begin, end, step, factor = (given.pop(f"{name}") for name in ("minbytes", "maxbytes", "stepbytes", "stepfactor"))
        if begin is not None:
            sizes = scan(begin, end, step, factor)
        elif (end, step, factor) != (None, None, None):
            raise click.UsageError("-e, -i and -f need -b, the smallest size")
        own = {name: given.pop(name) for name in ("rate_mbps", "file")}
        calls = Calls(sizes, workers=workers[0], operation=operation, loss=loss[0] if loss else None, **given)
        if calls.root >= min(workers):
            raise click.UsageError(f"--root {calls.root} is not a rank of {counted(min(workers), 'worker')}")
        if calls.redop == "avg" and calls.dtype.startswith("int"):
            raise click.UsageError(f"--op avg is for floats, not for {calls.dtype}")
        return cls(names_of(switch), calls, workers, loss, **own)

    def runs(self) -> list[Calls]:
        """The first run, then those with other numbers of workers, then those with other losses."""
        calls = self.calls
        return [
            calls,
            *(replace(calls, workers=workers) for workers in self.workers[1:]),
            *(replace(calls, loss=loss) for loss in self.losses[1:]),
        ]


@dataclass(frozen=True)
class BenchRun:
    """The lines of one switch, number of workers and loss."""

    switch: str
    workers: int
    loss: float | None
    lines: Sequence[Line]

    def to_dict(self) -> dict[str, Any]:
        lines = [line.to_dict() for line in self.lines]
        return {"switch": self.switch, "workers": self.workers, "loss": self.loss or 0.0, "lines": lines}


def bench_collective(request: BenchRequest) -> None:
    """Measure, show the results, and print the line of JSON."""
    if request.file is not None and not request.file.parent.is_dir():
        raise TestbedError(f"there is no folder {request.file.parent} to write {request.file.name} into")
    started = _now()
    runs: list[BenchRun] = []
    for name in request.names:
        for calls in request.runs():
            run = BenchRun(name, calls.workers, calls.loss, _measure(name, calls, request.rate_mbps))
            _show(run, calls)
            runs.append(run)
    first = runs[:: len(request.runs())]
    if request.file is not None:
        hosts = list(star(request.calls.workers).hosts)
        lines = {run.switch: run.lines for run in first}
        nccl_json.write(request.file, nccl_json.document(request.calls, lines, hosts, started, _now()))
    about: dict[str, Any] = {
        "collective": request.calls.operation,
        "workers": request.calls.workers,
        "dtype": request.calls.dtype,
    }
    if request.rate_mbps is not None:
        about["rate_mbps"] = request.rate_mbps
    if len(runs) > len(first):
        about["runs"] = [run.to_dict() for run in runs]
    print_figures({run.switch: run.to_dict()["lines"] for run in first}, about)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _show(run: BenchRun, calls: Calls) -> None:
    title = f"{calls.operation} of {calls.dtype}, {counted(run.workers, 'worker')}, {run.switch} switch"
    click.echo(title + (f", {run.loss:.2%} of packets lost each way" if run.loss else ""))
    click.echo(collective_table(run.lines))
    click.echo(straggler_note(run.lines))
    for line in run.lines:
        share = line.link_share(0)
        if share is not None:
            click.echo(f"{line.size} bytes: {share:.1%} of what the link carries ({line.link[0]} bytes on it)")


def _measure(name: str, calls: Calls, rate_mbps: int | None) -> list[Line]:
    topology = star(calls.workers, rate_mbps=rate_mbps)
    with Console().status(f"{name}: starting") as status, fabric_of(topology, name) as fabric:
        return _time_on(fabric, calls, status)


def _time_on(fabric: Fabric, calls: Calls, status: Status) -> list[Line]:
    lines: list[Line] = []
    status.update(f"{fabric.switch}: {calls.sizes[0]} bytes")
    for line, following in zip(time_collective(fabric, calls), [*calls.sizes[1:], 0], strict=True):
        lines.append(line)
        status.update(f"{fabric.switch}: {following} bytes")
    return lines
