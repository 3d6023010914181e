# SPDX-License-Identifier: MIT
"""Enrolling by a join line: what is sent, when it is sent again, and what is refused before anything is sent. The aggregator
here is a few canned answers; :mod:`tests.controller.test_enrollment` has a real one."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netsum
import netsum.memory
import pytest
from netsum.errors import (
    JoinError,
    NotReadyError,
    ServerCertificateError,
    UnauthorizedError,
    UnknownRankError,
)
from netsum.intranode.identity import host_identity
from netsum.join_url import JoinUrl
from netsum.settings import RANKS, SIZES, Environment
from netsum.transports import InMemoryTransport, interfaces

from tests.hosts.canned import Controller, canned
from tests.hosts.network import descriptor
from tests.hosts.tls import server_tls
from tests.threads import PATIENCE

OURS = descriptor(1, 3).to_dict()
DIGEST = "sha256:" + "00" * 32
ENROLLED = {"job": "vision-7", "token": "the job's own".replace(" ", "-")}
OTHERS = ("JOB", "RANK", "SIZE", "TOKEN", "CONTROLLER", "DESCRIPTOR", "TIMEOUT", "JOIN", "PEER")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*(f"NETSUM_{other}" for other in OTHERS), *RANKS, *SIZES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def aggregator(tmp_path: Path) -> Iterator[tuple[Controller, JoinUrl]]:
    tls, digest = server_tls(tmp_path)
    with canned(tls) as server:
        yield server, JoinUrl("127.0.0.1", server.server_port, "s/e+c ret".replace(" ", ""), digest)


def join(**options: Any) -> netsum.Communicator:
    return netsum.join(**{"transport": InMemoryTransport(), "timeout": PATIENCE, **options})


def test_the_environment_of_a_launcher_and_one_line_are_enough(
    aggregator: tuple[Controller, JoinUrl], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, line = aggregator
    server.answers = [(200, ENROLLED), (200, OURS), (200, {})]
    for name, value in {"NETSUM_JOIN": line.format(), "RANK": "1", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    with join() as comm:
        assert (comm.rank, comm.size) == (1, 3)
    enrolled, joined, left = server.asked
    assert enrolled[:3] == ("POST", "/v1/jobs", "Bearer s/e+cret")
    assert enrolled[3] == {"job": "default", "size": 3, "rank": 1, "mtu": 65535, "address": "127.0.0.1", "host": host_identity()}
    assert joined[:3] == ("POST", "/v1/jobs/vision-7/join", "Bearer the-job's-own")
    assert left[1:3] == ("/v1/jobs/vision-7/leave", "Bearer the-job's-own")


@pytest.mark.parametrize(
    ("in_line", "variable", "argument", "job"),
    [
        (None, None, None, "default"),
        ("vision", None, None, "vision"),
        (None, "speech", None, "speech"),
        ("vision", "vision", None, "vision"),
        (None, "speech", "text", "text"),
        ("vision", None, "text", "text"),  # as arguments go before the environment
    ],
)
def test_whose_name_the_job_has(
    aggregator: tuple[Controller, JoinUrl],
    monkeypatch: pytest.MonkeyPatch,
    in_line: str | None,
    variable: str | None,
    argument: str | None,
    job: str,
) -> None:
    server, line = aggregator
    server.answers = [(200, ENROLLED), (200, OURS), (200, {})]
    monkeypatch.setenv("NETSUM_JOIN", JoinUrl(line.host, line.port, line.token, line.digest, in_line).format())
    if variable is not None:
        monkeypatch.setenv("NETSUM_JOB", variable)
    join(job=argument, rank=1, size=3).close()
    assert server.asked[0][3]["job"] == job


def test_the_line_may_be_an_argument(aggregator: tuple[Controller, JoinUrl], monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the environment's own controller is not used, nor its token."""
    server, line = aggregator
    server.answers = [(200, ENROLLED), (200, OURS), (200, {})]
    monkeypatch.setenv("NETSUM_CONTROLLER", "http://127.0.0.1:1")
    monkeypatch.setenv("NETSUM_TOKEN", "another")
    join(rank=1, size=3, controller=line.format()).close()
    assert [token for _, _, token, _ in server.asked] == ["Bearer s/e+cret", *["Bearer the-job's-own"] * 2]


