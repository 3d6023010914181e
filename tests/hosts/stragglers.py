# SPDX-License-Identifier: MIT
"""Ranks of a job that degrades, over the model of the switch: blocks age out when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from netsum.communicator import Communicator
from netsum.wire.codec import Header, parse_header

from tests.hosts.calls import on_each, running
from tests.hosts.network import JOB_ID, MemoryNetwork, reply_bytes
from tests.threads import repeatedly, together


class AgingNetwork(MemoryNetwork):
    """A network whose switch closes blocks without a rank that is late, one at most: all that lack one, at every :meth:`age`."""

    def __init__(self, workers: int, **changes: Any) -> None:
        quorum = workers - 1
        super().__init__(workers, **{"block_exp_ms": 50.0, "quorum": quorum, **changes})
        job = self.switch.jobs[JOB_ID]
        window = self.descriptors[0].window
        self.switch.jobs[JOB_ID] = job._replace(block_exp=50_000, quorum=quorum, window=window, slots=4 * job.slots)
        self.lost: Callable[[int, Header], bool] = lambda _rank, _header: False
        """Whether a rank's contribution is lost on the way."""

    def _deliver(self, rank: int) -> Callable[[bytes], None]:
        deliver = super()._deliver(rank)

        def or_lose(data: bytes) -> None:
            if not self.lost(rank, parse_header(data)):
                deliver(data)

        return or_lose

    def age(self) -> int:
        """Scan as if every open block were old; return how many it closed."""
        with self.lock:
            scanned = self.switch.scan(JOB_ID, old=True)
            for reply in scanned.replies:
                self.transports[reply.port - 1].put(reply_bytes(reply))
        return scanned.closed

    def aging(self) -> AbstractContextManager[None]:
        """Blocks age out all the time."""
        return repeatedly(self.age, 0.002)


def stragglers(workers: int) -> AbstractContextManager[tuple[AgingNetwork, list[Communicator]]]:
    """Such a network and its ranks, which are closed at the end."""
    return running(AgingNetwork(workers))


def one_late(
    network: AgingNetwork, communicators: Sequence[Communicator], late: int, call: Callable[[Communicator], Any]
) -> list[Any]:
    """``call(comm)`` on all ranks but one, whose blocks age out, and then on that one; outcomes by rank."""
    with network.aging():
        others = on_each([comm for comm in communicators if comm.rank != late], call)
    (outcome,) = together([lambda: call(communicators[late])])
    return [*others[:late], outcome, *others[late:]]
