# SPDX-License-Identifier: MIT
"""Finds paths between ranks and their switch that UDP is blocked on, and moves jobs that wait for them to their members."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, NamedTuple

from netsum.wire.schema import BlockState, Outcome

from netsum_controller.config.topology import Topology
from netsum_controller.context import ControllerContext
from netsum_controller.errors import ControllerError
from netsum_controller.jobs.migration import Migration, leave_blocked_path, may_leave_path
from netsum_controller.jobs.transaction import open_clients, switches_of
from netsum_controller.monitoring.blocked_paths import Blocked, BlockedPaths, Direction, PathState, may_be_mtu
from netsum_controller.monitoring.collector import every_record
from netsum_controller.monitoring.paths import OFTEN, Path
from netsum_controller.monitoring.periodic import PeriodicWatcher
from netsum_controller.monitoring.switch_monitor import DEAD_AFTER
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.planning.items import reached_by, switch_for
from netsum_controller.state.model import SERIAL, Job, Seat, Waiting

log = logging.getLogger(__name__)

PERIOD = 2.0
"""Seconds between two looks."""

_DAMAGED: Final = (Outcome.CHECKSUM,)
_REJECTED: Final = (*_DAMAGED, Outcome.MALFORMED, Outcome.NOT_MEMBER, Outcome.WRONG_PORT)
"""Outcomes of packets that may be a rank's although the switch has not counted them as its own: those of any sender's where ports
are shared, and those of a host at a port of its own."""


class PathMonitor(PeriodicWatcher):
    """Looks, in a thread of its own, at jobs whose members report that they wait, until closed. It is primary on their switches
    while it reads counters and the records of the blocks that are waited for. With ``period`` 0 it looks when it is told to.

    A job leaves its switch, as if that were dead, if a path between one of its ranks and the switch has been blocked for
    ``blocked_after`` seconds (:mod:`netsum_controller.monitoring.blocked_paths`). Its members reach each other by TCP."""

    looks_for = "blocked paths"

    def __init__(
        self,
        context: ControllerContext,
        period: float = PERIOD,
        *,
        blocked_after: float = DEAD_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context, self._clock = context, clock
        self._paths = BlockedPaths(blocked_after)
        self._looked: dict[tuple[int, int], float] = {}
        """By epoch and rank, when it had made the last report that was looked at."""
        super().__init__(period)

    def look(self) -> list[Migration]:
        """One look; returns the moves that it has made."""
        jobs = [job for job in self._context.store.jobs() if may_leave_path(job)]
        epochs = {job.epoch.number for job in jobs}
        self._paths.keep(epochs)
        self._looked = {key: at for key, at in self._looked.items() if key[0] in epochs}
        moves = []
        for job in jobs:
            try:
                why = self._why_to_leave(job)
            except ControllerError as error:
                log.debug("looking for blocked paths of job %s: %s", job.name, error)  # the switch monitor says so
                continue
            done = leave_blocked_path(self._context, job.name, job.epoch.number, why) if why else None
            if done is not None:
                moves.append(done)
        return moves

    def _why_to_leave(self, job: Job) -> str:
        """The sentence about a path of the job that is blocked, "" if none is known to be."""
        epoch = job.epoch.number
        fresh = {
            rank: report
            for rank, report in job.reports.items()
            if report.sent >= OFTEN and self._looked.get((epoch, rank)) != report.at
        }
        if not fresh:
            return ""
        with self._context.store.lock, open_clients(self._context, switches_of(job), brief=True) as clients:
            reading = _Reading(self._context.topology, job, clients)
            states = reading.states(fresh)
            self._looked |= {(epoch, rank): report.at for rank, report in fresh.items()}
            for blocked in self._paths.look(epoch, states, self._clock()):
                state, report = states[blocked.rank], fresh[blocked.rank]
                if reading.is_certain(blocked, state, report):
                    return self._sentence(job, blocked, state, report)
        return ""

    def _sentence(self, job: Job, blocked: Blocked, state: PathState, report: Waiting) -> str:
        switch = switch_for(job, blocked.rank, report.block)
        path = Path(self._context.topology, job.epoch.seats[blocked.rank], switch, state.packets, waiting=report)
        arrives = blocked.direction is Direction.FROM_SWITCH
        return path.nothing_returns(blocked.times) if arrives else path.nothing_arrives(blocked.times)


class _Reading(NamedTuple):
    """What a job's switches know of its paths."""

    topology: Topology
    job: Job
    clients: Mapping[str, SwitchClient]

    def states(self, reports: Mapping[int, Waiting]) -> dict[int, PathState]:
        """The state of each rank's path, by its report; those that are missing in the tables have none. Results are looked for
        before packets are counted: what is counted afterwards, when there is a result, is answered with it."""
        job = self.job
        ways = {rank: switch_for(job, rank, report.block) for rank, report in reports.items()}
        done = self._done({(ways[rank], report.block) for rank, report in reports.items()})
        packets = self._packets()
        outcomes = {name: client.read_outcomes(job.job_id) for name, client in self.clients.items()}
        states = {}
        for rank, report in reports.items():
            seat, switch = job.epoch.seats[rank], ways[rank]
            if (switch, seat.src_id) not in packets:
                continue
            own = sum(packets.get((each, seat.src_id), 0) for each in reached_by(job, rank))
            states[rank] = PathState(
                *(report.block, report.sent, report.received),
                packets=packets[switch, seat.src_id],
                others=sum(packets.values()) - own,
                rejected=self._rejected(seat, switch, outcomes[switch]),
                is_done=(switch, report.block) in done,
            )
        return states

    def _done(self, blocks: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Those of these blocks, by switch, whose result is there."""
        found = set()
        for switch, client in self.clients.items():
            part = self.job.part(switch)
            assert part is not None, "a job has a part on every switch of its trees"
            slots = {part.slot_base + block % self.job.slots for name, block in blocks if name == switch}
            for record in client.query_records(slots).values():
                if record.epoch == self.job.epoch.number and record.state is BlockState.DONE:
                    found.add((switch, record.block_id))
        return found

    def _rejected(self, seat: Seat, switch: str, outcomes: Mapping[str, int]) -> int:
        host = self.topology.hosts.get(seat.host)
        if host is None or self.topology.shares_port(host):
            return sum(outcomes[outcome.name.lower()] for outcome in _DAMAGED)
        dropped = self.clients[switch].read_ports([host.port])[host.port].dropped
        return dropped + sum(outcomes[outcome.name.lower()] for outcome in _REJECTED)

    def is_certain(self, blocked: Blocked, state: PathState, report: Waiting) -> bool:
        """True if no MTU can be the reason, and nothing has arrived meanwhile. Queries for records go through the switch as
        packets do: if it is only busy, it has taken in by now what was there before them."""
        job, rank = self.job, blocked.rank
        switch, source = switch_for(job, rank, report.block), job.epoch.seats[rank].src_id
        part = job.part(switch)
        assert part is not None, "a job has a part on every switch of its trees"
        query = partial(self.clients[switch].query_records, timeout=10.0 + job.slots / 200)
        records = every_record(job, part.slot_base, query, around=report.block, root=switch).records
        ahead = (report.block - job.epoch.first_block_id) % SERIAL
        if may_be_mtu(blocked.direction, state, report.octets, source, ahead, records):
            return False
        return blocked.direction is Direction.FROM_SWITCH or self._packets().get((switch, source), 0) == state.packets

    def _packets(self) -> dict[tuple[str, int], int]:
        """The packets of the job that were let in, by switch and source id."""
        return {
            (switch, entry.src_id): packets
            for switch, client in self.clients.items()
            for entry, (packets, _) in client.read_member_traffic().items()
            if entry.job_id == self.job.job_id
        }
