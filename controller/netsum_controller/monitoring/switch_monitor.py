# SPDX-License-Identifier: MIT
"""Watches the switches, and restores those that have restarted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from netsum_p4runtime import p4runtime_pb2_grpc

from netsum_controller.config.topology import Switch, Tls
from netsum_controller.context import ControllerContext
from netsum_controller.errors import ControllerError
from netsum_controller.jobs.migration import leave_dead_switch
from netsum_controller.jobs.reconcile import Report, reconcile_switch
from netsum_controller.p4runtime.channel import open_channel, read_cookie

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two looks at a switch."""

MAX_PAUSE = 30.0
"""Most seconds between two attempts to reconcile a switch if that keeps failing."""

DOWN_AFTER = 3
"""Unanswered looks in a row before the others' paths avoid a switch: a single answer may be late."""

DEAD_AFTER = 10.0
"""Seconds without an answer after which jobs that wait for the switch, and can do without it, move to their members. A switch
that restarts is back by then."""


class SwitchMonitor:
    """Looks at every switch of the topology, each in a thread of its own, until closed.

    A look is one call that reads the cookie of the switch's program, without arbitration, so it disturbs no client. A switch
    without a program has restarted (or is new) and is reconciled; so is every switch when it is first seen, since a command may
    have been killed there. One that runs another program is left alone: only ``netsum switch push`` replaces it. One that does
    not answer is ``down`` after some looks. Whenever that changes, the others are reconciled, so that paths and trees avoid it,
    or use it again. A failure is logged once, and retried after pauses that grow to ``MAX_PAUSE``. Jobs that a switch has kept
    waiting for ``dead_after`` seconds move to their members (:func:`netsum_controller.jobs.migration.leave_dead_switch`).
    """

    def __init__(
        self,
        context: ControllerContext,
        period: float = PERIOD,
        reconcile: Callable[[ControllerContext, str], Report] = reconcile_switch,
        *,
        dead_after: float = DEAD_AFTER,
    ) -> None:
        self._watches = [_Watch(context, name, period, reconcile, dead_after) for name in context.topology.switches]

    def close(self) -> None:
        """End the threads; one that is reconciling finishes first."""
        for watch in self._watches:
            watch.stop()
        for watch in self._watches:
            watch.join()


class _Watch:
    def __init__(
        self,
        context: ControllerContext,
        name: str,
        period: float,
        reconcile: Callable[[ControllerContext, str], Report],
        dead_after: float,
    ) -> None:
        self._context, self._name, self._period, self._reconcile = context, name, period, reconcile
        self._dead_after = dead_after
        self._answered = time.monotonic()
        self._stop = threading.Event()
        self._channel: grpc.Channel | None = None
        self._stub: Any = None
        self._connected_to: tuple[str | None, Tls | None] = (None, None)
        self._trouble: str | None = None
        self._around: frozenset[str] | None = None
        """The other switches that were down when this one was last reconciled; None if it never was, or that failed."""
        self._failures = self._unanswered = 0
        self._about = {"switch": name}
        self._thread = threading.Thread(target=self._run, name=f"netsum-watch-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
                self._failures = 0
            except ControllerError as error:
                self._failures += 1
                self._report(str(error))
            except Exception:
                # Whatever happened, the switch must still be watched.
                self._failures += 1
                log.exception("watching switch %s", self._name, extra=self._about)
            self._stop.wait(min(self._period * 2 ** min(self._failures, 16), max(MAX_PAUSE, self._period)))
        self._disconnect()

    def _look(self) -> None:
        switch = self._context.topology.switches.get(self._name)
        if switch is None or switch.p4runtime is None:
            return  # a testbed has not filled its address in yet
        self._connect(switch)
        try:
            cookie = read_cookie(self._stub, switch.device_id, self._context.patience)
        except grpc.RpcError as error:
            self._unanswered += 1
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                self._context.silence.begins(self._name)
            if self._unanswered >= DOWN_AFTER:
                self._context.down.add(self._name)
                if self._context.topology.links:  # the others go on without it, so what it has is out of date
                    self._around = None
            self._report(f"switch {self._name} does not answer at {switch.p4runtime} ({error.code().name})")
            dead = self._unanswered >= DOWN_AFTER and time.monotonic() - self._answered >= self._dead_after
            if dead and leave_dead_switch(self._context, self._name):
                self._around = None  # what the jobs have there is removed when it answers again
            return
        self._unanswered, self._answered = 0, time.monotonic()
        self._context.down.discard(self._name)
        self._context.silence.ends(self._name)
        if cookie is None or (cookie == self._context.program.cookie and self._around != self._others_down()):
            self._restore()
        elif cookie == self._context.program.cookie:
            self._report(None)
        else:
            self._report(f"switch {self._name} runs another P4 program than this netsum's; `netsum switch push` loads ours")

    def _others_down(self) -> frozenset[str]:
        return frozenset(self._context.down) - {self._name}

    def _restore(self) -> None:
        around, self._around = self._others_down(), None  # if this fails half-way, the next look tries again
        report = self._reconcile(self._context, self._name)
        self._around = None if report.waiting else around
        self._report("; ".join(f"job {job} waits ({why})" for job, why in report.waiting.items()) or None)
        if report.changed:
            jobs = ", ".join(f"job {job} under epoch {epoch}" for job, epoch in report.new_epochs.items())
            jobs = jobs or "its jobs are as they were"
            log.warning("switch %s is restored: %s", self._name, jobs, extra=self._about)

    def _connect(self, switch: Switch) -> None:
        address = (switch.p4runtime, switch.tls)
        if self._channel is None or address != self._connected_to:
            self._disconnect()
            assert switch.p4runtime is not None
            self._channel = open_channel(switch.p4runtime, switch.tls)
            self._stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
            self._connected_to = address

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = self._stub = None

    def _report(self, trouble: str | None) -> None:
        """Log what is wrong when it begins and when it ends, not at every look."""
        if trouble != self._trouble:
            if trouble is not None:
                log.warning("%s", trouble, extra=self._about)
            else:
                log.info("switch %s is as it should be again", self._name, extra=self._about)
            self._trouble = trouble
