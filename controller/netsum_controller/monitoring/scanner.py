# SPDX-License-Identifier: MIT
"""Scans, which make blocks of degrade jobs age out while members are late.

BMv2 has no timers, so the controller sends timer packets. While it serves, a thread for each switch sends a scan for each of its
aging jobs, twice in every block_exp of that switch (in a tree, higher switches wait longer). So a straggler is detected
between one and one and a half block_exp after its block began, plus the time that a scan takes.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import grpc
from netsum.wire.schema import PacketOutKind

from netsum_controller.config.topology import Switch
from netsum_controller.context import ControllerContext
from netsum_controller.entries.packet_out import scan_fields, scan_frame
from netsum_controller.errors import ControllerError, RejectedError
from netsum_controller.p4runtime.stream import SILENCE, ScanStream
from netsum_controller.planning.items import job_trees, present
from netsum_controller.planning.trees import block_exp_us
from netsum_controller.state.model import Job

log = logging.getLogger(__name__)

MIN_PERIOD = 0.002
"""Least seconds between two scans of a job."""

LOOK_PERIOD = 0.1
"""Seconds between two checks of the state file, which another process may have changed, for aging jobs."""

PATIENCE = 0.5
"""Seconds after which an unanswered scan counts as lost."""

RECONNECT = 0.25
"""Seconds before a stream that has ended is opened again."""

ALARM = 5.0
"""Seconds without being primary after which the log says so."""


class AgingScanner:
    """Scans the aging jobs of every switch of the topology, until closed."""

    def __init__(self, context: ControllerContext) -> None:
        self._switches = [_SwitchAgingScanner(context, name) for name in context.topology.switches]

    def close(self) -> None:
        for one in self._switches:
            one.stop()
        for one in self._switches:
            one.join()


@dataclass(frozen=True)
class _Round:
    """A job's scans: when the next is due, and the ``cookie`` of the one in flight (None: there is none)."""

    job: str
    job_id: int
    period: float
    due: float
    cookie: int | None = None
    sent: float = 0.0


