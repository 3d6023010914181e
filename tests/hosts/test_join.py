# SPDX-License-Identifier: MIT
"""Joining: what the controller may answer, descriptor files, the environment. The controller here is a few canned answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netsum
import pytest
from netsum.controller_client import ControllerClient
from netsum.descriptor import Descriptor, MemberLink
from netsum.errors import CallTimeoutError, JoinError, NotReadyError, UnauthorizedError, UnknownRankError
from netsum.settings import DEFAULT_CALL_TIMEOUT, RANKS, SIZES, Environment
from netsum.transports import InMemoryTransport

from tests.hosts.canned import CUT, Controller, canned
from tests.hosts.network import descriptor

VARIABLES = ("JOB", "RANK", "TOKEN", "CONTROLLER", "DESCRIPTOR", "TIMEOUT", "JOIN")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"NETSUM_{name}", raising=False)
    for name in (*RANKS, *SIZES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def controller() -> Iterator[Controller]:
    with canned() as server:
        yield server


def join(controller: Controller, **options: Any) -> netsum.Communicator:
    given: dict[str, Any] = {
        "job": "my job",
        "rank": 1,
        "token": "secret",
        "controller": controller.url,
        "transport": InMemoryTransport(),
    }
    return netsum.join(**{**given, "timeout": 5.0, **options})


OURS = descriptor(1, 3).to_dict()


def test_join_asks_for_the_rank_and_close_leaves_it(controller: Controller) -> None:
    controller.answers = [(200, OURS), (200, {})]
    with join(controller) as comm:
        assert (comm.rank, comm.size) == (1, 3)
        assert comm.timeout == DEFAULT_CALL_TIMEOUT
    (method, path, authorization, body), (_, left, _, leaving) = controller.asked
    assert (method, path, authorization) == ("POST", "/v1/jobs/my%20job/join", "Bearer secret")
    assert left == "/v1/jobs/my%20job/leave"
    assert body["rank"] == leaving["rank"] == 1
    assert body["instance"] == leaving["instance"]


@pytest.mark.parametrize(
    ("status", "answer", "kind", "message"),
    [
        (401, {"error": "wrong token"}, UnauthorizedError, "wrong token"),
        (404, {"error": "no rank 1"}, UnknownRankError, "no rank 1"),
        (400, {"error": "what?"}, JoinError, r"what\?"),
        (500, b"<html>", JoinError, "HTTP status 500"),
        (200, {"version": 1}, JoinError, "no descriptor"),
        (200, b"no json", JoinError, "no descriptor"),
    ],
)
def test_answers_that_are_final_are_one_clear_error(
    controller: Controller, status: int, answer: Any, kind: type[Exception], message: str
) -> None:
    controller.answers = [(status, answer)]
    with pytest.raises(kind, match=message):
        join(controller)
    assert len(controller.asked) == 1


def test_a_job_that_is_not_ready_is_asked_again(controller: Controller) -> None:
    busy = (409, {"error": "the previous run is still finishing", "retry_ms": 20})
    controller.answers = [busy, busy, (200, OURS), (200, {})]
    join(controller).close()
    assert [path.rpartition("/")[2] for _, path, _, _ in controller.asked] == ["join", "join", "join", "leave"]


@pytest.mark.parametrize("status", [200, 409])
def test_a_controller_killed_in_mid_answer_is_asked_again(controller: Controller, status: int) -> None:
    controller.answers = [(status, CUT), (200, OURS), (200, {})]
    join(controller).close()
    assert [path.rpartition("/")[2] for _, path, _, _ in controller.asked] == ["join", "join", "leave"]


@pytest.mark.parametrize("status", [200, 409])
def test_a_rejoin_may_be_asked_again_after_half_an_answer(controller: Controller, status: int) -> None:
    controller.answers = [(status, CUT)]
    with pytest.raises(NotReadyError):
        ControllerClient("job", 0, "secret", controller.url).rejoin(epoch=1, report=None)


def test_a_job_that_stays_busy_is_not_ready_at_the_deadline(controller: Controller) -> None:
    controller.answers = [(409, {"error": "the previous run is still finishing", "retry_ms": 20})]
    said, timeout = "does not answer", 0.1
    while "does not answer" in said:  # on a busy machine the first answer may come after the deadline
        timeout *= 2
        with pytest.raises(NotReadyError) as refused:
            join(controller, timeout=timeout)
        said = str(refused.value)
    assert "still finishing" in said


def test_a_controller_that_is_not_there_is_named(controller: Controller) -> None:
    url = controller.url
    controller.socket.close()
    with pytest.raises(NotReadyError, match=url.replace(".", r"\.")):
        netsum.join("job", 0, token="t", controller=url, timeout=0.2)


def test_a_transport_that_cannot_be_opened_gives_the_rank_back(controller: Controller) -> None:
    link = MemberLink("packet", interface="no-such-if").to_dict()
    controller.answers = [(200, {**OURS, "link": link}), (200, {})]
    with pytest.raises(JoinError, match="no-such-if"):
        join(controller, transport=None, link=link)
    assert controller.asked[0][3]["link"] == link
    assert controller.asked[1][1].endswith("/leave")


def test_a_timeout_asks_the_controller_whom_the_block_waits_for(controller: Controller) -> None:
    why = {"block": 4096, "state": "open", "missing": [{"rank": 2, "host": "h3"}]}
    controller.answers = [(200, OURS), (200, why)]
    with join(controller) as comm, pytest.raises(CallTimeoutError) as caught:
        comm.barrier(timeout=0.25)
    assert caught.value.missing == (2,)
    assert "rank 2 (h3)" in str(caught.value)
    assert controller.asked[1][:2] == ("GET", "/v1/jobs/my%20job/diagnosis?block=4096")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "absent"}, "no contribution to the block has reached the switch, not even this rank's"),
        ({"state": "absent", "trouble": ["switch s1 has restarted"]}, "switch s1 has restarted"),
        ({"state": "recycled"}, "its result never reached this rank"),
        ({"state": "open", "missing": []}, "which rank it waits for is not known"),
    ],
)
def test_a_timeout_names_no_rank_without_a_record_that_lacks_it(
    controller: Controller, changes: dict[str, Any], words: str
) -> None:
    why = {"block": 4096, "state": "open", "missing": [{"rank": 0, "host": "h1"}, {"rank": 2, "host": "h3"}]}
    controller.answers = [(200, OURS), (200, {**why, **changes})]
    with join(controller) as comm, pytest.raises(CallTimeoutError, match=words) as caught:
        comm.barrier(timeout=0.25)
    assert caught.value.missing == ()
    assert "waiting for" not in str(caught.value)


def test_everything_may_come_from_the_environment(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    controller.answers = [(200, OURS)]
    monkeypatch.setenv("NETSUM_JOB", "my job")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("NETSUM_TOKEN", "secret")
    monkeypatch.setenv("NETSUM_CONTROLLER", controller.url)
    monkeypatch.setenv("NETSUM_TIMEOUT", "7.5")
    with netsum.join(transport=InMemoryTransport()) as comm:
        assert (comm.rank, comm.timeout) == (1, 7.5)
    assert controller.asked[0][3]["rank"] == 1


@pytest.mark.parametrize("address", ["[::1]:9000", "fe80::1:9000"])
def test_an_address_of_ipv6_is_refused_in_one_line(controller: Controller, address: str) -> None:
    frames = {"kind": "frames", "local": address, "remote": "127.0.0.1:9"}
    options: list[dict[str, Any]] = [{"peer": address, "transport": None}, {"link": frames, "transport": None}]
    for each in options:
        controller.answers = [(200, {**OURS, "link": frames}), (200, {})]
        with pytest.raises(JoinError, match=r"is an address of IPv6, and netsum is IPv4 only$"):
            join(controller, **each)


def test_a_rank_on_the_wrong_host_is_told_where_it_belongs(controller: Controller) -> None:
    elsewhere = {**OURS, "host": {**OURS["host"], "ip": "203.0.113.7"}, "link": {"kind": "udp"}}
    controller.answers = [(200, elsewhere), (200, {})]
    where = "rank 1 of job .* belongs on the host with the address 203.0.113.7, which this host does not have: start it"
    with pytest.raises(JoinError, match=where):
        join(controller, transport=None)


def test_what_is_missing_is_named_with_its_variable() -> None:
    with pytest.raises(JoinError, match=r"`job` \(or NETSUM_JOB\).*`token` \(or NETSUM_TOKEN\).*`netsum run -n N SCRIPT.py`"):
        netsum.join(rank=0, controller="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "first") for name in (*RANKS, *SIZES)),
        *((name, "0") for name in SIZES),
        ("RANK", "1.5"),
        ("WORLD_SIZE", "-2"),
        ("NETSUM_TIMEOUT", "soon"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(JoinError, match=name):
        Environment.read({name: value})


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({"NETSUM_RANK": "2", "RANK": "1"}, 2),
        ({"NETSUM_RANK": "", "RANK": "0"}, 0),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "3", "SLURM_PROCID": "0"}, 3),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2", "PMI_RANK": "1"}, 1),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}, 5),
        ({"RANK": "7", "SLURM_PROCID": "3"}, 7),  # torchrun on each node, started by srun
        ({}, None),
    ],
)
def test_the_rank_comes_from_whatever_has_started_the_process(variables: dict[str, str], rank: int | None) -> None:
    assert Environment.read(variables).rank == rank


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({"NETSUM_SIZE": "2", "WORLD_SIZE": "4"}, 2),
        ({"WORLD_SIZE": "8", "RANK": "7", "SLURM_NTASKS": "2"}, 8),  # torchrun on each node, started by srun
        ({"OMPI_COMM_WORLD_SIZE": "4", "SLURM_NTASKS": "1"}, 4),
        ({"MV2_COMM_WORLD_SIZE": "2", "PMI_SIZE": "2"}, 2),
        ({"PMI_SIZE": "3"}, 3),
        ({"SLURM_NTASKS": "5"}, 5),
        ({"NETSUM_SIZE": ""}, None),
    ],
)
def test_the_size_comes_from_the_same_launchers(variables: dict[str, str], size: int | None) -> None:
    assert Environment.read(variables).size == size


@pytest.mark.parametrize("size", [2, 4])
def test_a_job_of_another_size_is_left_again(controller: Controller, size: int) -> None:
    controller.answers = [(200, OURS), (200, {})]
    with pytest.raises(JoinError, match=f"job 'test' has 3 ranks, and this program runs as {size}: start as many processes"):
        join(controller, size=size)
    assert [path.rpartition("/")[2] for _, path, _, _ in controller.asked] == ["join", "leave"]


def write(path: Path, rank: int, **changes: Any) -> None:
    path.write_text(descriptor(rank, 3, **changes).to_json())


def test_a_descriptor_file_is_found_by_the_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        write(tmp_path / f"test.{rank}.json", rank)
    monkeypatch.setenv("NETSUM_DESCRIPTOR", str(tmp_path / "test.{rank}.json"))
    for rank in range(2):
        with netsum.join(rank=rank, transport=InMemoryTransport()) as comm:
            assert comm.rank == rank


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "has no"),
        (json.dumps({**OURS, "version": 9}), "version 9"),
        (json.dumps({**OURS, "rank": 3}), "rank is 3"),
        (json.dumps({**OURS, "workers": 65536}), "workers is 65536"),
        (json.dumps({**OURS, "block_bytes": 1000}), "block_bytes is 1000"),
        (json.dumps({**OURS, "mtu": 1000}), "does not fit an MTU of 1000"),
        (json.dumps({**OURS, "window": "8"}), "window"),
        (json.dumps({**OURS, "link": {"kind": "pigeon"}}), "pigeon"),
        (json.dumps({**OURS, "link": {"kind": "frames"}}), "local"),
    ],
)
def test_a_bad_descriptor_file_is_one_clear_error(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "d.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(JoinError, match=message) as caught:
        netsum.join(descriptor=path, transport=InMemoryTransport())
    assert str(path) in str(caught.value)


def test_a_descriptor_survives_its_json() -> None:
    for link in (MemberLink(), MemberLink("frames", local="a:1", remote="b:2"), MemberLink("packet", interface="h1-eth0")):
        one = descriptor(2, 3, link=link, controller="http://127.0.0.1:8080")
        assert Descriptor.from_json(one.to_json()) == one
        assert json.loads(one.to_json())["link"]["kind"] == link.kind
    assert Descriptor.from_dict({**OURS, "of a later version": 1}) == descriptor(1, 3)
