# SPDX-License-Identifier: MIT
"""Finds links between switches that carry nothing any more, and moves jobs whose trees need one.

P4Runtime does not say whether a link is up, and a PacketOut cannot cross one, so it is found by what does not arrive: members
send a block again and again, their switch has its partial sum and sends it again each time, and nothing at all comes in at the
other end. New trees then avoid the link for a while. Whether it works again shows only when something crosses it, so after that
time the next epoch of a job may use it; if it is still dead, it is found again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from netsum.wire.schema import BlockState

from netsum_controller.config.topology import Neighbor
from netsum_controller.context import ControllerContext
from netsum_controller.entries import BlockRecord
from netsum_controller.errors import ControllerError, RejectedError
from netsum_controller.jobs.epochs import goes_around
from netsum_controller.jobs.reconcile import reconcile_switch
from netsum_controller.jobs.transaction import switches_of
from netsum_controller.monitoring.collector import sample
from netsum_controller.monitoring.periodic import PeriodicWatcher
from netsum_controller.observability import about
from netsum_controller.planning.items import job_trees
from netsum_controller.state.model import SERIAL, Job, JobState, Rejoin

log = logging.getLogger(__name__)

PERIOD = 2.0
"""Seconds between two looks."""

QUIET = 6.0
"""Seconds without a packet at an end of a link over which a block waits. A member asks for a block at least every 2 s."""

AVOIDED = 60.0
"""Seconds for which new trees avoid a link that was found dead."""


class _Edge(NamedTuple):
    """An edge of a job's trees: out of ``port`` of a ``child`` switch to its ``parent``, for these ``stripes``, of ``total``."""

    job: Job
    child: str
    port: int
    parent: Neighbor
    stripes: frozenset[int]
    total: int

    def carries(self, ahead: int) -> bool:
        """True if the block that is ``ahead`` after the epoch's first crosses it."""
        return (self.job.epoch.first_block_id + ahead) % SERIAL % self.total in self.stripes


@dataclass
class _Since:
    """Since when counters have stood where they are."""

    clock: Callable[[], float]
    known: dict[Hashable, tuple[int, float]] = field(default_factory=dict)

    def count(self, what: Hashable, count: int) -> None:
        if self.known.get(what, (None, 0.0))[0] != count:
            self.known[what] = (count, self.clock())

    def quiet(self, what: Hashable) -> float:
        """Seconds; 0 if it was never counted."""
        now = self.clock()
        return now - self.known.get(what, (0, now))[1]


class LinkWatcher(PeriodicWatcher):
    """Looks, in a thread of its own, at the counters of the switches that have jobs over trees, until closed. It is primary on a
    switch only when a link is suspected: to read the records of the blocks that should have crossed it. With ``period`` 0 it
    looks when it is told to."""

    looks_for = "dead links"

    def __init__(
        self, context: ControllerContext, period: float = PERIOD, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._since = _Since(clock)
        super().__init__(period)

    def look(self) -> list[str]:
        """One look; returns the links that it finds dead. Jobs whose trees need such a link get others."""
        edges = list(self._edges())
        counted = self._read({name for edge in edges for name in (edge.child, edge.parent.switch)})
        found = []
        for edge in edges:
            if {edge.child, edge.parent.switch} <= counted and edge.parent.link not in self._context.links_down:
                below, above = self._silent_ends(edge)
                if (below or above) and self._is_stuck(edge, above=above):
                    found.append(edge.parent.link)
                    self._avoid(edge)
        for job in {edge.job.name: edge.job for edge in edges if edge.parent.link in self._context.links_down}.values():
            self._move(job)
        return found

    def _edges(self) -> Iterator[_Edge]:
        for job in self._context.store.jobs():
            if job.state is JobState.READY and job.epoch.shape.edges and job.epoch.rejoin is not Rejoin.WAITING:
                try:
                    trees = job_trees(self._context.topology, job)
                except RejectedError:
                    continue  # the topology has changed; reconciling says so
                for child, node in trees.nodes.items():
                    others = self._context.topology.neighbors(child)
                    for up in node.uplinks:
                        stripes = frozenset(n for n, parent in enumerate(node.parents) if parent == up)
                        yield _Edge(job, child, up.port, others[up.port], stripes, trees.stripes)

    def _read(self, switches: set[str]) -> set[str]:
        """Read the counters of these switches; returns those that answer."""
        there = set()
        for name in sorted(switches - self._context.down):
            try:
                with closing(self._context.client(name).connect(primary=False)) as client:
                    self._context.require_program(client)
                    packets: dict[int, int] = {}
                    for entry, count in client.read_member_packets().items():
                        packets[entry.job_id] = packets.get(entry.job_id, 0) + count
                    ports = client.read_ports(self._context.topology.neighbors(name))
            except ControllerError as error:
                log.debug("looking for dead links: %s", error)  # the watcher says so
                continue
            there.add(name)
            for port, counts in ports.items():
                self._since.count((name, port), counts.packets)
            for job_id, count in packets.items():
                self._since.count((name, "job", job_id), count)
        return there

    def _silent_ends(self, edge: _Edge) -> tuple[bool, bool]:
        """True if nothing comes in at the child's end, and at the parent's, although the child's members send."""
        if self._since.quiet((edge.child, "job", edge.job.job_id)) >= QUIET:
            return False, False
        ends = ((edge.child, edge.port), (edge.parent.switch, edge.parent.port))
        below, above = (self._since.quiet(end) >= QUIET for end in ends)
        return below, above

    def _is_stuck(self, edge: _Edge, *, above: bool) -> bool:
        """True if blocks wait for this link: the child has their partial sums, and either nothing arrives ``above``, or the
        parent has their results, which do not arrive below."""
        with self._context.store.lock:
            job = self._context.store.find_job(edge.job.name)
            if job is None or job.epoch.number != edge.job.epoch.number:
                return False
            sent = {
                ahead
                for ahead, record in self._records(job, edge.child).items()
                if record.state is BlockState.SENT and record.age_ms >= QUIET * 1000 and edge.carries(ahead)
            }
            if above or not sent:
                return bool(sent)
            there = self._records(job, edge.parent.switch)
            return any(ahead in sent and record.state is BlockState.DONE for ahead, record in there.items())

    def _records(self, job: Job, switch: str) -> Mapping[int, BlockRecord]:
        part = job.part(switch)
        assert part is not None, "a job has a part on every switch of its trees"
        with self._context.client(switch) as client:
            return sample(job, part.slot_base, client.query_records).records

    def _avoid(self, edge: _Edge) -> None:
        message = "link %s carries nothing from %s to %s: new trees avoid it for %d s"
        log.warning(message, edge.parent.link, edge.child, edge.parent.switch, AVOIDED, extra=about(edge.job))
        self._context.dead_links[edge.parent.link] = time.monotonic() + AVOIDED

    def _move(self, job: Job) -> None:
        with self._context.store.lock:
            if goes_around(self._context, job):
                reconcile_switch(self._context, next(name for name in switches_of(job) if name not in self._context.down))
