"""A neighbour that floods: ``python -m netsum_testbed.bench.flood`` joins what the environment names and sends the same
window of contributions as fast as it can. The job's other member is silent, so that none of its blocks ever ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import netsum
from netsum.descriptor import Descriptor
from netsum.transports.base import Transport
from netsum.transports.choose import open_transport
from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import Lane, Op
from netsum_controller.job_spec import JobSpec

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric

JOB: Final = "flood"
_COMES: Final = 30.0
"""Seconds until its first packets must be at the switch."""


@contextmanager
def flooding(fabric: Fabric) -> Iterator[Callable[[], int]]:
    """Flood the switch from the fabric's last host, as a process of its own. The function counts the flood's packets that
    the switch has looked at."""
    host = list(fabric.topology.hosts)[-1]
    job = fabric.create_job(JobSpec(name=JOB, members=(host, host)))

    def packets() -> int:
        return sum(fabric.controller.stats(JOB).outcomes.values())

    command = [sys.executable, "-m", "netsum_testbed.bench.flood"]
    flooder = fabric.spawn(host, command, name=JOB, environment=fabric.environment(job, 0))
    try:
        deadline = time.monotonic() + _COMES
        while not packets():
            if time.monotonic() > deadline:
                raise TestbedError(f"the flood does not begin: {flooder.last_words(1)}")
            time.sleep(0.05)
        yield packets
    finally:
        flooder.stop()


def main() -> None:
    """Send until somebody ends it."""
    opened: list[Transport] = []

    def keep(descriptor: Descriptor) -> Transport:
        opened.append(open_transport(descriptor))
        return opened[0]

    descriptor = netsum.join(transport=keep).descriptor
    payload = bytes(descriptor.block_bytes)
    lanes = len(payload) >> Lane.L32
    packets = [
        (
            pack_header(
                Header(
                    descriptor.job_id,
                    (descriptor.first_block_id + offset) % (1 << 32),
                    src_id=descriptor.src_id,
                    op=Op.SUM,
                    grad_cnt=lanes,
                    data_cnt=1,
                )
            ),
            payload,
        )
        for offset in range(descriptor.window)
    ]
    while True:
        opened[0].send(packets)


if __name__ == "__main__":
    main()
