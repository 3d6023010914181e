# SPDX-License-Identifier: MIT
"""Times the host algorithms and the switches, and makes a table by which ``auto`` can choose.

Each rank is a process, and the members talk over the loopback. The algorithms take turns call by call, so that a load on the
machine affects all alike; the switches follow. Figures are medians.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
from netsum.cli.tables import make_table, table_console
from netsum.core.endpoint import GROUP
from netsum.descriptor import HOST_ALGORITHMS
from netsum.peers.selection import PLACE_TABLE
from netsum.text import counted
from netsum.user_state import state_folder, write_json
from netsum_testbed.checking import count_option, list_option, names_of
from netsum_testbed.fabrics import open_fabric
from rich.table import Table

from netsum_bench.cli_options import every_switch, file_option, machine, print_figures, sizes_option
from netsum_bench.harness import Calls, Measured, results_table, time_collective, time_parties

BLOCK_BYTES: Final = 4096

Timed = dict[tuple[int, str], list[Measured]]
"""By number of workers and algorithm or switch: the figures of each size."""


def time_all(calls: Calls, workers: Sequence[int], switches: Sequence[str], say: Callable[[str], None]) -> Timed:
    """Time every algorithm and every switch with each number of ``workers``; ``say`` is told what is being timed."""
    timed: Timed = {}
    for number in workers:
        calls, label = replace(calls, workers=number), counted(number, "worker")
        say(f"{label}: without a switch")
        with open_fabric("embedded", hosts=number, rootless=True) as fabric:
            for by_name in time_parties(fabric, calls, HOST_ALGORITHMS):
                for name, (measured,) in by_name.items():
                    timed.setdefault((number, name), []).append(measured)
        for name in switches:
            say(f"{label}: {name}")
            with open_fabric(name, hosts=number) as fabric:
                timed[number, name] = [measured for (measured,) in time_collective(fabric, calls)]
    return timed


def fastest(timed: Timed) -> dict[int, dict[int, str]]:
    """The fastest host algorithm, by number of workers and bytes of a batch. A call that is larger than a batch consists of
    batches of the largest size; the times of several sizes with the same batch count alike (as ratios)."""
    chosen: dict[int, dict[int, str]] = {}
    for workers in sorted({workers for workers, _ in timed}):
        logarithms: dict[int, dict[str, float]] = {}
        for name in HOST_ALGORITHMS:
            for measured in timed[workers, name]:
                batch = logarithms.setdefault(batch_bytes(measured.size), {})
                batch[name] = batch.get(name, 0.0) + math.log(measured.seconds)
        chosen[workers] = {size: min(names, key=names.__getitem__) for size, names in sorted(logarithms.items())}
    return chosen


def batch_bytes(size: int) -> int:
    """Bytes of the batches in which an array of ``size`` bytes is sent."""
    return min(max(1, -(-size // BLOCK_BYTES)), GROUP) * BLOCK_BYTES


def marked(timed: Timed) -> list[tuple[str, Measured]]:
    """Every measurement by number of workers and size, labeled with the algorithm or switch; a star for the fastest host
    algorithm."""
    by_size: dict[tuple[int, int], dict[str, Measured]] = {}
    for (workers, name), sizes in timed.items():
        for measured in sizes:
            by_size.setdefault((workers, measured.size), {})[name] = measured
    rows = []
    for of_names in by_size.values():
        best = min(HOST_ALGORITHMS, key=lambda name: of_names[name].seconds)
        rows += [(f"{name} *" if name == best else name, measured) for name, measured in of_names.items()]
    return rows


def choice_table(chosen: Mapping[int, Mapping[int, str]]) -> Table:
    """Algorithms that ``auto`` chooses: a line for each number of workers, a column for each batch size."""
    sizes = sorted({size for row in chosen.values() for size in row})
    rows = ((str(workers), *(row.get(size, "") for size in sizes)) for workers, row in chosen.items())
    columns = (">workers", *(f"{size >> 10} KiB" for size in sizes))
    return make_table("fastest without a switch, by bytes of a batch", columns, rows)


def figures(timed: Timed) -> dict[str, object]:
    """The figures for programs: ``fastest``, ``microseconds`` by number of workers, size, and algorithm or switch, and all
    ``wrong`` elements."""
    microseconds: dict[str, dict[str, dict[str, float]]] = {}
    for (workers, name), sizes in timed.items():
        for measured in sizes:
            of_size = microseconds.setdefault(str(workers), {}).setdefault(str(measured.size), {})
            of_size[name] = round(measured.seconds * 1e6, 1)
    return {
        "fastest": {str(workers): {str(size): name for size, name in sizes.items()} for workers, sizes in fastest(timed).items()},
        "microseconds": microseconds,
        "wrong": sum(measured.wrong for sizes in timed.values() for measured in sizes),
    }


@click.command()
@every_switch
@sizes_option("4K,16K,64K,256K,1M")
@list_option("--workers", int, 1, 8, "2,4,8", "ranks")
@count_option("--iterations", default=45, text="of each call")
@file_option("--table", "path", text="where to write which is fastest [default: the user's state folder]")
def algorithms(switch: str, sizes: tuple[int, ...], workers: tuple[int, ...], iterations: int, path: Path | None) -> None:
    """Time an allreduce of float32 by the host algorithms and through the switches."""
    console = table_console()
    calls = Calls(sizes, "float32", workers[0], iterations, in_place=(False,))
    with console.status("starting") as status:
        timed = time_all(calls, workers, names_of(switch), status.update)
    console.print(results_table("allreduce, every rank a process on this machine", "algorithm", marked(timed)))
    console.print(choice_table(fastest(timed)))
    found = figures(timed) | machine()
    path = path or state_folder() / PLACE_TABLE
    write_json(path, found)  # as :mod:`netsum.peers.selection` reads it
    click.echo(f"wrote {path}")
    print_figures(found)
