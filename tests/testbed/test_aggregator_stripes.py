# SPDX-License-Identifier: MIT
"""`netsum aggregator --stripes N`: several switch processes share the blocks of every job."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import netsum as library
import numpy as np
import pytest
from netsum import Communicator
from netsum.join_url import JoinUrl
from netsum_testbed.aggregator import MOST_STRIPES, Aggregator
from netsum_testbed.aggregator_place import NAME, Place
from netsum_testbed.errors import TestbedError
from netsum_testbed.free_ports import free_port

from tests.full.calls import on_all, results
from tests.full.trouble import Training
from tests.testbed.conftest import Refused, Start
from tests.testbed.test_aggregator import CLIENTS, HERE, THERE, apart, arguments, check, joined
from tests.threads import PATIENCE, meanwhile, returned, until

__all__ = ["apart"]  # the fixture

STRIPES = 3
LARGE = 400_000


@pytest.fixture
def place(tmp_path: Path) -> Place:
    first = free_port(STRIPES)
    return Place(tmp_path / "state", "127.0.0.1", "127.0.0.1", 9000, free_port(), first, stripes=STRIPES)


@pytest.fixture
def running(place: Place) -> Iterator[Aggregator]:
    with Aggregator(place) as aggregator:
        yield aggregator


def completed(running: Aggregator) -> dict[str, int]:
    """The blocks whose results each switch has made."""
    return {name: counts["completed"] for name, counts in running.controller.stats("default").by_switch.items()}


def shares(comm: Communicator) -> dict[str, int]:
    """The blocks that a communicator has submitted, by their roots."""
    first, roots = comm.descriptor.first_block_id, comm.descriptor.roots
    found = Counter(roots[(first + ahead) % len(roots)] for ahead in range(comm.stats.blocks))
    return {f"{NAME}-{root}" if root else NAME: found[root] for root in range(STRIPES)}


def test_each_root_makes_its_share(running: Aggregator) -> None:
    """In calls of one block and of many, of every kind."""
    with joined(running.join_url, 3) as communicators:
        (addresses,) = {comm.descriptor.endpoints for comm in communicators}
        assert len({*addresses}) == STRIPES
        for size in (1, 3, LARGE, 5000):
            mine = np.arange(size, dtype=np.float32) % 251
            for sums, most, copied, joint in results(on_all(communicators, partial(_calls, mine))):
                np.testing.assert_allclose(sums, mine * 6, rtol=1e-5)
                np.testing.assert_array_equal(most, mine * 3)
                np.testing.assert_array_equal(copied, mine + 1)
                np.testing.assert_array_equal(joint.reshape(3, -1), [mine + rank for rank in range(3)])
            check(communicators)
        assert completed(running) == shares(communicators[0])
        assert min(shares(communicators[0]).values()) > 500
        assert running.controller.diagnose("default").blocks == ()
        assert len({bits.tobytes() for bits in results(on_all(communicators, _noise))}) == 1


def test_stripes_take_turns_at_several_addresses(place: Place) -> None:
    """Of one machine with several cables: a host sends each block to its switch's address."""
    with Aggregator(replace(place, others=("127.0.0.2",))) as running, joined(running.join_url, 3) as communicators:
        addresses = [f"127.0.0.{1 + number % 2}:{place.udp + number}" for number in range(STRIPES)]
        assert [switch.endpoint for switch in running.controller.topology.switches.values()] == addresses
        assert set(communicators[0].descriptor.endpoints) == set(addresses)
        for sums in results(on_all(communicators, lambda comm: comm.allreduce(np.full(LARGE, comm.rank), timeout=PATIENCE))):
            assert (sums == 3).all()
        assert completed(running) == shares(communicators[0])


def test_groups_are_striped_too(running: Aggregator) -> None:
    with joined(running.join_url, 4) as communicators, ExitStack() as stack:
        groups = results(on_all(communicators, lambda comm: comm.split(comm.rank % 2)))
        for group in groups:
            stack.callback(group.close)
        assert {len(group.descriptor.endpoints) for group in groups} == {STRIPES}
        for sums in results(on_all(groups, lambda group: group.allreduce(np.full(LARGE, group.rank), timeout=PATIENCE))):
            assert (sums == 1).all()


