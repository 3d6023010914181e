"""The ``netsum bench`` commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from netsum.agent.tables import table_console

from netsum_testbed.bench.algorithms import algorithms
from netsum_testbed.bench.collective_command import collectives
from netsum_testbed.bench.compare_command import compare
from netsum_testbed.bench.compression import compression
from netsum_testbed.bench.congestion_command import congestion
from netsum_testbed.bench.contention import bench_contention
from netsum_testbed.bench.fairness_command import fairness, priorities
from netsum_testbed.bench.frame import every_switch, print_figures, require_root, sizes_option
from netsum_testbed.bench.host import (
    MOST,
    TRANSPORTS,
    HostFigures,
    HostPlan,
    host_json,
    host_table,
    kernel_us,
    measure_hosts,
)
from netsum_testbed.bench.instructions import instructions
from netsum_testbed.bench.links import bench_links
from netsum_testbed.bench.memory_command import bench_memory
from netsum_testbed.bench.optimizer_command import optimizer
from netsum_testbed.bench.plan import bench_plan
from netsum_testbed.bench.start import start
from netsum_testbed.bench.switch_command import switch
from netsum_testbed.bench.switches import switches
from netsum_testbed.bench.torus import bench_torus
from netsum_testbed.bench.train_command import train
from netsum_testbed.checking import comma, count_option, list_option, names_of
from netsum_testbed.interrupts import end_on_signals


@click.group()
def bench() -> None:
    """Measure what netsum costs, on every switch on this machine. The last line of each command is one JSON object."""
    end_on_signals()


@bench.command()
@every_switch
@list_option("--workers", int, 1, MOST, comma(HostPlan.workers), "ranks")
@sizes_option("4M", "of the array; the first counts")
@count_option("--calls", default=HostPlan.calls, told="of a turn")
@count_option("--turns", default=HostPlan.turns, told="of everything")
def host(switch: str, sizes: Sequence[int], **given: Any) -> None:
    """Time what the library costs a host: processor time of a block and of a small call.

    Needs root: over raw frames, and over the kernel's UDP.
    """
    require_root("this bench makes network namespaces")
    plan, console = HostPlan(size=sizes[0], **given), table_console()
    found: list[HostFigures] = []
    with console.status("without a switch") as status:
        kernel = {transport: kernel_us(transport) for transport in TRANSPORTS}
        for name in names_of(switch):
            found += measure_hosts(name, plan, status.update)
    console.print(host_table(found, kernel))
    print_figures(host_json(found, kernel), {"size": plan.size})


for _command in (
    *(switches, switch, instructions, start),
    *(*collectives(), compare, algorithms, bench_torus, bench_plan, bench_contention, bench_links),
    *(fairness, priorities, congestion, bench_memory),
    *(compression, train, optimizer),
):
    bench.add_command(_command)