def test_an_argument_goes_before_the_line_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSUM_JOIN", JoinUrl("127.0.0.1", 1, "secret", DIGEST).format())
    with canned() as server:
        server.answers = [(200, OURS), (200, {})]
        join(job="test", rank=1, token="t", controller=server.url).close()
        assert [path for _, path, _, _ in server.asked] == ["/v1/jobs/test/join", "/v1/jobs/test/leave"]


@pytest.mark.parametrize("busy", [(409, {"error": "2 ranks must still enroll", "retry_ms": 20}), (503, {"error": "starting"})])
def test_an_aggregator_that_is_not_ready_is_queried_again(aggregator: tuple[Controller, JoinUrl], busy: Any) -> None:
    server, line = aggregator
    server.answers = [busy, busy, (200, ENROLLED), (409, {"error": "not yet", "retry_ms": 20}), (200, OURS), (200, {})]
    join(rank=1, size=3, controller=line.format()).close()
    assert [path.rpartition("/")[2] for _, path, _, _ in server.asked] == ["jobs"] * 3 + ["join"] * 2 + ["leave"]


def test_one_that_stays_so_is_not_ready_at_the_deadline(aggregator: tuple[Controller, JoinUrl]) -> None:
    server, line = aggregator
    server.answers = [(409, {"error": "2 ranks must still enroll", "retry_ms": 2000 * PATIENCE})]
    with pytest.raises(NotReadyError, match="job 'default', rank 1: 2 ranks must still enroll"):
        join(rank=1, size=3, controller=line.format())


@pytest.mark.parametrize(
    ("status", "answer", "kind", "message"),
    [
        (401, {"error": "wrong token"}, UnauthorizedError, "wrong token"),
        (404, {"error": "no enrollments here"}, UnknownRankError, "no enrollments here"),
        (400, {"error": "mtu must be"}, JoinError, "mtu must be"),
        (200, {"job": "vision"}, JoinError, "gave no job and token: is it an aggregator"),
        (200, {"job": "vision", "token": ""}, JoinError, "gave no job and token"),
        (200, {"job": 5, "token": "t"}, JoinError, "gave no job and token"),
        (200, ["vision", "t"], JoinError, "gave no job and token"),
    ],
)
def test_answers_that_are_final(
    aggregator: tuple[Controller, JoinUrl], status: int, answer: Any, kind: type[Exception], message: str
) -> None:
    server, line = aggregator
    server.answers = [(status, answer)]
    with pytest.raises(kind, match=message) as caught:
        join(rank=1, size=3, controller=line.format())
    assert len(server.asked) == 1
    assert line.token not in str(caught.value)


def test_another_certificate_ends_it_before_the_token_is_sent(aggregator: tuple[Controller, JoinUrl]) -> None:
    server, line = aggregator
    other = JoinUrl(line.host, line.port, line.token, DIGEST)
    with pytest.raises(ServerCertificateError, match=line.digest):
        join(rank=1, size=3, controller=other.format())
    assert server.asked == []


def test_a_host_that_cannot_be_found_is_named() -> None:
    line = JoinUrl("no-such-host.invalid", 1, "secret", DIGEST)
    with pytest.raises(NotReadyError, match=r"no-such-host\.invalid has no IPv4 address, or there is no route to it"):
        join(rank=0, size=1, controller=line.format(), timeout=0.1)


