# SPDX-License-Identifier: MIT
"""Enrollment at a real endpoint: who is answered, what is refused, and hosts that join by nothing but a join line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import netsum
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.errors import JoinError, ServerCertificateError, UnauthorizedError, UnknownRankError
from netsum.join_url import JoinUrl
from netsum.settings import RANKS, SIZES
from netsum_controller import Controller, JobSpec
from netsum_controller.config.topology import parse_topology
from netsum_controller.errors import BusyError, InputError, NoSwitchError
from netsum_controller.http.api import HttpServer
from netsum_controller.http.certificate import self_signed
from netsum_controller.http.enrollment import EnrolledJob, Enrollment
from netsum_controller.http.server import tls_context
from netsum_testbed.fabrics import RootlessFabric

from tests.controller.conftest import TOPOLOGY
from tests.controller.members import TOKEN
from tests.controller.test_http import Caller
from tests.controller.test_http_walls import Raw
from tests.threads import PATIENCE, returned, until

JOIN_TOKEN = "join/token+"
BODY: dict[str, Any] = {"job": "vision", "size": 3, "rank": 1, "mtu": 1500, "address": "10.0.0.2"}

Enrolled = list[Enrollment]


@pytest.fixture
def enrolled() -> Enrolled:
    """The enrollments that the hook was called with."""
    return []


@pytest.fixture
def server(controller: Controller, enrolled: Enrolled) -> Iterator[HttpServer]:
    def enroll(wanted: Enrollment) -> EnrolledJob:
        enrolled.append(wanted)
        if wanted.job == "busy":
            raise BusyError("2 ranks must still enroll", 70)
        if wanted.job == "full":
            raise NoSwitchError("no switch has room")
        return EnrolledJob(f"{wanted.job}-1", "its-own")

    with closing(
        HttpServer(controller.context, controller.membership, "127.0.0.1", 0, enroll=enroll, join_token=JOIN_TOKEN)
    ) as made:
        yield made


@pytest.fixture
def call(server: HttpServer) -> Callable[..., tuple[int, Any]]:
    return partial(Caller(f"http://127.0.0.1:{server.port}"), "POST", "/v1/jobs")


def test_an_enrollment_is_answered(call: Callable[..., tuple[int, Any]], enrolled: Enrolled, controller: Controller) -> None:
    assert call(BODY, JOIN_TOKEN) == (200, {"job": "vision-1", "token": "its-own"})
    assert enrolled == [Enrollment("vision", size=3, rank=1, mtu=1500, address="10.0.0.2")]
    assert call({**BODY, "link_mbps": 25000}, JOIN_TOKEN)[0] == 200
    assert enrolled.pop() == Enrollment("vision", size=3, rank=1, mtu=1500, address="10.0.0.2", link_mbps=25000)
    assert call({**BODY, "of a later version": 1}, JOIN_TOKEN)[0] == 200
    assert controller.context.counters.of("http")["enroll", "200"] == 3


@pytest.mark.parametrize("token", ["wrong", "join/token", "\u00fc", TOKEN, None])
@pytest.mark.parametrize("body", [BODY, b"{"])
def test_without_the_token_the_body_is_not_looked_at(
    call: Callable[..., tuple[int, Any]], enrolled: Enrolled, token: str | None, body: Any
) -> None:
    status, answer = call(body, token)
    assert status == 401
    assert ("wrong token: take the join line" if token else "send the join line's token") in answer["error"]
    assert enrolled == []


def test_a_controller_without_enrollment_says_what_to_do(controller: Controller) -> None:
    caller = Caller(controller.serve())
    for token in (JOIN_TOKEN, None):
        status, answer = caller("POST", "/v1/jobs", BODY, token)
        assert status == 404
        assert answer["error"].startswith("this controller takes no enrollments: join a job by NETSUM_JOB, NETSUM_TOKEN")
    assert caller("GET", "/v1/jobs")[0] == 404


@pytest.mark.parametrize("given_token", [None, ""])
def test_a_hook_needs_a_token_and_a_token_a_hook(controller: Controller, given_token: str | None) -> None:
    with pytest.raises(ValueError, match="go together"):
        HttpServer(
            controller.context,
            controller.membership,
            "127.0.0.1",
            0,
            enroll=lambda _: EnrolledJob("", ""),
            join_token=given_token,
        )
    with pytest.raises(ValueError, match="go together"):
        HttpServer(controller.context, controller.membership, "127.0.0.1", 0, join_token="t")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"job": None}, "job must be a string"),
        ({"job": ""}, "job must have 1 to 256 characters"),
        ({"job": "../etc"}, "job must be a letter, then letters"),
        ({"job": "a" * 64}, "job must be a letter, then letters"),
        ({"size": None}, "size must be a number"),
        ({"size": True}, "size must be a number"),
        ({"size": 2.0}, "size must be a number"),
        ({"size": 0}, r"size must be 1..65535, not 0"),
        ({"size": 65536}, r"size must be 1..65535, not 65536"),
        ({"rank": "1"}, "rank must be a number"),
        ({"rank": 3}, r"rank must be 0..2, as the job has 3 ranks, not 3"),
        ({"rank": -1}, "rank must be 0..2"),
        ({"mtu": 575}, "mtu must be 576..65535, not 575"),
        ({"mtu": 65536}, "mtu must be 576..65535"),
        ({"link_mbps": "25G"}, "link_mbps must be a number"),
        ({"link_mbps": -1}, "link_mbps must be 0..10000000, not -1"),
        ({"link_mbps": 10_000_001}, "link_mbps must be 0..10000000"),
        ({"address": 10}, "address must be a string"),
        ({"address": "h2"}, "address must be an IPv4 address like 10.0.0.1"),
        ({"address": "fd00::1"}, "address must be an IPv4 address like"),
        ({"address": "10.0.0.256"}, "address must be an IPv4 address like"),
        ({"address": "0.0.0.0"}, "address must be a host's, not 0.0.0.0"),
        ({"address": "239.1.1.1"}, "address must be a host's, not 239.1.1.1"),
        ({"address": "255.255.255.255"}, "address must be a host's"),
    ],
)
def test_what_is_wrong_is_named(
    call: Callable[..., tuple[int, Any]], enrolled: Enrolled, changes: dict[str, Any], words: str
) -> None:
    status, answer = call({**BODY, **changes}, JOIN_TOKEN)
    assert (status, enrolled) == (400, [])
    assert words in answer["error"]


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(st.integers(), max_size=2)
BODIES = st.dictionaries(st.sampled_from(list(BODY)), st.one_of(VALUES, *map(st.just, BODY.values())))


def test_any_body_is_refused_in_one_sentence_or_taken(call: Callable[..., tuple[int, Any]]) -> None:
    @given(BODIES.map(lambda changes: {**BODY, **changes}) | VALUES)
    def send(body: Any) -> None:
        status, answer = call(body, JOIN_TOKEN)
        assert status in (200, 400) or body["job"] in ("busy", "full")
        assert answer.keys() == ({"job", "token"} if status == 200 else {"error"})

    send()


@given(BODIES)
def test_an_enrollment_is_valid_or_refused(fields: dict[str, Any]) -> None:
    wanted = {**BODY, **{name: value for name, value in fields.items() if type(value) is type(BODY[name])}}
    try:
        made = Enrollment(**wanted)
    except InputError as error:
        assert str(error).split()[0] in BODY  # noqa: PT017 - any of these is right
    else:
        assert 0 <= made.rank < made.size <= 65535


@pytest.mark.parametrize(
    ("job", "words", "more"),
    [("busy", "2 ranks must still enroll", {"retry_ms": 70}), ("full", "no switch has room", {})],
)
def test_what_the_hook_raises_is_answered(
    call: Callable[..., tuple[int, Any]], job: str, words: str, more: dict[str, Any]
) -> None:
    assert call({**BODY, "job": job}, JOIN_TOKEN) == (409, {"error": words, **more})


def _enroll_request(body: dict[str, Any]) -> bytes:
    text = json.dumps(body)
    head = f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {JOIN_TOKEN}\r\nContent-Length: {len(text)}"
    return f"{head}\r\n\r\n{text}".encode()


def test_a_host_that_gave_up_is_not_enrolled(server: HttpServer, controller: Controller, enrolled: Enrolled) -> None:
    """It holds a place as a member does, and if it closes its connection while a command has the lock, the hook is not called."""
    raw = Raw(server.port, lambda: list(server._server._open.values()))
    with ExitStack() as stack:
        with controller.context.store.lock:
            gone = raw.open()
            gone.sendall(_enroll_request({**BODY, "rank": 0}))
            until(lambda: raw.places() == [None])
            gone.close()
            stays = stack.enter_context(raw.open())
            stays.sendall(_enroll_request(BODY))
            until(lambda: raw.places() == [None])
        assert raw.answer(stays)[0] == 200
    assert [each.rank for each in enrolled] == [1]


# Hosts that join.


@pytest.fixture
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("JOB", "TOKEN", "CONTROLLER", "DESCRIPTOR", "JOIN", "TIMEOUT")
    for name in (*(f"NETSUM_{each}" for each in names), *RANKS, *SIZES):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_bare")
def test_hosts_join_and_sum_by_a_line_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook creates the job when the first rank comes; rank r is on the r-th host."""
    with RootlessFabric(parse_topology(TOPOLOGY)) as fabric, ExitStack() as stack:
        hosts = list(fabric.topology.hosts)

        def enroll(wanted: Enrollment) -> EnrolledJob:
            assert (wanted.address, wanted.mtu) == ("127.0.0.1", 65535)
            spec = JobSpec(name=wanted.job, members=tuple(hosts[: wanted.size]), token=TOKEN)
            return EnrolledJob(fabric.controller.create_job(spec).name, TOKEN)

        certificate = self_signed(tmp_path, ["127.0.0.1"])
        server = HttpServer(
            *(fabric.controller.context, fabric.controller.membership, "127.0.0.1", 0),
            tls_context(certificate.path, certificate.path),
            enroll=enroll,
            join_token=JOIN_TOKEN,
        )
        stack.callback(server.close)
        line = JoinUrl("127.0.0.1", server.port, JOIN_TOKEN, certificate.digest, "vision")
        monkeypatch.setenv("NETSUM_JOIN", line.format())
        monkeypatch.setenv("WORLD_SIZE", "3")

        def work(rank: int) -> list[float]:
            with netsum.join(rank=rank, timeout=PATIENCE, call_timeout=PATIENCE) as comm:
                assert (comm.rank, comm.size, comm.descriptor.job) == (rank, 3, "vision")
                if rank != 1:
                    with comm.group([0, 2], "pair", timeout=PATIENCE) as pair:  # another job, by the same line
                        assert pair.allreduce(np.array([rank], np.float32)).tolist() == [2.0]
                return list(comm.allreduce(np.arange(5, dtype=np.float32) * (rank + 1)).tolist())

        for _ in range(2):  # they come again, as after a restart by torchrun
            assert returned([partial(work, rank) for rank in range(3)]) == [[0.0, 6.0, 12.0, 18.0, 24.0]] * 3

        wrong = replace(line, token="guessed")
        with pytest.raises(UnauthorizedError, match="wrong token: take the join line that the aggregator prints now"):
            netsum.join(rank=0, controller=wrong.format(), timeout=PATIENCE)
        with pytest.raises(ServerCertificateError, match=certificate.digest):
            netsum.join(rank=0, controller=replace(line, digest="sha256:" + "1" * 64).format(), timeout=PATIENCE)
        with pytest.raises(JoinError, match="job 'vision' has 3 ranks, and this program runs as 2"):
            netsum.join(rank=0, size=2, job="vision", token=TOKEN, controller=fabric.controller.url, timeout=PATIENCE)


@pytest.mark.usefixtures("_bare")
def test_a_controller_that_takes_no_enrollments_ends_the_join(controller: Controller, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, ["127.0.0.1"])
    url = controller.serve(tls=(certificate.path, certificate.path), pin=certificate.digest)
    port = int(url.partition("#")[0].rpartition(":")[2])
    line = JoinUrl("127.0.0.1", port, JOIN_TOKEN, certificate.digest)
    with pytest.raises(UnknownRankError, match="job 'default', rank 0: this controller takes no enrollments"):
        netsum.join(rank=0, size=1, controller=line.format(), timeout=PATIENCE)
