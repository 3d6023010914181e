"""Times the host algorithms and the switches, and makes a table by which ``auto`` can choose.

Each rank is a process, and the members talk over the loopback, without a controller. The algorithms take turns call by
call, and all of them and the switches several times, so that a load on the machine affects all alike. Figures are medians.
"""

from __future__ import annotations

import math
import secrets
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
from netsum.core.endpoint import GROUP
from netsum.descriptor import HOST_ALGORITHMS, Descriptor, HostAddress, SwitchAddress
from netsum.peers.selection import PLACE_TABLE
from netsum.text import counted
from netsum.user_state import state_folder, write_json
from netsum_testbed.checking import comma, count_option, list_option, names_of
from netsum_testbed.fabrics import open_fabric
from netsum_testbed.free_ports import hold_address
from netsum_testbed.processes import Child
from rich.console import Console

from netsum_bench.cli_options import every_switch, file_option, machine, print_figures, sizes_option
from netsum_bench.collectives import Calls, Line, time_collective, time_ranks

WORKERS: Final = (2, 4, 8)
SIZES: Final = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
BLOCK_BYTES: Final = 4096


@dataclass(frozen=True)
class AlgorithmTiming:
    """Options of a timing: allreduce of float32, ``iterations`` calls a turn."""

    workers: Sequence[int] = WORKERS
    sizes: tuple[int, ...] = SIZES
    iterations: int = 15
    turns: int = 3

    def calls(self, workers: int) -> Calls:
        return Calls(self.sizes, "float32", workers, self.iterations, places=1)


Timed = dict[tuple[int, str], list[Line]]
"""By number of workers and algorithm or switch: a line for each size."""


def time_all(timing: AlgorithmTiming, switches: Sequence[str], say: Callable[[str], None]) -> Timed:
    """Time every algorithm and every switch; ``say`` is told what is being timed."""
    timed: Timed = {}
    for workers in timing.workers:
        turns: dict[str, list[list[Line]]] = {}
        for turn in range(timing.turns):
            label = f"{counted(workers, 'worker')}, turn {turn + 1} of {timing.turns}"
            say(f"{label}: without a switch")
            for name, lines in time_algorithms(timing.calls(workers)).items():
                turns.setdefault(name, []).append(lines)
            for name in switches:
                say(f"{label}: {name}")
                turns.setdefault(name, []).append(list(time_switch(name, timing.calls(workers))))
        for name, lines_of_turns in turns.items():
            timed[workers, name] = [_median(lines) for lines in zip(*lines_of_turns, strict=True)]
    return timed


def _median(lines: Sequence[Line]) -> Line:
    seconds = statistics.median(line.seconds[0] for line in lines)
    sent = round(statistics.median(line.sent[0] for line in lines))
    return replace(lines[0], seconds=(seconds,), wrong=(sum(line.wrong[0] for line in lines),), sent=(sent,))


def time_switch(name: str, calls: Calls) -> Iterator[Line]:
    with open_fabric(name, hosts=calls.workers) as fabric:
        yield from time_collective(fabric, calls)


def time_algorithms(calls: Calls) -> dict[str, list[Line]]:
    """Time every algorithm, each rank a process on the loopback; a line for each size."""
    timed: dict[str, list[Line]] = {name: [] for name in HOST_ALGORITHMS}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-")))
        for name in HOST_ALGORITHMS:
            for descriptor in descriptors(name, free_peers(calls.workers)):
                (directory / f"{name}.{descriptor.rank}.json").write_text(descriptor.to_json())
        ranks = []
        for rank in range(calls.workers):
            command = [*calls.command(), *(str(directory / f"{name}.{rank}.json") for name in HOST_ALGORITHMS)]
            ranks.append(Child(command, output=directory / f"rank{rank}.log", piped=True))
            stack.callback(ranks[-1].stop)
        for lines in time_ranks(ranks, calls):
            for name, line in zip(HOST_ALGORITHMS, lines, strict=True):
                timed[name].append(line)
    return timed


def free_peers(workers: int) -> tuple[str, ...]:
    """Free ports of the loopback, as ``host:port``."""
    with ExitStack() as stack:
        return tuple(hold_address(stack) for _ in range(workers))


def descriptors(algorithm: str, peers: tuple[str, ...], mtu: int = 9000) -> list[Descriptor]:
    """The descriptors of a job without switch and controller, by rank; ``peers``: where its members are, as ``host:port``."""
    no_mac, host = "00:00:00:00:00:00", peers[0].partition(":")[0]
    of_rank_0 = Descriptor(
        job="bench",
        job_id=0,
        rank=0,
        workers=len(peers),
        src_id=0,
        epoch=1,
        window=4 * GROUP,
        first_block_id=0,
        block_bytes=BLOCK_BYTES,
        mtu=mtu,
        switch=SwitchAddress("0.0.0.0", no_mac),
        host=HostAddress(host, no_mac, 1),
        algorithm=algorithm,
        peers=peers,
        peer_key=secrets.token_hex(16),
    )
    return [replace(of_rank_0, rank=rank, src_id=rank) for rank in range(len(peers))]