def _calls(x: Any, comm: Communicator) -> tuple[Any, ...]:
    scaled, moved = x * (comm.rank + 1), x + comm.rank
    sums, most = comm.allreduce(scaled, timeout=PATIENCE), comm.allreduce(scaled, op="max", timeout=PATIENCE)
    return sums, most, comm.broadcast(moved, root=1, timeout=PATIENCE), comm.all_gather(moved, timeout=PATIENCE)


def _noise(comm: Communicator) -> Any:
    return comm.allreduce(np.random.default_rng(comm.rank).normal(size=LARGE).astype(np.float32), timeout=PATIENCE)


def test_a_restart_in_the_middle_of_a_training(place: Place) -> None:
    """Of all of it; another with other ports takes its place."""
    with Aggregator(place) as first, joined(first.join_url, 3) as communicators, Training(communicators, size=20_000) as training:
        training.on(5)
        first.__exit__(None, None, None)
        with Aggregator(replace(place, udp=free_port(STRIPES))) as second:
            assert second.join_url == first.join_url
            training.finish(5)
            assert all(comm.stats.resumes > 0 for comm in communicators)
            for comm in communicators:  # while there is a controller to tell
                comm.close()


@pytest.mark.parametrize("name", [NAME, f"{NAME}-2"])
def test_one_switch_that_restarts(running: Aggregator, name: str) -> None:
    """The controller restores it, and the job with it."""
    with joined(running.join_url, 3) as communicators, Training(communicators, size=20_000) as training:
        training.on(5)
        running.switches[name].kill()
        running.switches[name].start()
        until(lambda: all(comm.stats.resumes for comm in communicators), training)
        training.finish(5)
        assert all(completed(running).values())


def test_a_rank_that_leaves_and_comes_back(running: Aggregator) -> None:
    with joined(running.join_url, 3) as communicators, ExitStack() as stack:
        check(communicators)
        communicators[2].close()

        def come_back() -> None:
            line = running.join_url.format()
            communicators[2] = library.join(rank=2, size=3, controller=line, timeout=PATIENCE)
            stack.callback(communicators[2].close)
            communicators[2].resync(timeout=PATIENCE)

        returned([come_back, *(partial(comm.resync, timeout=PATIENCE) for comm in communicators[:2])])
        check(communicators)


def test_a_rank_that_is_missing_and_evicted(running: Aggregator) -> None:
    """The block that waits for it is finished without it, and then no root waits for it."""

    def total(comm: Communicator) -> Any:
        return comm.allreduce(np.full(LARGE, comm.rank + 1), timeout=PATIENCE)

    with joined(running.join_url, 3) as communicators:
        check(communicators)
        others, sums = communicators[:2], list[Any]()
        with meanwhile(lambda: sums.extend(results(on_all(others, total)))):
            until(lambda: running.controller.diagnose("default").waiting_for)
            found = running.controller.diagnose("default")
            assert [late.rank for late in found.waiting_for] == [2]
            shape = running.controller.job("default").epoch.shape
            assert all({*block.switches} == {shape.root_of(block.block)} for block in found.blocks)
            running.controller.evict("default", 2)
        assert len(sums) == 2
        assert all((one == 3).all() for one in sums)
        assert [comm.stats.resumes for comm in others] == [0, 0]


@contextmanager
def on_hosts(line: JoinUrl, hosts: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Communicator]]:
    """A rank on each of these hosts; those on one share memory."""
    own = threading.local()
    for name in CLIENTS:
        monkeypatch.setattr(name, lambda: own.host)

    def join(rank: int) -> Communicator:
        own.host = hosts[rank]
        return library.join(rank=rank, size=len(hosts), controller=line.format(), timeout=PATIENCE)

    with ExitStack() as stack:
        communicators = returned([partial(join, rank) for rank in range(len(hosts))])
        for comm in communicators:
            stack.callback(comm.close)
        yield communicators


