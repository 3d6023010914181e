# SPDX-License-Identifier: MIT
"""The soak: rounds on one fabric until the time is up; every answer is judged, every error timed."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click
from netsum.transports.impairment import ImpairmentCounts
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.errors import ControllerError, InputError
from netsum_controller.state.model import Late
from netsum_testbed.checking import (
    Screen,
    amount_option,
    chosen_switch,
    only_option,
    rootless_option,
    running,
    seed_option,
    switch_option,
)

from tests.system.faults.fabrics import ServesOutside, open_outside
from tests.system.faults.make import KernelError, Possible, check_kernel
from tests.system.faults.scenario import EventKind, Scenario, Where
from tests.system.rounds import RoundTotals, play_rounds
from tests.system.soak import messages
from tests.system.soak.cases import MAX_WORKERS, RoundPlan, highest_rank, make_plan
from tests.system.soak.error_attribution import BUSY, History
from tests.system.soak.fault_injection import FaultInjector
from tests.system.soak.oracle import Oracle
from tests.system.soak.workers import Workers, quiet_hosts

SILENCE: Final = 20.0
"""Seconds past every deadline after which a silent rank counts as hanging."""
SPAWN: Final = 60.0
"""Seconds that a rank's process may take to start; two on an idle machine."""
LEAVING: Final = 20.0
"""Seconds that all ranks have to leave."""
_LOOK: Final = 0.25
CROWD: Final = 8
"""Threads of the whole machine that want a core, for each core, from which on a second counts as one without a processor: then a
switch may not answer in time, although this thread, which mostly sleeps, hardly waits."""


@dataclass(frozen=True)
class SoakOptions:
    """Options of a run. ``duration`` in seconds; ``only``: that round alone; ``scenario``: what goes wrong in every round;
    ``timeout``: seconds that every call has, if not those drawn."""

    duration: float = 600.0
    seed: int = 1
    only: int | None = None
    scenario: Scenario | None = None
    possible: Possible = field(default_factory=Possible)
    timeout: float | None = None


@dataclass
class SoakTotals(RoundTotals):
    """``calls``: those of which at least one rank has the result, ``degraded``: those with a partial one. ``faults``: packet
    faults and events that happened; ``errors``: what calls raised, by type, counted for each rank; ``wrong``: results that are
    neither exact nor declared partial, and exceptions that are not netsum's; ``late_errors``: errors that came too late;
    ``blamed``: errors that are untrue, or name a rank that kept up."""

    calls: int = 0
    elements: int = 0
    wrong: int = 0
    hangs: int = 0
    late_errors: int = 0
    blamed: int = 0
    degraded: int = 0
    resumes: int = 0
    resyncs: int = 0
    retransmissions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    latest_error: float = 0.0
    """Seconds after its call's timeout that the latest error came."""

    def add_packets(self, counts: ImpairmentCounts) -> None:
        """Add what a faulty transport did."""
        done = {
            "loss": counts.dropped,
            "duplicate": counts.duplicated,
            "reorder": counts.reordered,
            "delay": counts.delayed,
            "cut_packets": counts.cut,
        }
        self.faults.update({name: number for name, number in done.items() if number})

    @property
    def made(self) -> int:
        return self.calls

    @property
    def failures(self) -> int:
        return self.wrong + self.hangs + self.late_errors + self.blamed

    @property
    def note(self) -> str:
        bad = f"{self.wrong} wrong, {self.hangs} hangs, {self.late_errors} late, {self.blamed} blamed"
        return f"{self.calls} calls, {bad}"

    def figures(self) -> dict[str, Any]:
        by_name = {"faults": dict(sorted(self.faults.items())), "errors": dict(sorted(self.errors.items()))}
        return super().figures() | by_name | {"latest_error": round(self.latest_error, 3)}