class _SwitchAgingScanner:
    """One switch, one thread. It takes none of the controller's locks, and waits only for its own queue."""

    def __init__(self, context: ControllerContext, name: str) -> None:
        self._context, self._name = context, name
        self._events: queue.SimpleQueue[tuple[ScanStream, Any] | None] = queue.SimpleQueue()
        self._stopping = False
        self._stream: ScanStream | None = None
        self._connected_to: Switch | None = None
        self._primary = False
        self._connect_at = self._look_at = 0.0
        self._unanswered_since: float | None = None
        """The time when the stream was opened; None once the switch has answered, or without a stream."""
        self._backup_since: float | None = None
        self._alarmed = False
        self._sequence = 0
        self._rounds: dict[int, _Round] = {}
        self._ages: dict[int, tuple[tuple[str, int, tuple[int, ...]] | None, int]] = {}
        """By job id: the job, epoch and evicted ranks that the age was computed for, and the age."""
        self._thread = threading.Thread(target=self._run, name=f"netsum-scan-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._events.put(None)

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn(time.monotonic())
            except Exception:
                # Whatever happened, jobs must go on aging.
                log.exception("scanning switch %s", self._name, extra={"switch": self._name})
                self._disconnect()
                self._wait(time.monotonic() + RECONNECT)
        self._disconnect()

    def _turn(self, now: float) -> None:
        if now >= self._look_at:
            self._look(now)
        if not self._rounds:
            self._disconnect()
            self._wait(self._look_at)
            return
        if self._stream is None and now >= self._connect_at:
            self._connect()
        wake = [self._look_at] if self._stream is not None else [min(self._look_at, self._connect_at)]
        if self._primary:
            wake += [self._advance(one, now) for one in list(self._rounds.values())]
        self._wait(min(wake))

    # -- jobs

    def _look(self, now: float) -> None:
        """Find out which jobs are aging, and where their switch is."""
        self._look_at = now + LOOK_PERIOD
        aging: dict[int, Job] = {}
        switch = self._context.topology.switches.get(self._name)
        if switch is not None and switch.p4runtime is not None:  # a testbed may not have filled the address in yet
            jobs = (job for job in self._context.store.jobs(self._name) if job.exists and job.aging)
            aging = {job.job_id: job for job in jobs if self._age(job)}
        if switch != self._connected_to:
            self._disconnect()
        if self._unanswered_since is not None and now - self._unanswered_since >= SILENCE:
            log.debug("switch %s does not answer a stream", self._name, extra={"switch": self._name})
            self._disconnect()
        self._rounds = {job_id: self._round(job, now) for job_id, job in aging.items()}
        if self._stream is not None and not self._primary:
            self._backup_since = self._backup_since or now
            if now - self._backup_since > ALARM and not self._alarmed:
                self._alarmed = True
                log.warning(
                    "another P4Runtime client is primary on switch %s: blocks of %s do not age out until it leaves",
                    *(self._name, ", ".join(sorted(job.name for job in aging.values()))),
                    extra={"switch": self._name},
                )

    def _age(self, job: Job) -> int:
        """Age in microseconds at which a job's blocks are old on this switch; 0 if the job has no member here."""
        known, age = self._ages.get(job.job_id, (None, 0))
        if known != (place := (job.name, job.epoch.number, job.epoch.evicted)):
            try:
                node = present(job_trees(self._context.topology, job), job).nodes.get(self._name)
            except RejectedError:  # the topology has changed since the job was made
                node = None
            age = 0 if node is None else block_exp_us(job.block_exp_us, node.height)
            self._ages[job.job_id] = place, age
        return age

    def _round(self, job: Job, now: float) -> _Round:
        period = max(self._age(job) / 2e6, MIN_PERIOD)
        before = self._rounds.get(job.job_id)
        if before is None or before.job != job.name:
            return _Round(job.name, job.job_id, period, now)
        return replace(before, period=period)

    def _advance(self, one: _Round, now: float) -> float:
        """Send the job's scan if it is due; returns when to look at the job again."""
        if one.cookie is not None and now - one.sent >= PATIENCE:
            self._count(one.job, unanswered=1)
            one = self._rounds[one.job_id] = replace(one, cookie=None)
        if one.cookie is not None:
            return one.sent + PATIENCE
        if now < one.due:
            return one.due
        assert self._stream is not None
        assert self._connected_to is not None
        self._sequence = (self._sequence + 1) % 256
        cookie = self._sequence << 8 | one.job_id
        frame = scan_frame(self._connected_to, one.job_id)
        self._stream.send_packet(self._context.program.packet_out(frame, scan_fields(cookie)))
        self._count(one.job, scans=1)
        self._rounds[one.job_id] = replace(one, cookie=cookie, sent=now, due=max(one.due, now - one.period) + one.period)
        return now + PATIENCE

    def _count(self, job: str, *, scans: int = 0, unanswered: int = 0, closed: int = 0) -> None:
        for name, by in (("scans", scans), ("unanswered_scans", unanswered), ("scanned_blocks", closed)):
            self._context.counters.add(name, job, by=by)  # by 0, too: a job that was scanned has all three metrics

    def _answered(self, cookie: int, closed: int, now: float) -> None:
        one = self._rounds.get(cookie & 0xFF)
        if one is None or one.cookie != cookie:
            return  # the answer to another client, or to a scan that was given up
        self._count(one.job, closed=closed)
        if closed:
            log.debug("job %s: a scan closed %d blocks", one.job, closed, extra={"job": one.job, "closed": closed})
        # If scans take long (many slots, a busy switch), they must not take more than half of the time.
        self._rounds[one.job_id] = replace(one, cookie=None, due=max(one.due, now + (now - one.sent)))

    # -- the stream

    def _connect(self) -> None:
        self._connect_at = time.monotonic() + RECONNECT
        switch = self._context.topology.switches.get(self._name)
        if switch is None or switch.p4runtime is None:
            return
        try:
            self._stream = ScanStream(switch, lambda stream, message: self._events.put((stream, message)))
        except ControllerError as error:
            log.warning("switch %s cannot be scanned: %s", self._name, error, extra={"switch": self._name})
            return
        self._connected_to = switch
        self._unanswered_since = time.monotonic()

    def _disconnect(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._connect_at = time.monotonic() + RECONNECT
        self._stream = self._connected_to = self._backup_since = self._unanswered_since = None
        self._became(primary=False)

    def _became(self, *, primary: bool) -> None:
        self._primary = primary
        self._forget_sent()  # the PacketIn went to the other primary
        if primary:
            self._backup_since = None
            self._alarmed = False

    def _forget_sent(self) -> None:
        self._rounds = {job_id: replace(one, cookie=None) for job_id, one in self._rounds.items()}

    def _wait(self, until: float) -> None:
        """Wait until then or until an event comes, and handle all events that have come."""
        try:
            event = self._events.get(timeout=max(0.0, until - time.monotonic()))
            while True:
                if event is not None and event[0] is self._stream:
                    self._receive(event[1])
                event = self._events.get_nowait()
        except queue.Empty:
            pass

    def _receive(self, message: Any) -> None:
        if message is None or isinstance(message, grpc.RpcError):
            details = message.details() if message is not None else "it ended the stream"
            log.debug("scans on switch %s pause: %s", self._name, details, extra={"switch": self._name})
            self._disconnect()
        elif message.HasField("arbitration"):
            self._unanswered_since = None
            self._became(primary=message.arbitration.status.code == 0)
        elif message.HasField("packet"):
            answer = self._context.program.packet_in_metadata(message.packet.metadata)
            if answer.get("kind") == PacketOutKind.SCAN:
                self._answered(answer["cookie"], answer["closed"], time.monotonic())
        elif message.HasField("error"):  # a PacketOut of a backup is refused: not now
            self._forget_sent()