def fastest(timed: Timed) -> dict[int, dict[int, str]]:
    """The fastest host algorithm, by number of workers and bytes of a batch. A call that is larger than a batch consists of
    batches of the largest size; the times of several sizes with the same batch count alike (as ratios)."""
    chosen: dict[int, dict[int, str]] = {}
    for workers in sorted({workers for workers, _ in timed}):
        logarithms: dict[int, dict[str, float]] = {}
        for name in HOST_ALGORITHMS:
            for line in timed[workers, name]:
                batch = logarithms.setdefault(batch_bytes(line.size), {})
                batch[name] = batch.get(name, 0.0) + math.log(line.seconds[0])
        chosen[workers] = {size: min(names, key=names.__getitem__) for size, names in sorted(logarithms.items())}
    return chosen


def batch_bytes(size: int) -> int:
    """Bytes of the batches in which an array of ``size`` bytes is sent."""
    return min(max(1, -(-size // BLOCK_BYTES)), GROUP) * BLOCK_BYTES


def table(timed: Timed) -> str:
    """The times as nccl-tests prints them, a block for each size, a star for the fastest host algorithm.
    ``sent`` is what the rank that sends most sends, in sizes of the array."""
    widths = (7, 9, 20, 9, 8, 8, 7, 7)
    rows: list[Sequence[str]] = [
        ("workers", "size", "algorithm", "time", "algbw", "busbw", "sent", "#wrong"),
        ("", "(B)", "", "(us)", "(GB/s)", "(GB/s)", "(size)", ""),
    ]
    by_size: dict[tuple[int, int], dict[str, Line]] = {}
    for (workers, name), lines in timed.items():
        for line in lines:
            by_size.setdefault((workers, line.size), {})[name] = line
    for (workers, size), of_names in by_size.items():
        best = min(HOST_ALGORITHMS, key=lambda name: of_names[name].seconds[0])
        for name, line in of_names.items():
            figures = f"{line.seconds[0] * 1e6:.0f}", f"{line.algbw(0):.4f}", f"{line.busbw(0):.4f}"
            star = f"{name} *" if name == best else f"{name}  "
            rows.append((str(workers), str(size), star, *figures, f"{line.sent[0] / size:.2f}", str(line.wrong[0])))
    return "\n".join(" ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)


def choice_table(timed: Timed) -> str:
    """Algorithms that ``auto`` chooses: a line for each number of workers, a column for each batch size in KiB."""
    found = fastest(timed)
    sizes = sorted({size for row in found.values() for size in row})
    rows = [["workers", *(f"{size >> 10} KiB" for size in sizes)]]
    rows += [[str(workers), *(row.get(size, "") for size in sizes)] for workers, row in found.items()]
    return "\n".join(" ".join([f"{row[0]:>7}", *(f"{cell:>18}" for cell in row[1:])]) for row in rows)


def figures(timed: Timed) -> dict[str, object]:
    """The figures for programs: ``fastest``, ``microseconds`` by number of workers, size, and algorithm or switch, and all
    ``wrong`` elements."""
    microseconds: dict[str, dict[str, dict[str, float]]] = {}
    for (workers, name), lines in timed.items():
        for line in lines:
            of_size = microseconds.setdefault(str(workers), {}).setdefault(str(line.size), {})
            of_size[name] = round(line.seconds[0] * 1e6, 1)
    return {
        "fastest": {str(workers): {str(size): name for size, name in sizes.items()} for workers, sizes in fastest(timed).items()},
        "microseconds": microseconds,
        "wrong": sum(line.wrong[0] for lines in timed.values() for line in lines),
    }


@click.command()
@every_switch
@sizes_option("4K,16K,64K,256K,1M")
@list_option("--workers", int, 1, 8, comma(WORKERS), "ranks")
@count_option("--iterations", default=AlgorithmTiming.iterations, text="of each call")
@count_option("--repetitions", default=AlgorithmTiming.turns, text="of everything")
@file_option("--table", "path", text="where to write which is fastest [default: the user's state folder]")
def algorithms(switch: str, path: Path | None, repetitions: int, **given: Any) -> None:
    """Time an allreduce of float32 by the host algorithms and through the switches."""
    names, timing = names_of(switch), AlgorithmTiming(turns=repetitions, **given)
    with Console().status("starting") as status:
        timed = time_all(timing, names, status.update)
    click.echo(table(timed))
    click.echo(f"\nfastest without a switch, by bytes of a batch:\n{choice_table(timed)}")
    found = figures(timed) | machine()
    path = path or state_folder() / PLACE_TABLE
    write_json(path, found)  # as :mod:`netsum.peers.selection` reads it
    click.echo(f"wrote {path}")
    print_figures(found)