def play(fabric: ServesOutside, options: SoakOptions, totals: SoakTotals, screen: Screen) -> None:
    """Make rounds on one fabric until the time is up. Counts into ``totals``, which is consistent at any moment, since an
    exception may end a run."""

    def play_one(number: int) -> None:
        plan = make_plan(options.seed, number, options.possible, options.scenario, fabric.topology)
        plan = replace(plan, timeout=options.timeout or plan.timeout)
        screen.say(f"round {number}: {plan.describe()}; scenario {plan.scenario.to_line()}")
        _Round(fabric, plan, totals, screen).run()

    def again(number: int) -> str:
        rootless = " --rootless" if fabric.rootless else ""
        given = " and the same SCENARIO" if options.scenario is not None else ""
        return f'make soak SWITCH={totals.switch} SEED={options.seed} ARGS="--only {number}{rootless}"{given}'

    play_rounds(totals, screen, options.duration, options.only, play_one, again)


def waited_for_a_processor() -> float:
    """Seconds that this thread has been ready to run without running."""
    return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9


def crowded() -> bool:
    """True if so many threads want a processor."""
    runnable = Path("/proc/loadavg").read_text("ascii").split()[3].partition("/")[0]
    return int(runnable) > CROWD * (os.cpu_count() or 1)


class _Round:
    """One job, its ranks, and what they say."""

    def __init__(self, fabric: ServesOutside, plan: RoundPlan, totals: SoakTotals, screen: Screen) -> None:
        self._fabric, self._plan, self._totals = fabric, plan, totals
        self._screen, self._say = screen, screen.say
        self._history = History(plan)
        self._oracle = Oracle(plan, self._history)
        self._workers = Workers(processes=plan.scenario.has(EventKind.KILL))
        self._deadlines: dict[int, float | None] = {}
        self._finished: set[int] = set()
        self._resyncing: set[int] = set()
        self._left: set[int] = set()
        self._first = 0
        self._joined: set[int] = set()
        self._broken = False
        self._waited = (time.monotonic(), waited_for_a_processor())

    def run(self) -> None:
        plan, fabric = self._plan, self._fabric
        name = f"soak-{plan.base.index}"
        late = {"late": Late.DEGRADE, "block_exp": plan.block_exp_ms, "quorum": plan.quorum} if plan.degrades else {}
        base = {"name": name, "members": plan.members, "window": plan.base.window, "chunks": plan.base.chunks}
        job = fabric.create_job(JobSpec.model_validate({**base, "roots": plan.roots, **late}))
        with ExitStack() as stack:
            stack.callback(self._delete, name)
            assert fabric.controller.url is not None
            setups = [
                messages.WorkerSetup(
                    plan=plan,
                    rank=rank,
                    job=name,
                    token=fabric.tokens[name],
                    controller=fabric.controller.url,
                    opening=fabric.opening(job.members[rank]),
                    spoil=plan.scenario.where is Where.HOSTS,
                )
                for rank in range(plan.workers)
            ]
            injector = FaultInjector(fabric, self._workers, setups, job, self._history, self._totals.faults, self._say)
            stack.enter_context(injector)
            stack.callback(self._stop)
            for setup in setups:
                self._workers.post(setup)
                self._expect(setup.rank, SPAWN + messages.JOIN_TIMEOUT)
            self._run_calls(injector)
        self._report_findings()

    def _delete(self, name: str) -> None:
        try:
            self._fabric.delete_job(name)
        except ControllerError:
            self._fabric.delete_job(name, force=True)

    def _expect(self, rank: int, seconds: float) -> None:
        """Expect a report of the rank within these seconds, plus an allowance for a loaded machine."""
        self._deadlines[rank] = time.monotonic() + seconds + messages.LATE + SILENCE

    def _run_calls(self, injector: FaultInjector) -> None:
        """Listen until all ranks have made all calls and every event is over, or until a rank hangs."""
        everyone = set(range(self._plan.workers))
        while not (self._finished == everyone and injector.over and not self._resyncing) and not self._broken:
            injector.run()
            due = injector.next_time()
            wait = _LOOK if due is None else min(_LOOK, max(0.0, due - time.monotonic()))
            received = self._receive(wait)
            self._note_load()
            for rank, seconds in injector.stalled:
                if (deadline := self._deadlines.get(rank)) is not None:
                    self._deadlines[rank] = deadline + seconds
            injector.stalled.clear()
            if self._joined == everyone and self._first >= 0:
                injector.begun(self._first)
            self._forget(injector.killed)
            if not received:
                self._look_for_hangs()
            self._screen.show(self._totals)

    def _note_load(self) -> None:
        """If this thread, which mostly sleeps, waited for a processor half of the time, or there is a crowd, assume that ranks
        and switches waited too."""
        (since, waited), now = self._waited, (time.monotonic(), waited_for_a_processor())
        if now[0] - since < 1.0:
            return
        if now[1] - waited > (now[0] - since) / 2 or crowded():
            self._history.begins(BUSY, None, since).over = now[0]
        self._waited = now

    def _forget(self, killed: set[int]) -> None:
        for rank in killed:
            self._finished.discard(rank)
            self._resyncing.discard(rank)
            self._expect(rank, SPAWN + messages.JOIN_TIMEOUT)  # of its successor

    def _receive(self, wait: float) -> bool:
        try:
            message = self._workers.inbox.get(timeout=wait)
        except queue.Empty:
            return False
        self._take(message)
        return True

    def _take(self, message: messages.WorkerMessage) -> None:
        rank = message.rank
        if not self._broken:  # what a rank says while it is being stopped is not its fault
            self._history.take(message)
        match message:
            case messages.Joined():
                self._note_joined(rank)
            case messages.Began(step=step, timeout=timeout):
                self._first = max(self._first, step)
                self._expect(rank, timeout)
            case messages.Answer():
                self._oracle.take(message)
                self._report_error(message, f"call {message.step}", message.late)
                self._expect(rank, self._plan.timeout)
            case messages.NotJoined():
                self._not_joined(message)
            case messages.Resyncing():
                self._resyncing.add(rank)
                self._expect(rank, messages.RESYNC_TIMEOUT)
                self._call_back()
            case messages.Resynced():
                self._resynced(message)
            case messages.Evicted():
                self._deadlines[rank] = None
            case messages.Finished():
                self._finished.add(rank)
                self._deadlines[rank] = None
                if self._resyncing:
                    self._call_back()
            case messages.Left():
                self._left.add(rank)
                self._deadlines[rank] = None
                self._totals.add_packets(message.counts)
                self._totals.retransmissions += message.retransmissions
                self._totals.resumes += message.resumes
            case messages.Crashed(trace=trace):
                self._report_wrong(f"rank {rank}: {trace}")
                self._broken = True

    def _note_joined(self, rank: int) -> None:
        """Let the calls begin when all have joined."""
        again = rank in self._joined  # a killed rank's successor
        self._joined.add(rank)
        self._expect(rank, 0.0 if again else SPAWN + messages.JOIN_TIMEOUT)
        if len(self._joined) == self._plan.workers and not again:
            for each in self._joined:
                self._workers.command(each, "go")
                self._expect(each, 0.0)

    def _call_back(self) -> None:
        """A resync takes all ranks: call back those that have finished."""
        for rank in self._finished:
            self._workers.command(rank, "resync")
            self._expect(rank, messages.RESYNC_TIMEOUT)
        self._finished.clear()

    def _not_joined(self, message: messages.NotJoined) -> None:
        """The rank asks again; until all have joined, the others wait for it."""
        self._report_error(message, "join", message.when - message.begun - messages.JOIN_TIMEOUT)
        waiting = self._joined if len(self._joined) < self._plan.workers else set()
        for rank in {message.rank, *waiting}:
            self._expect(rank, SPAWN + messages.JOIN_TIMEOUT)

    def _resynced(self, message: messages.Resynced) -> None:
        self._resyncing.discard(message.rank)
        self._expect(message.rank, self._plan.timeout)
        self._totals.resyncs += message.failure is None
        if message.wrong:
            self._report_wrong(f"rank {message.rank}: after resync: {message.wrong}")
        self._report_error(message, "resync", message.late)

    def _report_error(self, message: messages.Answer | messages.Resynced | messages.NotJoined, where: str, late: float) -> None:
        """Count the error that a rank reports, if any, ``late`` seconds after its time."""
        failure = message.failure
        if failure is None:
            return
        self._totals.errors[failure.name] += 1
        late -= self._history.busy(message.begun, message.when)
        self._totals.latest_error = max(self._totals.latest_error, late)
        if late > messages.LATE:
            self._totals.late_errors += 1
            self._say(f"  LATE: rank {message.rank}, {where}, {late:.1f} s after its time: {failure.name}: {failure.text}")
        if not failure.ours:
            self._report_wrong(f"rank {message.rank}, {where}: {failure.name} is none of netsum's errors: {failure.text}")
            self._broken = True  # the state after such an error is unknown

    def _report_wrong(self, text: str) -> None:
        self._totals.wrong += 1
        self._say(f"  WRONG: {text}")

    def _look_for_hangs(self) -> None:
        now = time.monotonic()
        silent = [rank for rank, deadline in self._deadlines.items() if deadline is not None and now > deadline]
        if not silent:
            return
        self._totals.hangs += len(silent)
        self._broken = True
        self._say(f"  HANG: ranks {silent} say nothing")
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread.name.startswith("rank ") and thread.ident in frames:
                self._say(f"  {thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}")

    def _stop(self) -> None:
        """Let all ranks leave, and take what they still report."""
        self._workers.close()
        deadline = time.monotonic() + (0.0 if self._broken else LEAVING)
        while len(self._left) < self._plan.workers and time.monotonic() < deadline:
            self._receive(_LOOK)
        if stuck := self._workers.stop():
            self._totals.hangs += not self._broken
            self._say(f"  HANG: ranks {stuck} do not leave")
        while self._receive(0.0):
            pass

    def _report_findings(self) -> None:
        for line in self._history.complaints():
            self._totals.blamed += 1
            self._say(f"  BLAMED: {line}")
        for finding in self._oracle.findings():
            if not finding.results:
                continue
            self._totals.calls += 1
            self._totals.elements += finding.step.cell.size
            self._totals.degraded += finding.degraded
            for complaint in finding.complaints:
                self._report_wrong(f"call {finding.number}, {finding.step.describe()}: {complaint}")
        self._screen.show(self._totals)


