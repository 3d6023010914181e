# SPDX-License-Identifier: MIT
"""The HTTP endpoint, spoken to as a member does and as an untrusted sender might."""

from __future__ import annotations

import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from netsum.descriptor import Descriptor
from netsum_controller import Controller, JobSpec
from netsum_controller.errors import InputError

from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN
from tests.controller.watched import put_record
from tests.threads import PATIENCE

WHO = {"rank": 0, "instance": "a"}
CALLS = {"join": "POST", "leave": "POST", "diagnosis": "GET", "members": "GET"}


class Caller:
    """Sends requests to the endpoint."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, method: str, path: str, body: Any = None, token: str | None = TOKEN, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            assert answer.headers["Content-Type"] == "application/json"
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture
def call(controller: Controller, spec: JobSpec) -> Caller:
    controller.create_job(spec)
    return Caller(controller.serve())


def test_join_and_leave(controller: Controller, call: Caller) -> None:
    status, body = call("POST", "/v1/jobs/resnet/join", {"rank": 1, "instance": "a"})
    assert status == 200
    descriptor = Descriptor.from_dict(body)
    assert (descriptor.rank, descriptor.job, descriptor.controller) == (1, "resnet", call.url)
    assert descriptor == controller.descriptor("resnet", 1)
    assert call("POST", "/v1/jobs/resnet/leave", {"rank": 1, "instance": "b"}) == (200, {"left": False})
    assert call("POST", "/v1/jobs/resnet/leave", {"rank": 1, "instance": "a"}) == (200, {"left": True})
    status, body = call("GET", "/v1/jobs/resnet/members")
    assert status == 200
    assert [(one["host"], one["joined"], one["left"]) for one in body["members"]] == [
        ("h1", False, False),
        ("h2", True, True),
        ("h4", False, False),
    ]
    assert [one["address"] for one in body["members"]] == [
        controller.context.topology.hosts[host].ip for host in ("h1", "h2", "h4")
    ]


def test_rejoin(controller: Controller, switch: FakeSwitch, call: Caller) -> None:
    path = "/v1/jobs/resnet/join"
    first = [call("POST", path, {"rank": rank, "instance": "a"})[1] for rank in range(3)]
    place = {"instance": "a", "epoch": first[0]["epoch"], "needs": first[0]["first_block_id"] + 7, "next_epoch": 0}
    assert call("POST", path, {"rank": 0, **place})[1]["epoch"] == first[0]["epoch"]
    assert call("POST", path, {"rank": 0, "instance": "a", "epoch": place["epoch"], "group": ""})[0] == 200
    switch.restart()
    controller.reconcile()
    told = call("POST", path, {"rank": 0, "instance": "a", "epoch": place["epoch"]})
    assert (told[0], told[1]["next_epoch"]) == (409, controller.job("resnet").epoch.number)
    assert call("POST", path, {"rank": 0, **place, "next_epoch": told[1]["next_epoch"] + 1})[0] == 409
    assert controller.job("resnet").epoch.seats[0].needs is None, "a report for another epoch does not count"
    assert "ranks 0, 1, 2 must still rejoin" in told[1]["error"]
    place["next_epoch"] = told[1]["next_epoch"]
    for rank in (0, 1):
        status, body = call("POST", path, {"rank": rank, **place})
        assert (status, body["retry_ms"] > 0) == (409, True)
        assert "must still rejoin" in body["error"]
    status, body = call("POST", path, {"rank": 2, **place})
    assert (status, body["resumes"], body["first_block_id"]) == (200, place["epoch"], place["needs"])
    status, body = call("POST", path, {"rank": 1, "instance": "b"})  # it is replaced: a new epoch
    assert (status, body["resumes"]) == (200, None)
    status, body = call("POST", path, {"rank": 0, **place})
    assert (status, body["reason"]) == (410, "anew")
    with controller.context.store.transaction():
        controller.context.store.set_evicted(controller.job("resnet").epoch.number, 0)
    for body in ({"rank": 0, **place}, {"rank": 0, "instance": "c"}):
        status, answer = call("POST", path, body)
        assert (status, answer["reason"]) == (403, "evicted")


def test_a_member_of_a_deleted_job_learns_that(controller: Controller, call: Caller) -> None:
    """An untrusted sender does not learn whether the job exists: it only hears that the token is wrong."""
    controller.delete_job("resnet")
    body = {"rank": 0, "instance": "a", "epoch": 1}
    assert call("POST", "/v1/jobs/resnet/join", body)[0] == 404
    assert call("POST", "/v1/jobs/resnet/join", body, "wrong-token")[0] == 401


def test_a_link_of_ones_own(call: Caller) -> None:
    link = {"kind": "packet", "interface": "eth7"}
    _, body = call("POST", "/v1/jobs/resnet/join", {"rank": 0, "instance": "a", "link": link})
    assert body["link"] == link


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("link", {"kind": "frames", "local": "127.0.0.1:1", "remote": 5}, "a link's `remote` is 5"),
        ("link", {"kind": "packet", "interface": ["eth7"]}, "a link's `interface` is"),
        ("link", {"kind": "packet", "interface": "eth\ud800"}, "a link's `interface` is"),
        ("instance", "a\ud800", "instance must be printable"),
        ("instance", "a\nb", "instance must be printable"),
    ],
)
def test_what_no_member_would_say_takes_no_rank(controller: Controller, call: Caller, field: str, value: Any, words: str) -> None:
    body = {"rank": 0, "instance": "a", field: value}
    status, answer = call("POST", "/v1/jobs/resnet/join", body)
    assert (status, words in answer["error"]) == (400, True), answer
    assert not controller.job("resnet").epoch.seats[0].joined


def test_a_full_disk_is_said_and_members_ask_again(controller: Controller, call: Caller) -> None:
    database = controller.context.store._db
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages}")  # as SQLite sees a full disk
    for run in range(200):  # each takes the rank anew, which begins an epoch
        status, answer = call("POST", "/v1/jobs/resnet/join", {"rank": 0, "instance": f"run {run}"})
        if status != 200:
            break
    assert status == 503
    assert "state.db: the controller's state cannot be read or written (database or disk is full)" in answer["error"]
    before = controller.job("resnet")
    database.execute("PRAGMA max_page_count = 1000000")
    assert call("POST", "/v1/jobs/resnet/join", {"rank": 0, "instance": "later"})[0] == 200
    assert controller.job("resnet").epoch.number > before.epoch.number


def test_why(controller: Controller, switch: FakeSwitch, call: Caller) -> None:
    descriptor = Descriptor.from_dict(call("POST", "/v1/jobs/resnet/join", {"rank": 0, "instance": "a"})[1])
    assert descriptor.first_block_id == controller.job("resnet").epoch.first_block_id
    base, block = controller.job("resnet").slot_base, put_record(switch, controller.job("resnet"), 3, 0b001)
    status, body = call("GET", f"/v1/jobs/resnet/diagnosis?block={block}")
    assert status == 200
    assert (body["block"], body["slot"], body["state"], body["seen"]) == (block, base + block % 16, "open", [0])
    assert body["missing"] == [{"rank": 1, "src_id": 1, "host": "h2"}, {"rank": 2, "src_id": 2, "host": "h4"}]
    assert [(one["rank"], one["block"], one["cause"]) for one in body["waiting_for"]] == [
        (rank, block, "has not joined") for rank in (1, 2)
    ]
    assert body["age_ms"] >= 0
    assert body["hints"][:2] == ["rank 1 (h2) has not joined", "rank 2 (h4) has not joined"]
    status, body = call("GET", "/v1/jobs/resnet/diagnosis")
    assert [one["block"] for one in body["blocks"]] == [block]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("resnet/join", {**WHO, "epoch": 1, "next_epoch": 2}, 400, "needs must be a number"),
        ("resnet/join", {**WHO, "needs": 1}, 400, "epoch must be a number"),
        ("resnet/join", {**WHO, "epoch": 1, "needs": 1}, 400, "next_epoch must be a number"),
        ("resnet/join", {**WHO, "epoch": 1, "group": True}, 400, "group must be a string"),
        ("resnet/join", {**WHO, "epoch": 1, "needs": 1 << 32, "next_epoch": 2}, 400, "needs must be 0.."),
        ("resnet/join", {**WHO, "rank": 3}, 404, "has no rank 3"),
        ("resnet/join", {**WHO, "rank": "0"}, 400, "rank must be a number"),
        ("resnet/join", {**WHO, "rank": True}, 400, "rank must be a number"),
        ("resnet/join", {"rank": 0}, 400, "instance must be a string"),
        ("resnet/join", {"rank": 0, "instance": ""}, 400, "1 to 256 characters"),
        ("resnet/join", {**WHO, "link": 3}, 400, "link must be an object"),
        ("resnet/join", {**WHO, "link": {"kind": "x"}}, 400, "link kind 'x'"),
        ("resnet/join", {**WHO, "link": {"x": 1}}, 400, "link"),
        ("resnet/join", [1], 400, "not a JSON object"),
        ("resnet/join", b"{", 400, "not JSON"),
        ("resnet/join", b"[" * 60000, 400, "not JSON"),
        ("resnet/join", b"\xff\xfe", 400, "not JSON"),
        ("resnet/join", b" " * 70000, 413, "larger than 65536"),
        ("resnet/leave", {**WHO, "rank": 9}, 404, "has no rank 9"),
        ("vgg/join", WHO, 404, "no job 'vgg'"),
        ("resnet/join", None, 404, "no such call"),
        ("resnet/diagnosis?block=-1", None, 400, "block must be"),
        ("resnet/diagnosis?block=4294967296", None, 400, "block must be"),
        ("%2e%2e/members", None, 404, "no job '..'"),
    ],
)
def test_bad_requests_get_one_sentence(
    controller: Controller, call: Caller, path: str, body: Any, status: int, words: str
) -> None:
    """A request without a body is a GET."""
    before = controller.job("resnet")
    got, answer = call("GET" if body is None else "POST", f"/v1/jobs/{path}", body)
    assert got == status
    assert words in answer["error"]
    assert "\n" not in answer["error"]
    assert controller.job("resnet") == before


@pytest.mark.parametrize(("job", "what"), [(job, what) for job in ("resnet", "vgg") for what in CALLS])
def test_untrusted_senders_learn_nothing(controller: Controller, call: Caller, job: str, what: str) -> None:
    """To them, a job that does not exist looks like one with another token."""
    before = controller.job("resnet")
    status, answer = call(CALLS[what], f"/v1/jobs/{job}/{what}", WHO if CALLS[what] == "POST" else None, "wrong-token")
    assert status == 401
    assert f"wrong token for job '{job}'" in answer["error"]
    assert controller.job("resnet") == before


def test_a_call_without_token(call: Caller) -> None:
    status, answer = call("POST", "/v1/jobs/resnet/join", WHO, None)
    assert (status, "send the job's token" in answer["error"]) == (401, True)


def test_a_path_that_is_none(call: Caller) -> None:
    status, answer = call("GET", "/")
    assert (status, "no such path" in answer["error"]) == (404, True)


def test_switch_gone_is_503(switch: FakeSwitch, call: Caller) -> None:
    assert call("POST", "/v1/jobs/resnet/join", {"rank": 0, "instance": "a"})[0] == 200
    switch.stop()
    status, body = call("POST", "/v1/jobs/resnet/join", {"rank": 0, "instance": "b"})
    assert status == 503
    assert "no P4Runtime server answers" in body["error"]
    assert call("GET", "/v1/jobs/resnet/diagnosis")[0] == 503


def test_many_at_once(controller: Controller) -> None:
    """Every rank of a job joins at the same moment: there is one epoch, and each has its own port."""
    controller.create_job(JobSpec(name="wide", members=("h1", "h2") * 16, token=TOKEN))
    call = Caller(controller.serve())
    for run in range(2):  # the second run begins a new epoch, once
        with ThreadPoolExecutor(32) as pool:
            bodies = [{"rank": rank, "instance": f"{run}.{rank}"} for rank in range(32)]
            answers = list(pool.map(lambda body: call("POST", "/v1/jobs/wide/join", body), bodies))
        assert {status for status, _ in answers} == {200}
        descriptors = [Descriptor.from_dict(body) for _, body in answers]
        last = controller.job("wide").epoch
        assert descriptors[0].epoch <= last.number
        for rank in range(32):
            call("POST", "/v1/jobs/wide/leave", {"rank": rank, "instance": f"{run}.{rank}"})
        assert {one.epoch for one in descriptors} == {last.number}


def test_a_port_that_is_taken(controller: Controller, call: Caller) -> None:
    port = int(call.url.rpartition(":")[2])
    controller.close()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(InputError, match=r"cannot serve HTTP on 127\.0\.0\.1"),
    ):
        controller.serve(port=port)


def test_where_the_others_reach_a_member(controller: Controller, call: Caller) -> None:
    path = "/v1/jobs/ring/join"
    controller.create_job(JobSpec(name="ring", members=("h1", "h2"), token=TOKEN, algorithm="ring"))
    for peer in ("10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", ":9", "[::1]:9", "a b:9", "h:1\n", 4000, "h" * 254 + ":1"):
        status, body = call("POST", path, {"rank": 0, "instance": "a", "peer": peer})
        assert (status, body["error"].startswith("peer must be")) == (400, True), peer
    status, body = call("POST", path, {"rank": 0, "instance": "a", "peer": "10.0.0.1:4000"})
    assert (status, "rank 1 must still join" in body["error"], body["retry_ms"] > 0) == (409, True, True)
    status, body = call("POST", path, {"rank": 1, "instance": "b", "peer": "node-2.example:4001"})
    assert (status, body["peers"], body["algorithm"]) == (200, ["10.0.0.1:4000", "node-2.example:4001"], "ring")
    assert call("POST", path, {"rank": 0, "instance": "a", "peer": "10.0.0.1:4000"})[1]["peers"] == body["peers"]
    status, body = call("GET", "/v1/jobs/ring/diagnosis?block=5")
    assert (status, body["state"], body["missing"], body["combines"]) == (200, "unknown", [], "ring")
