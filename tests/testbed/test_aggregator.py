# SPDX-License-Identifier: MIT
"""`netsum aggregator`: hosts come by its line, jobs are made by joining, and a restart in the middle of a call changes no sum."""

from __future__ import annotations

import os
import re
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import netsum as library
import numpy as np
import pytest
from netsum import Communicator, JoinError, NotReadyError, UnauthorizedError
from netsum.collectives.selected_sum import READY
from netsum.collectives.way_selection import TRIES
from netsum.companion import Companion
from netsum.join_url import JoinUrl
from netsum_controller.cli.job import in_words
from netsum_controller.errors import BusyError, RejectedError
from netsum_controller.http.enrollment import Enrollment
from netsum_testbed.aggregator import Aggregator
from netsum_testbed.aggregator_jobs import FORGOTTEN, Jobs
from netsum_testbed.aggregator_place import Origin, Place, own_rate
from netsum_testbed.free_ports import free_port

from tests.full.calls import on_all, results
from tests.full.trouble import Training
from tests.testbed.conftest import Refused, Start
from tests.threads import PATIENCE, returned, until

LARGE = 1 << 19
APART = [Origin("a"), Origin("b"), Origin("c")]
CLIENTS = ("netsum.controller_client.host_identity", "netsum.enrollment.host_identity")


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks share no memory, so that the switch makes the sums although all are in this process."""
    for name in CLIENTS:
        monkeypatch.setattr(name, lambda: "")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "state", "127.0.0.1", "127.0.0.1", 9000, free_port(), free_port())


@pytest.fixture
def running(place: Place) -> Iterator[Aggregator]:
    with Aggregator(place) as aggregator:
        yield aggregator


@contextmanager
def joined(line: JoinUrl, size: int) -> Iterator[list[Communicator]]:
    """All ranks of a job, by an aggregator's line."""

    def join(rank: int) -> Communicator:
        return library.join(rank=rank, size=size, controller=line.format(), timeout=PATIENCE)

    with ExitStack() as stack:
        communicators = returned([partial(join, rank) for rank in range(size)])
        for comm in communicators:
            stack.callback(comm.close)
        yield communicators


def total(comm: Communicator) -> Any:
    return comm.allreduce(np.arange(5000) * (comm.rank + 1), timeout=PATIENCE)


