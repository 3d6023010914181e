# SPDX-License-Identifier: MIT
"""Random histories of a job: members join, finish blocks, rejoin, leave and are replaced; the switch restarts, the
controller is killed. Held: what all go on from is the lowest that any member lacks, and within what all keep."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from netsum.descriptor import Descriptor
from netsum_controller import Controller, JobSpec
from netsum_controller.entries import JobEntry
from netsum_controller.errors import BusyError, CannotResumeError, SwitchError
from netsum_controller.jobs.membership import GRACE, Membership
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.state.model import IdRange, Rejoin

from tests.controller.conftest import star4
from tests.controller.fake_switch import FakeSwitch
from tests.controller.items import items_on
from tests.controller.killing import Killed, dying_after
from tests.controller.members import TOKEN, rejoin
from tests.examples import one_in

WINDOW = 4
RANKS = st.integers(0, 2)


class Host:
    """One process on a rank: where it is, and what it knows. ``finished`` counts the blocks whose results it has."""

    def __init__(self, instance: str, descriptor: Descriptor) -> None:
        self.instance = instance
        self.descriptor = descriptor
        self.origin = descriptor.first_block_id
        self.finished = 0

    @property
    def needs(self) -> int:
        return (self.origin + self.finished) % (1 << 32)


class Rejoining(RuleBasedStateMachine):
    """The world around one controller, with hosts that do what PROTOCOL.md allows."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="ns")
        self.switch = FakeSwitch(f"unix:{self.folder.name}/s1").start()
        self.topology = star4(self.switch.address)
        self.now = 0.0
        self.controller = self._open()
        self.hosts: dict[int, Host] = {}
        self.instances = 0
        self.starts: dict[int, int] = {}
        """First block of every epoch that some member was told of."""

    def _open(self) -> Controller:
        controller = Controller(self.topology, Path(self.folder.name) / "state.db")
        controller.membership = Membership(controller.context, lambda: self.now)
        return controller

    def teardown(self) -> None:
        self.controller.close()
        self.switch.stop()
        self.folder.cleanup()

    @initialize()
    def create(self) -> None:
        self.controller.push()
        self.controller.create_job(JobSpec(name="job", members=("h1", "h2", "h4"), window=WINDOW, token=TOKEN))

    def _told(self, descriptor: Descriptor) -> None:
        """All members are told the same of an epoch, and it is on the switch, unless that has restarted since."""
        assert self.starts.setdefault(descriptor.epoch, descriptor.first_block_id) == descriptor.first_block_id
        if self.switch.config is None:
            return
        entries = items_on(self.controller, JobEntry)
        assert [(one.epoch, one.first_block_id) for one in entries] == [(descriptor.epoch, descriptor.first_block_id)]

    @rule(rank=RANKS, again=st.booleans())
    def join(self, rank: int, again: bool) -> None:
        self._join(rank, again=again)

    def _join(self, rank: int, *, again: bool) -> None:
        """A new process takes a rank, or one that did not get its answer asks again."""
        host = self.hosts.get(rank)
        if again and host is not None and host.finished == 0 and host.descriptor.resumes is None:
            instance = host.instance
        else:
            self.instances += 1
            instance = f"i{self.instances}"
        try:
            descriptor = self.controller.join("job", TOKEN, rank, instance)
        except (BusyError, SwitchError):
            return
        self._told(descriptor)
        self.hosts[rank] = Host(instance, descriptor)

    @rule(blocks=st.permutations(range(3)), first=RANKS)
    def restart_mid_call(self, blocks: list[int], first: int) -> None:
        """All are there, each at another block; the switch restarts, is reconciled, and they begin to rejoin."""
        self.all_join(first)
        for rank, more in enumerate(blocks):
            self._finish(rank, more)
        self.switch.restart()
        self.controller.reconcile()
        self._rejoin(first)

    @rule(rank=RANKS, blocks=st.integers(1, WINDOW))
    def finish(self, rank: int, blocks: int) -> None:
        self._finish(rank, blocks)

    def _finish(self, rank: int, blocks: int) -> None:
        """If all three are in the switch's epoch, a rank gets results, up to a window ahead of the last rank."""
        if len(self.hosts) < 3 or self.switch.config is None:
            return
        epochs = {host.descriptor.epoch for host in self.hosts.values()}
        job = self.controller.job("job")
        if epochs == {job.epoch.number}:
            last = min(host.finished for host in self.hosts.values())
            host = self.hosts[rank]
            host.finished = max(host.finished, min(host.finished + blocks, last + WINDOW))

    @rule(rank=RANKS)
    def rejoin(self, rank: int) -> None:
        self._rejoin(rank)

    def _rejoin(self, rank: int) -> None:
        host = self.hosts.get(rank)
        if host is None:
            return
        place = Progress(host.descriptor.epoch, host.needs)
        try:
            descriptor = rejoin(self.controller, "job", rank, place, host.instance)
        except (BusyError, SwitchError):
            return
        except CannotResumeError:
            del self.hosts[rank]
            return
        if descriptor.epoch == host.descriptor.epoch:
            assert descriptor.resumes is None
            return
        assert descriptor.resumes == host.descriptor.epoch
        self._told(descriptor)
        ahead = (host.needs - descriptor.first_block_id) % (1 << 32)
        assert ahead <= WINDOW  # it keeps what it must send again
        seats = self.controller.job("job").epoch.seats
        for other, theirs in self.hosts.items():  # no member that goes on lacks a block from before
            if seats[other].instance == theirs.instance:
                assert (theirs.needs - descriptor.first_block_id) % (1 << 32) <= WINDOW
        host.descriptor = descriptor

    @rule(rank=RANKS)
    def leave(self, rank: int) -> None:
        host = self.hosts.pop(rank, None)
        if host is not None:
            self.controller.leave("job", TOKEN, rank, host.instance)

    @rule(first=RANKS)
    def all_join(self, first: int) -> None:
        """The ranks that no process has."""
        for rank in sorted({0, 1, 2} - set(self.hosts), key=lambda rank: (rank - first) % 3):
            self._join(rank, again=False)

    @rule(first=RANKS)
    def all_rejoin(self, first: int) -> None:
        for rank in range(3):
            self._rejoin((first + rank) % 3)

    @rule()
    def time_passes(self) -> None:
        self.now += GRACE / 2

    @rule()
    def restart(self) -> None:
        self.switch.restart()

    @rule()
    def reconcile(self) -> None:
        self.controller.reconcile()

    @rule(write=st.integers(0, 4), rank=RANKS, what=st.sampled_from(["rejoin", "reconcile", "join"]))
    def killed(self, write: int, rank: int, what: str) -> None:
        """The controller is killed before its n-th write to the switch; another begins and reconciles."""
        with dying_after(write), suppress(Killed):
            if what == "reconcile":
                self.controller.reconcile()
            elif what == "rejoin":
                self._rejoin(rank)
            else:
                self._join(rank, again=False)
        self.controller.close()
        self.controller = self._open()
        self.controller.reconcile()

    @precondition(lambda self: self.switch.config is not None)
    @invariant()
    def ids_are_fresh(self) -> None:
        """No epoch begins within the ids of another, unless it resumes that one."""
        job = self.controller.job("job")
        context = self.controller.context
        current = {job.epoch.number, *context.store.resumed(job.epoch.number)}
        mine = IdRange(job.epoch.first_block_id, 1)
        for epoch, first in self.starts.items():
            if epoch not in current:
                used = max((h.finished for h in self.hosts.values() if h.descriptor.epoch == epoch), default=0)
                assert not mine.overlaps(IdRange(first, used + 2 * WINDOW))

    @invariant()
    def nothing_is_let_in_while_they_rejoin(self) -> None:
        job = self.controller.job("job")
        if job.epoch.rejoin is Rejoin.WAITING and self.switch.config is not None:
            assert not items_on(self.controller, JobEntry)


TestRejoining = Rejoining.TestCase
TestRejoining.settings = one_in(8, stateful_step_count=30)  # each writes a state file in every step
