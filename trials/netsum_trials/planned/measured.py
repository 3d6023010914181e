"""Times calls in Mininet, whose links have rates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from netsum.descriptor import SWITCH
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import Topology
from netsum_planner.simulator.collectives import IN_NETWORK
from netsum_testbed.bench.collective import Calls, time_ranks
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric

UNTIMED_SECONDS = 300.0


@contextmanager
def network(topology: Topology, switch: str) -> Iterator[Fabric]:
    """The topology in Mininet. :class:`TestbedError` if this machine cannot limit links' rates."""
    from netsum_testbed.mininet_fabric import MininetFabric, rates_work  # noqa: PLC0415 - a Debian package

    if not rates_work():
        raise TestbedError("this trial needs links with rates: tc and a kernel with HTB")
    with MininetFabric(topology, switch) as fabric:
        yield fabric


def time_calls(fabric: Fabric, algorithm: str, sizes: tuple[int, ...], iterations: int) -> list[float]:
    """Seconds of an allreduce of each of ``sizes`` bytes between all hosts: the median of the slowest rank's."""
    hosts = tuple(fabric.topology.hosts)
    name = algorithm.replace("_", "-")
    job = fabric.create_job(
        JobSpec(name=name, members=hosts, algorithm=SWITCH if algorithm == IN_NETWORK else algorithm)
    )
    calls = Calls(sizes, "float32", len(hosts), iterations, places=1)
    ranks = [
        fabric.spawn(
            host,
            calls.command(),
            name=f"{name}{rank}",
            environment={**fabric.environment(job, rank), "NETSUM_TIMEOUT": str(UNTIMED_SECONDS)},
            piped=True,
        )
        for rank, host in enumerate(hosts)
    ]
    try:
        lines = list(time_ranks(ranks, calls))
    finally:
        for rank in ranks:
            rank.stop()
        fabric.delete_job(name)
    if wrong := sum(line.wrong[0] for line in lines):
        raise TestbedError(f"{algorithm}: {wrong} elements of the sums are wrong")
    return [line.seconds[0] for line in lines]