def test_ranks_that_share_memory(running: Aggregator, monkeypatch: pytest.MonkeyPatch) -> None:
    with on_hosts(running.join_url, [HERE, HERE, THERE, THERE], monkeypatch) as communicators:
        for _ in range(3):
            check(communicators)
        assert [comm.descriptor.local_ranks for comm in communicators] == [(0, 1), (0, 1), (2, 3), (2, 3)]
        assert completed(running) == shares(communicators[0])
        assert all(completed(running).values())


def test_a_job_on_one_host_needs_no_switch(running: Aggregator, monkeypatch: pytest.MonkeyPatch) -> None:
    with on_hosts(running.join_url, [HERE] * 3, monkeypatch) as communicators:
        check(communicators)
        assert not any(completed(running).values())


def test_another_number_of_stripes(place: Place) -> None:
    """More take part at once. Fewer do when the ranks have left; until then, what is told is how many there must be."""
    with Aggregator(replace(place, stripes=1)) as one, joined(one.join_url, 2) as communicators:
        check(communicators)
        assert communicators[0].descriptor.endpoints == ()
        with Training(communicators) as training:
            training.on(5)
            one.__exit__(None, None, None)
            with Aggregator(place) as three:
                training.finish(5)
                assert [len(comm.descriptor.endpoints) for comm in communicators] == [STRIPES] * 2
                three.__exit__(None, None, None)
                fewer = Aggregator(replace(place, stripes=2))
                with pytest.raises(TestbedError, match=f"ranks 0, 1 are in it: start .* --stripes {STRIPES}"):
                    fewer.__enter__()
                with Aggregator(place):
                    check(communicators)
                    for comm in communicators:
                        comm.close()
    with Aggregator(replace(place, stripes=2)) as two, joined(two.join_url, 2) as communicators:
        check(communicators)
        assert {*completed(two)} == {NAME, f"{NAME}-1"}


def test_the_command(netsum: Start, tmp_path: Path) -> None:
    first = free_port(STRIPES)
    command = netsum(*arguments(tmp_path, "--udp-port", str(first), "--stripes", str(STRIPES)))
    command.wait_for("export NETSUM_JOIN=")
    assert f"gradients to UDP 127.0.0.1:{first} to {first + STRIPES - 1}, MTU" in command.output
    switches = [pid for pid, words in command.marked().items() if "netsum_switch.cli" in words and "setpriv" not in words]
    assert len(switches) == STRIPES
    os.kill(switches[-1], signal.SIGKILL)
    command.ends(1)
    assert "the switch has ended (exit code -9)" in command.lines[-1]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--stripes", str(MOST_STRIPES + 1)], f"{MOST_STRIPES + 1} is not in the range 1<=x<={MOST_STRIPES}"),
        (["--host", "127.0.0.2", "--host", "127.0.0.3", "--stripes", "2"], "there are 3 addresses (--host), a switch process"),
        (["--host", "127.0.0.1"], "--host: each address is given once"),
        (["--host", "127.0.0.2", "--advertise", "192.0.2.1"], "--advertise is for one address"),
        (["--stripes", "3", "--udp-port", "65534"], "--stripes 3 needs as many UDP ports from 65534 on, and 65535 is the last"),
    ],
)
def test_stripes_that_cannot_be(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], complaint: str
) -> None:
    monkeypatch.setattr("netsum_testbed.aggregator.end_on_signals", lambda: None)
    code, lines = refused(*arguments(tmp_path, *words))
    assert code == 2
    assert complaint in "".join(lines)


def test_a_port_that_is_taken(running: Aggregator, place: Place, tmp_path: Path) -> None:
    """Which is said of the port; the switches that have begun are ended."""
    other = Aggregator(replace(place, folder=tmp_path / "other", https=free_port(), udp=place.udp - 1, stripes=2))
    with pytest.raises(TestbedError, match=f"cannot bind UDP 127.0.0.1:{place.udp}: Address already in use"):
        other.__enter__()
    assert all(switch.exit_code is not None for switch in other.switches.values())
    assert all(switch.exit_code is None for switch in running.switches.values())
