# SPDX-License-Identifier: MIT
"""The ``netsum bench`` commands."""

from __future__ import annotations

import click
from netsum_testbed.interrupts import end_on_signals

from netsum_bench.algorithms import algorithms
from netsum_bench.collective_command import COLLECTIVES
from netsum_bench.compare import compare
from netsum_bench.host import host
from netsum_bench.links import bench_links
from netsum_bench.switch import switch
from netsum_bench.train import train


@click.group()
def bench() -> None:
    """Measure what netsum costs, on every switch on this machine. The last line of each command is one JSON object."""
    end_on_signals()


for _command in (*COLLECTIVES, compare, algorithms, switch, host, train, bench_links):
    bench.add_command(_command)