MINUTES = 10.0


def possible_on(switch: str, *, rootless: bool) -> tuple[Possible, str | None]:
    """Say what can go wrong on such a fabric, and a remark on what this kernel cannot do."""
    places = [Where.HOSTS]
    missing = None
    if switch == "embedded":
        places.append(Where.SWITCH)
    if not rootless:
        try:
            check_kernel()
            places.append(Where.KERNEL)
        except KernelError as error:
            missing = f"*** NO PACKETS ARE LOST IN THE KERNEL: {error} ***"
    cuts = len(places) > 1  # others than the hosts
    return Possible(tuple(places), tuple(kind for kind in EventKind if cuts or kind is not EventKind.CUT_TRUNK)), missing


@click.command()
@switch_option()
@amount_option("--minutes", default=MINUTES, text="during which rounds are begun", above=True)
@seed_option()
@only_option("round", "--round")
@click.option(
    "--scenario",
    "scenario_file",
    type=click.Path(path_type=Path),
    help="what goes wrong in every round, JSON or YAML, such as the line that a round logs",
)
@rootless_option
def soak(switch: str, minutes: float, seed: int, only: int | None, scenario_file: Path | None, rootless: bool) -> None:
    """Make random calls while packets are lost, ranks stall or are killed, and switches and the controller restart.

    Every result must be exact, or a partial one that says so; every error must come in time. The last line is one
    JSON object; the exit code is 1 if a result was wrong, a rank hung, or an error came late or blamed the innocent.
    """
    name = chosen_switch(switch, rootless=rootless)
    scenario = None if scenario_file is None else Scenario.load(scenario_file)
    quiet_hosts()
    rootless = rootless or os.geteuid() != 0
    possible, missing = possible_on(name, rootless=rootless)
    if scenario is not None and scenario.where not in possible.where:
        raise InputError(f"{scenario_file}: packets cannot be disturbed in the {scenario.where} here")
    options = SoakOptions(60 * minutes, seed, only, scenario, possible)
    totals = SoakTotals(name, seed)
    hosts = MAX_WORKERS if scenario is None else max(MAX_WORKERS, highest_rank(scenario) + 1)
    with running(totals) as screen, open_outside(name, hosts, rootless=rootless) as fabric:
        where = "rootless" if rootless else "namespace"
        screen.say(f"soak on the {name} switch ({where}), seed {seed}, {minutes:g} min")
        if missing is not None:
            screen.say(missing)
        screen.begin(options.duration)
        play(fabric, options, totals, screen)