def check(communicators: list[Communicator]) -> None:
    size = len(communicators)
    for result in results(on_all(communicators, total)):
        assert (result == np.arange(5000) * (size * (size + 1) // 2)).all()


def test_jobs_are_made_by_joining(running: Aggregator) -> None:
    line = running.join_url
    other = replace(line, job="vision")
    with joined(line, 3) as three, joined(other, 2) as two:
        for communicators in (three, two, three):
            check(communicators)
        assert [comm.descriptor.job for comm in (*three, *two)] == ["default"] * 3 + ["vision"] * 2
        assert all(comm.descriptor.by_switch and comm.descriptor.key for comm in (*three, *two))
    with joined(line, 3) as again:
        check(again)
    with joined(line, 2) as fewer:  # all have left: the job may have another size
        check(fewer)


def test_a_job_of_another_size_waits_until_all_have_left(running: Aggregator) -> None:
    line = running.join_url
    with joined(line, 2), pytest.raises(NotReadyError, match="'default' has 2 ranks, of which 0, 1 are in it, and not 3"):
        library.join(rank=0, size=3, controller=line.format(), timeout=0.5)


@pytest.mark.full
def test_many_ranks(running: Aggregator) -> None:
    with joined(running.join_url, 24) as communicators:
        check(communicators)


def test_a_restart_in_the_middle_of_a_training(place: Place) -> None:
    """It ends and another takes its place: the line is the same, and no sum is wrong."""
    with Aggregator(place) as first, joined(first.join_url, 3) as communicators, Training(communicators) as training:
        training.on(5)
        first.__exit__(None, None, None)
        with Aggregator(place) as second:
            assert second.join_url == first.join_url
            training.finish(5)
            assert all(comm.stats.resumes > 0 for comm in communicators)
            for comm in communicators:  # while there is a controller to tell
                comm.close()


def test_what_it_keeps_is_the_users_alone(running: Aggregator, place: Place) -> None:
    assert running.controller.url is not None
    for name in ("token", "self-signed.pem", "state.db"):
        assert stat.S_IMODE((place.folder / name).stat().st_mode) == 0o600


def test_a_wrong_token_or_certificate(running: Aggregator) -> None:
    line = running.join_url
    with pytest.raises(UnauthorizedError, match="wrong token"):
        library.join(rank=0, size=2, controller=replace(line, token="guessed").format(), timeout=5)
    other = replace(line, digest=f"sha256:{'0' * 64}")
    with pytest.raises(JoinError, match="has the certificate sha256:"):
        library.join(rank=0, size=2, controller=other.format(), timeout=5)


def test_large_calls_go_by_the_way_that_was_fastest(place: Place) -> None:
    """By a ring of the hosts, the aggregator or both, at the same bits: while the ways are tried, and then."""
    rng = np.random.default_rng(1)
    mine = [rng.normal(size=LARGE).astype(np.float32) for _ in range(3)]

    def sums(comm: Communicator) -> bytes:
        found = comm.allreduce(mine[comm.rank], timeout=PATIENCE)
        return bytes(found.tobytes())

    with Aggregator(place) as alone, joined(alone.join_url, 3) as communicators:
        assert {comm.descriptor.advice for comm in communicators} == {()}
        (expected,) = {*results(on_all(communicators, sums))}
    rated = replace(place, host_rate=125e6, aggregator_rate=125e6)
    with Aggregator(rated) as running, joined(running.join_url, 3) as communicators:
        assert communicators[0].descriptor.advice == rated.advice(APART) != ()
        results(on_all(communicators, sums))
        for comm in communicators:
            assert comm._companion is not None
            until(partial(_is_ready, comm._companion), "the ring")
        for _ in range(3 * TRIES + 2):
            assert {*results(on_all(communicators, sums))} == {expected}
        kinds = [comm._companion.selection.of(4 * LARGE, divisible=True) for comm in communicators if comm._companion]
        assert all(kind is not None and kind.settled for kind in kinds)
        assert len({kind.settled for kind in kinds if kind is not None}) == 1
        check(communicators)


def test_a_restart_and_a_rank_that_comes_back_while_hosts_sum_large_calls(place: Place) -> None:
    """No sum is wrong; the ranks have a ring again only where all of them agree on it."""
    rated = replace(place, host_rate=125e6, aggregator_rate=125e6)
    with Aggregator(rated) as first, joined(first.join_url, 3) as communicators, Training(communicators, size=LARGE) as training:
        training.on(3 * TRIES + 4)
        first.__exit__(None, None, None)
        with Aggregator(rated):
            training.finish(5)
            communicators[2].close()

            def come_back() -> None:
                communicators[2] = library.join(rank=2, size=3, controller=first.join_url.format(), timeout=PATIENCE)
                communicators[2].resync(timeout=PATIENCE)

            returned([come_back, *(partial(comm.resync, timeout=PATIENCE) for comm in communicators[:2])])
            for _ in range(3):
                check(communicators)
                sums = results(on_all(communicators, lambda comm: comm.allreduce(np.full(LARGE, comm.rank), timeout=PATIENCE)))
                assert all((each == 3).all() for each in sums)
            for comm in communicators:  # while there is a controller to tell
                comm.close()


def _is_ready(companion: Companion) -> bool:
    return companion.state == READY


def test_rates_that_change_make_jobs_anew(place: Place) -> None:
    slow, fast = replace(place, host_rate=125e6, aggregator_rate=125e6), replace(place, host_rate=125e6, aggregator_rate=1e12)
    for each in (slow, fast):
        with Aggregator(each) as running, joined(running.join_url, 3) as communicators:
            assert {comm.descriptor.advice for comm in communicators} == {each.advice(APART)}
            check(communicators)
    assert slow.advice(APART) != fast.advice(APART)
    assert slow.advice([Origin("a")] * 3) == ()  # in its memory


def test_rates_that_hosts_report(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slowest counts. If one is not known, the aggregator sums all calls."""
    own = threading.local()
    monkeypatch.setattr("netsum.enrollment.speed_of", lambda _: own.speed)
    rated = replace(place, aggregator_rate=125e6, rate_source="eth7")
    cases = (10000, "1 Gbit/s (the least that their interfaces say)"), (None, "not known (the interface of rank 2 ")

    def join(line: JoinUrl, rank: int, speed: int | None) -> Communicator:
        own.speed = speed
        return library.join(rank=rank, size=3, controller=line.format(), timeout=PATIENCE)

    for last, hosts in cases:
        with Aggregator(replace(rated, folder=place.folder / str(last))) as running, ExitStack() as stack:
            line = running.join_url
            communicators = returned([partial(join, line, rank, speed) for rank, speed in enumerate((1000, 25000, last))])
            for comm in communicators:
                stack.callback(comm.close)
            known = last is not None
            expected = replace(rated, host_rate=125e6).advice(APART) if known else ()
            assert {comm.descriptor.advice for comm in communicators} == {expected}
            assert bool(expected) == known
            job = running.controller.job("default")
            assert job.rates.startswith(f"aggregator 1 Gbit/s (eth7), hosts {hosts}")
            assert job.rates.endswith("; all calls go by the aggregator") != known
            assert f"rates      {job.rates}" in in_words(job)
            check(communicators)


def test_which_cables_are_the_aggregators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address gets the same number of bytes."""
    speeds = {"eth1": 10000, "eth2": 10000, "eth3": 25000}
    monkeypatch.setattr("netsum_testbed.aggregator_place.interface_of", lambda _, address: address.partition("/")[0])
    monkeypatch.setattr("netsum_testbed.aggregator_place.speed_of_interface", lambda _, name: speeds.get(name))
    assert own_rate(["eth3"], None) == (25e9 / 8, "eth3")
    assert own_rate(["eth1", "eth2"], None) == (20e9 / 8, "eth1, eth2")
    assert own_rate(["eth1", "eth3"], None) == (20e9 / 8, "eth1, eth3")
    assert own_rate(["eth1/a", "eth1/b", "eth2"], None) == (15e9 / 8, "eth1, eth2")
    assert own_rate(["eth1", "veth"], None) == (None, "veth")
    assert own_rate(["eth1"], "eth3") == (25e9 / 8, "eth3")


def test_one_rate_alone(place: Place, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netsum_testbed.aggregator.end_on_signals", lambda: None)
    code, lines = refused("aggregator", "--host", place.host, "--host-rate", "1G", "--state", str(place.folder))
    assert code == 2
    assert "--host-rate without --aggregator-rate: which way is faster depends on both, and lo is virtual" in "".join(lines)


def test_a_link_that_cannot_carry_the_packets(running: Aggregator, place: Place, tmp_path: Path) -> None:
    jobs = Jobs(running.controller, "a token", replace(place, folder=tmp_path))
    with running.controller.context.store.lock, pytest.raises(RejectedError) as refused:
        jobs.enroll(Enrollment("narrow", 1, 0, 1500, "10.1.0.7"))
    assert re.fullmatch(
        r"job 'narrow' sends packets of 4164 bytes, and the interface 10\.1\.0\.7 of rank 0 carries 1500: start the aggregator "
        r"with --mtu 1500, or raise the MTU there and on the way",
        str(refused.value),
    )


HERE, THERE = "0" * 32, "1" * 32


def test_ranks_of_one_host_share_memory(running: Aggregator, place: Place, tmp_path: Path) -> None:
    """A job is there when its last rank has enrolled. Where ranks come from other hosts than before, it is made anew."""
    now = 0.0
    jobs = Jobs(running.controller, "a token", replace(place, folder=tmp_path), lambda: now)

    def enroll(rank: int, host: str, jobs: Jobs = jobs) -> list[str]:
        with running.controller.context.store.lock:
            jobs.enroll(Enrollment("mixed", 4, rank, 9000, "10.1.0.7", host))
        job = running.controller.job("mixed")
        assert job.share_memory
        return list(job.members)

    def waits(rank: int, host: str, missing: str) -> None:
        with pytest.raises(BusyError, match=f"{missing} must still enroll"):
            enroll(rank, host)

    waits(0, HERE, "ranks 1, 2, 3")
    waits(1, THERE, "ranks 2, 3")
    waits(2, HERE, "rank 3")
    assert enroll(3, "") == ["host0", "host1", "host0", "host2"]
    again = Jobs(running.controller, "a token", replace(place, folder=tmp_path))  # after a restart
    assert enroll(1, THERE, again) == ["host0", "host1", "host0", "host2"]
    waits(1, HERE, "ranks 0, 2, 3")
    now = FORGOTTEN  # rank 1 has given up
    waits(3, HERE, "ranks 0, 1, 2")
    waits(1, HERE, "ranks 0, 2")


def test_ranks_that_come_from_other_hosts_than_before(running: Aggregator, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks are started again while the controller believes that those of before are there, one of them on another host."""
    hosts = threading.local()
    for name in CLIENTS:
        monkeypatch.setattr(name, lambda: hosts.own)

    def join(rank: int, host: str) -> Communicator:
        hosts.own = host
        return library.join(rank=rank, size=3, controller=running.join_url.format(), timeout=PATIENCE)

    with ExitStack() as stack:
        for moved, local in ((HERE, [(0, 1, 2)] * 3), (THERE, [(0, 2), (), (0, 2)])):
            calls = [partial(join, rank, moved if rank == 1 else HERE) for rank in range(3)]
            communicators = returned(calls)
            for comm in communicators:
                stack.callback(comm.close)
            assert [comm.descriptor.local_ranks for comm in communicators] == local
            check(communicators)


def test_blocks_fit_the_mtu(place: Place) -> None:
    with Aggregator(replace(place, mtu=1500)) as running, joined(running.join_url, 2) as communicators:
        assert {comm.descriptor.block_bytes for comm in communicators} == {1280}
        check(communicators)


def arguments(folder: Path, *more: str) -> tuple[str, ...]:
    return ("aggregator", "--host", "127.0.0.1", "--port", "0", "--state", str(folder / "state"), *more)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command(netsum: Start, tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    command = netsum(*arguments(tmp_path, "--udp-port", str(free_port()), "--mtu", "9000"))
    command.wait_for("export NETSUM_JOIN=")
    (found,) = [line for line in command.lines if line.startswith("export ")]
    cables = "cables: aggregator not known (lo is virtual, or does not say), hosts as their interfaces say when they join"
    assert any(line.startswith(cables) for line in command.lines)
    monkeypatch.setenv("NETSUM_JOIN", found.removeprefix("export NETSUM_JOIN=").strip("'"))
    monkeypatch.setenv("WORLD_SIZE", "2")

    def join(rank: int) -> Communicator:
        return library.join(rank=rank, timeout=PATIENCE)

    first, second = returned([partial(join, 0), partial(join, 1)])
    check([first, second])
    first.close()
    second.close()
    os.kill(command.process.pid, number)
    command.ends()


def test_a_switch_that_ends_ends_it(netsum: Start, tmp_path: Path) -> None:
    command = netsum(*arguments(tmp_path, "--udp-port", str(free_port())))
    command.wait_for("export NETSUM_JOIN=")
    (switch,) = [pid for pid, words in command.marked().items() if "netsum_switch.cli" in words and "setpriv" not in words]
    os.kill(switch, signal.SIGKILL)
    command.ends(1)
    assert "the switch has ended (exit code -9)" in command.lines[-1]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--host", "203.0.113.7"], "--host 203.0.113.7: no interface of this host has the address 203.0.113.7"),
        (["--host", "nowhere.invalid"], "--host nowhere.invalid: "),
    ],
)
def test_addresses_that_are_not_its_own(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], complaint: str
) -> None:
    monkeypatch.setattr("netsum_testbed.aggregator.end_on_signals", lambda: None)
    code, lines = refused("aggregator", *words, "--state", str(tmp_path))
    assert code == 1
    (line,) = lines
    assert complaint in line


@pytest.mark.usefixtures("running")
def test_ports_that_are_taken(place: Place, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netsum_testbed.aggregator.end_on_signals", lambda: None)
    other = str(place.folder.parent / "other")
    code, lines = refused("aggregator", "--host", place.host, "--udp-port", str(place.udp), "--state", other)
    assert code == 1
    assert f"cannot bind UDP 127.0.0.1:{place.udp}: Address already in use" in "".join(lines)
    words = ("--host", place.host, "--port", str(place.https), "--udp-port", str(free_port()), "--state", other)
    code, lines = refused("aggregator", *words)
    assert code == 2
    assert f"cannot serve HTTP on 127.0.0.1:{place.https}" in "".join(lines)