LINE = JoinUrl("127.0.0.1", 1, "secret", DIGEST, "vision")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 3}, r"give `rank` \(or NETSUM_RANK\); torchrun, mpirun and srun set both"),
        ({"rank": 0}, r"give `size` \(or NETSUM_SIZE\)"),
        ({}, r"give `rank` \(or NETSUM_RANK\) and `size` \(or NETSUM_SIZE\)"),
        ({"rank": 3, "size": 3}, r"rank is 3 and size is 3: a job of 3 ranks has ranks 0\.\.2"),
        ({"rank": -1, "size": 3}, "rank is -1"),
        ({"rank": 0, "size": 0}, "size is 0"),
        ({"rank": 0, "size": 1, "token": "t"}, "leave `token` out"),
        ({"rank": 0, "size": 1, "job": "speech"}, "the join line is for job 'vision', and `job` is 'speech'"),
        ({"rank": 0, "size": 1, "controller": "netsum://h/?token=secret"}, "controller is no join line: the port is missing"),
    ],
)
def test_what_is_missing_or_contradictory_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(JoinError, match=words) as caught:
        join(**{"controller": LINE.format(), **options})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CONTROLLER": "http://127.0.0.1:1"}, "NETSUM_JOIN and NETSUM_CONTROLLER are set, and each says how to join: unset one"),
        ({"TOKEN": "t", "CONTROLLER": "http://c"}, "NETSUM_JOIN and NETSUM_CONTROLLER and NETSUM_TOKEN are set"),
        ({"DESCRIPTOR": "d.json"}, "NETSUM_JOIN and NETSUM_DESCRIPTOR are set"),
        ({"JOB": "speech"}, "NETSUM_JOIN is for job 'vision', and NETSUM_JOB is 'speech'"),
        ({"JOIN": "http://c"}, "NETSUM_JOIN is no join line: it must begin with netsum://"),
    ],
)
def test_variables_that_contradict_each_other(variables: dict[str, str], words: str) -> None:
    source = {"NETSUM_JOIN": LINE.format(), **{f"NETSUM_{name}": value for name, value in variables.items()}}
    with pytest.raises(JoinError, match=words):
        Environment.read(source)


def test_empty_variables_are_unset() -> None:
    source = {"NETSUM_JOIN": LINE.format(), "NETSUM_CONTROLLER": "", "NETSUM_JOB": "vision"}
    assert Environment.read(source).join == LINE
    assert Environment.read({"NETSUM_JOIN": "", "NETSUM_CONTROLLER": "http://c"}).join is None


def test_memory_finds_its_controller_in_the_line(aggregator: tuple[Controller, JoinUrl], monkeypatch: pytest.MonkeyPatch) -> None:
    server, line = aggregator
    server.answers = [(404, {"error": "there is no region 'r'"})]
    monkeypatch.setenv("NETSUM_JOIN", line.format())
    with pytest.raises(UnknownRankError, match="no region 'r'"):
        netsum.memory.open("r", token="region", timeout=PATIENCE)
    assert server.asked == [("GET", "/v1/memory/regions/r", "Bearer region", None)]


def test_the_interface_of_an_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        assert ("lo", socket.inet_aton("127.0.0.1")) in interfaces.addresses(sock)
        assert interfaces.interface_of(sock, "127.0.0.1") == interfaces.interface_of(sock, "127.3.2.1") == "lo"
        assert interfaces.interface_of(sock, "203.0.113.9") is None
    with pytest.raises(OSError, match=r"no interface of this host has the address 203\.0\.113\.9"):
        interfaces.mtu_of("203.0.113.9")
    assert interfaces.mtu_of("127.0.0.1") == int(Path("/sys/class/net/lo/mtu").read_text())


@pytest.mark.root
def test_the_mtu_of_further_addresses_and_of_aliases() -> None:
    """In a network namespace: the second address of an interface, one with a label, and one of another interface."""
    script = (
        "ip link add one mtu 9000 type veth peer name two mtu 1400; ip link set one up; ip link set two up\n"
        "ip address add 10.9.0.1/24 dev one; ip address add 10.9.0.2/24 dev one; ip address add 10.9.1.1/24 dev one label one:x\n"
        "ip address add 10.9.2.1/24 dev two\n"
        'exec "$0" -c "import socket; from netsum.transports.interfaces import interface_of, mtu_of\n'
        "sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for last in ('0.1', '0.2', '1.1', '2.1'): print(interface_of(sock, '10.9.' + last), mtu_of('10.9.' + last))\"\n"
    )
    shown = subprocess.run(["unshare", "-n", "sh", "-ec", script, sys.executable], capture_output=True, text=True, check=False)
    assert (shown.stdout.split(), shown.stderr) == (["one", "9000"] * 3 + ["two", "1400"], "")
