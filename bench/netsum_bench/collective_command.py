# SPDX-License-Identifier: MIT
"""The commands that time a collective: ``netsum bench allreduce`` and so on, with nccl-tests' options."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final

import click
from netsum.cli.tables import table_console
from netsum.text import counted
from netsum.user_state import write_json
from netsum_controller.config.topologies import star
from netsum_testbed.checking import Decorator, count_option, list_option, names_of
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabrics import fabric_of
from rich.console import Console

from netsum_bench import nccl_json
from netsum_bench.cli_options import every_switch, file_option, print_figures, read_size, sizes_option
from netsum_bench.collectives import OPERATIONS, REDUCTIONS
from netsum_bench.harness import Calls, Places, results_table, time_collective

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
        sizes_option("4K,64K,1M,4M", "of arrays; or -b, -e and -f"),
        click.option("--minbytes", "-b", **size, help="the smallest size"),
        click.option("--maxbytes", "-e", **size, help="the largest size [default: -b]"),
        click.option("--stepbytes", "-i", **size, help="from one size to the next [default: 1M]"),
        click.option("--stepfactor", "-f", type=click.IntRange(2), help="from one size to the next, instead of -i"),
        click.option("--dtype", "-d", type=click.Choice(list(nccl_json.TYPES)), default="float32", show_default=True),
        list_option("--workers", int, 1, 8, "4", "ranks, each on its own host; several are compared"),
        count_option("--iterations", "--iters", "-n", default=5, text="timed calls of each size"),
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


def _command(name: str) -> click.Command:
    def run(**given: Any) -> None:
        bench_collective(name, **given)

    for option in reversed(_options(name)):
        run = option(run)
    return click.command(name, help=f"Time whole calls of {name}, end to end, as nccl-tests does.")(run)


COLLECTIVES: Final = [_command(name) for name in OPERATIONS]
"""A command for each."""


def runs_of(
    operation: str, sizes: tuple[int, ...], workers: tuple[int, ...], loss: tuple[float, ...], **given: Any
) -> list[Calls]:
    """The first run, then those with other numbers of workers, then those with other losses. Raises a UsageError for options that
    do not go together."""
    begin, end, step, factor = (given.pop(name) for name in ("minbytes", "maxbytes", "stepbytes", "stepfactor"))
    if begin is not None:
        sizes = scan(begin, end, step, factor)
    elif (end, step, factor) != (None, None, None):
        raise click.UsageError("-e, -i and -f need -b, the smallest size")
    calls = Calls(sizes, workers=workers[0], operation=operation, loss=loss[0] if loss else None, **given)
    if calls.root >= min(workers):
        raise click.UsageError(f"--root {calls.root} is not a rank of {counted(min(workers), 'worker')}")
    if calls.redop == "avg" and calls.dtype.startswith("int"):
        raise click.UsageError(f"--op avg is for floats, not for {calls.dtype}")
    return [
        calls,
        *(replace(calls, workers=number) for number in workers[1:]),
        *(replace(calls, loss=share) for share in loss[1:]),
    ]


def bench_collective(operation: str, switch: str, rate_mbps: int | None, file: Path | None, **given: Any) -> None:
    """Measure, show the results, and print the line of JSON."""
    if file is not None and not file.parent.is_dir():
        raise TestbedError(f"there is no folder {file.parent} to write {file.name} into")
    runs, started = runs_of(operation, **given), _now()
    made: list[dict[str, Any]] = []
    first: dict[str, list[Places]] = {}
    for name in names_of(switch):
        for calls in runs:
            sizes = _measure(name, calls, rate_mbps)
            first.setdefault(name, sizes)
            title = f"{operation} of {calls.dtype}, {name} switch"
            title += f", {calls.loss:.2%} of packets lost each way" if calls.loss else ""
            where = ("out of place", "in place")
            rows = [(label, each) for places in sizes for label, each in zip(where, places, strict=True)]
            table_console().print(results_table(title, "", rows))
            click.echo(straggler_note(sizes))
            lines = [figures(places) for places in sizes]
            made.append({"switch": name, "workers": calls.workers, "loss": calls.loss or 0.0, "lines": lines})
    calls = runs[0]
    if file is not None:
        write_json(file, nccl_json.document(calls, first, list(star(calls.workers).hosts), started, _now()))
    about: dict[str, Any] = {"collective": operation, "workers": calls.workers, "dtype": calls.dtype}
    if rate_mbps is not None:
        about["rate_mbps"] = rate_mbps
    if len(runs) > 1:
        about["runs"] = made
    print_figures({name: [figures(places) for places in sizes] for name, sizes in first.items()}, about)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


def figures(places: Places) -> dict[str, Any]:
    """The figures of one size for programs: each is a list, by place."""
    found: dict[str, Any] = {
        "size": places[0].size,
        "time_us": [round(each.seconds * 1e6, 1) for each in places],
        "algbw_GBps": [round(each.algbw, 6) for each in places],
        "busbw_GBps": [round(each.busbw, 6) for each in places],
        "wrong": [each.wrong for each in places],
        "sent_bytes": [each.most("sent") for each in places],
        "p50_us": [round(each.percentile(50) * 1e6, 1) for each in places],
        "p99_us": [round(each.percentile(99) * 1e6, 1) for each in places],
        "late_us": [[round(seconds * 1e6, 1) for seconds in each.late] for each in places],
        "link_bytes": [each.link_bytes for each in places],
    }
    if places[0].rate_mbps is not None:
        found["link_share"] = [round(each.link_share or 0.0, 4) for each in places]
    return found


def straggler_note(sizes: Sequence[Places]) -> str:
    """Which rank begins last most often, and how late."""
    found = [each.straggler for places in sizes for each in places]
    ranks = [rank for rank, _ in found]
    rank = statistics.mode(ranks)
    late = max(seconds for each, seconds in found if each == rank)
    return f"rank {rank} began last at {ranks.count(rank)} of {len(ranks)} sizes and places, by up to {late * 1e6:.0f} us"


def _measure(name: str, calls: Calls, rate_mbps: int | None) -> list[Places]:
    topology = star(calls.workers, rate_mbps=rate_mbps)
    with Console().status(f"{name}: starting") as status, fabric_of(topology, name) as fabric:
        found = []
        for places in time_collective(fabric, calls):
            found.append(places)
            status.update(f"{name}: {places[0].size} bytes are timed")
        return found
