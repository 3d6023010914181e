# SPDX-License-Identifier: MIT
"""Ranks that leave: the others have what they need from them, and a call that waits for one of them ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum import Communicator, RankLeftError, exit_hooks
from netsum.core import recovery
from netsum.descriptor import CHAIN, HOST_ALGORITHMS, Descriptor
from netsum.exit_hooks import close_at_exit
from netsum.transports import Transport

from tests.hosts.calls import closing_all, on_each
from tests.hosts.network import MemoryNetwork, Network
from tests.hosts.peers import ChainNetwork, PeerNetwork
from tests.threads import PATIENCE, until

ROOT = Path(__file__).parents[2]


def total(comm: Communicator) -> Any:
    return float(comm.allreduce(np.ones(3000), timeout=PATIENCE)[0])


@pytest.mark.parametrize("algorithm", [*HOST_ALGORITHMS, CHAIN])
def test_members_know_at_once(algorithm: str) -> None:
    network: Network = (ChainNetwork if algorithm == CHAIN else PeerNetwork)(4, algorithm=algorithm)
    with closing_all(network.communicators()) as communicators:
        assert on_each(communicators, total) == [4.0] * 4
        communicators[1].close()
        for error in on_each([communicators[rank] for rank in (0, 2, 3)], total):
            assert isinstance(error, RankLeftError)
            assert error.missing == (1,)
            assert "waiting for rank 1, which has left the job" in str(error)
            assert "0 of 24 blocks done" in str(error)


def test_a_member_that_says_goodbye_may_join_again() -> None:
    """Only the controller knows that it has left for good."""
    network = PeerNetwork(3, algorithm="ring")
    known = Membership(network, left=(), missing=())
    with members(network, known) as communicators:
        communicators[1].close()
        found: list[Any] = []
        first = threading.Thread(target=lambda: found.extend(on_each([communicators[rank] for rank in (0, 2)], total)))
        first.start()
        until(lambda: known.queried >= 4)
        assert not found
        known.left = (1,)
        first.join()
        assert [type(error) for error in found] == [RankLeftError] * 2


class Membership:
    """A controller that says who has ``left``, and that block records lack the ranks ``missing``."""

    def __init__(self, network: Network, left: tuple[int, ...], missing: tuple[int, ...]) -> None:
        self._descriptor = network.descriptors[0]
        self.left, self._missing = left, missing
        self.explained = self.queried = 0

    def rejoin(self, _epoch: int, _report: object) -> Descriptor:
        self.queried += 1
        return replace(self._descriptor, left=self.left)

    def open_transport(self, _descriptor: Descriptor) -> Transport:
        raise AssertionError("no epoch resumes this one")

    def explain(self, _block: int) -> tuple[str, tuple[int, ...]]:
        self.explained += 1
        return "waiting for some", self._missing


def members(network: Network, known: Any) -> Any:
    return closing_all(network.communicators(explain=known.explain, membership=known))


def test_with_a_switch_the_controller_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PATIENCE", 0.1)
    network = MemoryNetwork(3)
    known = Membership(network, left=(1,), missing=(1, 2))
    with members(network, known) as communicators:
        for error in on_each([communicators[rank] for rank in (0, 2)], total):
            assert isinstance(error, RankLeftError)
            assert error.missing == (1,)


def test_a_rank_that_has_left_may_have_done_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block waits for a rank that is only late, so nothing is raised."""
    monkeypatch.setattr(recovery, "PATIENCE", 0.05)
    network = MemoryNetwork(3)
    known = Membership(network, left=(1,), missing=(2,))
    with members(network, known) as communicators:
        found: list[Any] = []
        first = threading.Thread(target=lambda: found.extend(on_each(communicators[:2], total)))
        first.start()
        until(lambda: known.explained >= 2)
        assert total(communicators[2]) == 3.0
        first.join()
        assert found == [3.0, 3.0]


PROGRAM = """
import multiprocessing, os, sys
from netsum import Communicator
from tests.hosts.peers import PeerNetwork

def join(way):
    network = PeerNetwork(1, algorithm="ring")
    comm = Communicator(network.descriptors[0], network.transports[0], leave=lambda: print("left", flush=True))
    assert comm.size == 1
    if way == "raises":
        raise RuntimeError("a bug")
    if way == "closes":
        comm.close()
    if way == "forks" and not os.fork():
        sys.exit(0)
    if way == "forks":
        os.wait()

way = sys.argv[1]
if way == "process":
    child = multiprocessing.get_context("fork").Process(target=join, args=(way,))
    child.start()
    child.join()
else:
    join(way)
print("the end", flush=True)
"""


@pytest.mark.parametrize(
    ("way", "code", "printed"),
    [
        ("returns", 0, ["the end", "left"]),
        ("closes", 0, ["left", "the end"]),
        ("forks", 0, ["the end", "left"]),
        ("raises", 1, ["left"]),
        ("process", 0, ["left", "the end"]),
    ],
)
def test_a_program_that_ends_leaves(way: str, code: int, printed: list[str]) -> None:
    """Once, and not when a forked child ends."""
    command = [sys.executable, "-c", PROGRAM, way]
    ran = subprocess.run(command, check=False, cwd=ROOT, text=True, capture_output=True, timeout=PATIENCE)
    assert (ran.returncode, ran.stdout.split("\n")[:-1]) == (code, printed), ran.stderr


def test_what_was_opened_last_is_closed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Opened:
        def __init__(self, name: str) -> None:
            self.name = name
            close_at_exit(self)

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "second":
                raise OSError("it cannot be closed")

    monkeypatch.setattr("netsum.exit_hooks._open", type(exit_hooks._open)())
    kept = [Opened(name) for name in ("first", "second", "third")]
    Opened("gone")
    exit_hooks._close_all()
    exit_hooks._close_all()
    assert closed == [each.name for each in reversed(kept)]
