# SPDX-License-Identifier: MIT
"""UDP between ranks and their aggregator is blocked in the middle of a training: it goes on by a host algorithm, without a user's
step, and the next run tries the aggregator again. A network that loses packets, or a late rank, is no reason."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import netsum as library
import numpy as np
import pytest
from netsum import Communicator, Descriptor
from netsum.core import recovery, retransmit
from netsum.core.endpoint_factory import open_transport
from netsum.transports import ImpairedTransport, Impairment, Transport, base
from netsum_controller.monitoring.blocked_paths import MANY
from netsum_controller.monitoring.path_monitor import PathMonitor
from netsum_testbed.aggregator import Aggregator
from netsum_testbed.aggregator_place import Place
from netsum_testbed.free_ports import free_port

from tests.full.calls import on_all, results
from tests.full.trouble import Nap, Training
from tests.hosts.network import Around
from tests.threads import PATIENCE, returned, until

PERIOD = 0.05
HERE, THERE = "0" * 32, "1" * 32
APART = ("", "", "")
"""A rank on each of three hosts."""
PAIRS = (HERE, HERE, THERE, THERE)
"""Two ranks on each of two hosts, which share memory."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks repeat a block and report often: the monitor needs many repeats and some reports, not time."""
    monkeypatch.setattr(recovery, "PATIENCE", 0.1)
    monkeypatch.setattr(recovery, "MAX_PATIENCE", 0.2)
    monkeypatch.setattr(retransmit, "MAX_RTO", 0.1)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Aggregator]:
    with Aggregator(Place(tmp_path / "state", "127.0.0.1", "127.0.0.1", 9000, free_port(), free_port())) as aggregator:
        yield aggregator


class Firewall:
    """On the hosts of some ranks; ``rule`` is what it drops: "", "out" or "in"."""

    def __init__(self, behind: Collection[int]) -> None:
        self.behind = behind
        self.rule = ""
        self.dropped = 0

    def open(self, descriptor: Descriptor) -> Transport:
        link = open_transport(descriptor)
        return _Filtered(link, self) if descriptor.rank in self.behind else link


class _Filtered(Around):
    def __init__(self, inner: Transport, firewall: Firewall) -> None:
        super().__init__(inner)
        self._firewall = firewall

    def send(self, packets: Sequence[base.Packet]) -> None:
        if self._firewall.rule != "out":
            super().send(packets)
        else:
            self._firewall.dropped += 1

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        come = super().recv(timeout)
        if self._firewall.rule != "in":
            return come
        self._firewall.dropped += len(come) > 0
        return []


@contextmanager
def joined(
    running: Aggregator, monkeypatch: pytest.MonkeyPatch, hosts: Sequence[str], open_link: Callable[[Descriptor], Transport]
) -> Iterator[list[Communicator]]:
    """A rank on each of these hosts; those with the same name share memory, and with "" a rank is alone."""
    own = threading.local()
    for module in ("controller_client", "enrollment"):
        monkeypatch.setattr(f"netsum.{module}.host_identity", lambda: own.host)

    def join(rank: int) -> Communicator:
        own.host = hosts[rank]
        line = running.join_url.format()
        return library.join(rank=rank, size=len(hosts), controller=line, timeout=PATIENCE, transport=open_link)

    with ExitStack() as stack:
        communicators = returned([partial(join, rank) for rank in range(len(hosts))])
        for comm in communicators:
            stack.callback(comm.close)
        yield communicators


@pytest.mark.parametrize("rule", ["out", "in"])
@pytest.mark.parametrize(
    ("hosts", "behind"),
    [(APART, (2,)), (APART, (0, 1, 2)), (PAIRS, (2,)), (PAIRS, (0, 2))],
    ids=["one host", "all hosts", "a host of two ranks", "all hosts of two ranks"],
)
def test_a_training_goes_on_by_a_host_algorithm(
    running: Aggregator,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    hosts: Sequence[str],
    behind: Sequence[int],
    rule: str,
) -> None:
    firewall, controller = Firewall(behind), running.controller
    address = controller.topology.switches["aggregator"].endpoint
    with joined(running, monkeypatch, hosts, firewall.open) as communicators, Training(communicators) as training:
        training.on(5)
        assert all(comm.descriptor.by_switch for comm in communicators)
        assert [comm.descriptor.shares_source for comm in communicators] == [bool(host) for host in hosts]
        firewall.rule = rule
        with closing(PathMonitor(controller.context, PERIOD, blocked_after=0.0)):
            until(lambda: not any(comm.descriptor.by_switch for comm in communicators), training)
        assert firewall.dropped > 0
        training.finish(5)
        assert [comm.stats.resumes for comm in communicators] == [1] * len(hosts)
        ranks = [f"rank {rank} ({controller.job('default').members[rank]})" for rank in behind]
        ways = [f"from {rank} to {address}" if rule == "out" else f"from {address} to {rank}" for rank in ranks]
        (moved,) = [record for record in caplog.records if "its members combine" in record.getMessage()]
        assert moved.levelno == logging.WARNING
        assert any(f"job default: UDP {way} is blocked: " in moved.getMessage() for way in ways), moved.getMessage()
        assert not controller.job("default").by_switch, "it does not go back while it runs"
    firewall.rule = ""
    with joined(running, monkeypatch, hosts, firewall.open) as communicators:
        assert all(comm.descriptor.by_switch for comm in communicators), "the job is made anew"
        assert set(results(on_all(communicators, lambda comm: int(comm.allreduce(np.ones(1, int))[0])))) == {len(hosts)}


@pytest.mark.parametrize("hosts", [APART, PAIRS], ids=["one rank a host", "two"])
def test_losses_and_a_late_rank_are_waited_for(
    running: Aggregator, monkeypatch: pytest.MonkeyPatch, hosts: Sequence[str]
) -> None:
    """The others repeat their block again and again, and get no answer: the switch has no result."""
    nap = Nap(1, 10)

    def lossy(descriptor: Descriptor) -> Transport:
        link, rank = open_transport(descriptor), descriptor.rank
        return ImpairedTransport(link, Impairment(drop=0.05), rank) if rank == descriptor.leader else link

    def reports() -> list[int]:
        return [report.sent for report in running.controller.job("default").reports.values()]

    with (
        closing(PathMonitor(running.controller.context, PERIOD, blocked_after=0.0)),
        joined(running, monkeypatch, hosts, lossy) as communicators,
        Training(communicators, pause=nap) as training,
    ):
        nap.asleep.wait(PATIENCE)
        until(lambda: max(reports(), default=0) > 20 * MANY, "one that waits has sent its block very often")
        nap.wake.set()
        training.finish(20)
        assert all(comm.descriptor.by_switch for comm in communicators)
        assert [comm.stats.resumes for comm in communicators] == [0] * len(hosts)


def test_an_algorithm_that_was_asked_for_stays_in_the_next_run(running: Aggregator, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(running, monkeypatch, APART, open_transport) as communicators, Training(communicators) as training:
        training.on(5)
        running.controller.move("default", "ring")
        training.finish(5)
    with joined(running, monkeypatch, APART, open_transport) as communicators:
        assert {comm.descriptor.algorithm for comm in communicators} == {"ring"}
    running.controller.move("default", "auto")
    with joined(running, monkeypatch, APART, open_transport) as communicators:
        assert all(comm.descriptor.by_switch for comm in communicators)
