# SPDX-License-Identifier: MIT
"""Memory's calls of the HTTP endpoint, as clients, devices and untrusted senders make them."""

from __future__ import annotations

from typing import Any

import pytest
from netsum_controller.controller import Controller
from netsum_controller.memory.model import Region

from tests.controller.memory_devices import FakeMemory
from tests.controller.test_http import Caller

REGION, DEVICE = "/v1/memory/regions/x", "/v1/memory/devices/h1"


@pytest.fixture
def made(memory: FakeMemory) -> Region:
    return memory.create(dtype="float32", shape=(10,), devices=("h1",), shards=1)


@pytest.fixture
def call(controller: Controller) -> Caller:
    return Caller(controller.serve())


def test_a_region_is_told_to_who_has_its_token(made: Region, call: Caller) -> None:
    status, told = call("GET", REGION, token=made.token)
    assert status == 200
    assert (told["key"], told["rights"], told["base"], told["shape"]) == (made.write_key, "write", made.base, [10])
    assert "host" not in told
    status, told = call("GET", REGION + "?host=h3&access=read", token=made.token)
    assert (status, told["key"], told["host"]["ip"]) == (200, made.read_key, "10.0.0.3")
    status, told = call("GET", REGION + "?access=write", token=made.read_token)
    assert (status, told["key"], told["rights"]) == (200, made.read_key, "read")


def test_untrusted_senders_learn_nothing(made: Region, call: Caller, controller: Controller) -> None:
    for token in ("wrong", "ünïcode".encode().decode("latin-1")):
        assert call("GET", REGION, token=token) == (401, {"error": "wrong token for region 'x'"})
        assert call("GET", "/v1/memory/regions/y", token=token)[0] == 401
        assert call("POST", DEVICE, {"incarnation": "a"}, token=token)[0] == 401
    assert call("GET", REGION, token=None)[0] == 401
    assert call("POST", DEVICE, {"incarnation": "a"}, token=made.token)[0] == 401
    assert call("GET", "/v1/memory/regions/y", token=controller.device_token)[0] == 404


def test_what_makes_no_sense_is_named(made: Region, call: Caller, controller: Controller) -> None:
    cases: list[tuple[str, str, Any, int, str]] = [
        ("GET", REGION + "?access=all", None, 400, "access is `read` or `write`, not 'all'"),
        ("GET", REGION + "?host=h9", None, 404, "has no host 'h9'"),
        ("GET", REGION + "?" + "&".join(f"a{n}=1" for n in range(9)), None, 400, "more than 4 fields"),
        ("POST", "/v1/memory/devices/h9", {"incarnation": "a"}, 404, "has no host 'h9'"),
        ("POST", DEVICE, {}, 400, "incarnation: field required"),
        ("POST", DEVICE, [], 400, "not a JSON object"),
        ("POST", DEVICE, {"incarnation": "a", "shards": [{"region": -1}]}, 400, "shards.0.region"),
        ("POST", DEVICE, {"incarnation": "a", "shards": 3}, 400, "shards"),
        ("POST", REGION, {}, 404, "no such call: POST memory/regions"),
    ]
    for method, path, body, status, words in cases:
        token = made.token if "regions" in path else controller.device_token
        found, answer = call(method, path, body, token=token)
        assert (found, words in answer["error"]) == (status, True), answer


def test_a_device_is_told_what_to_hold(made: Region, call: Caller, controller: Controller) -> None:
    report = {
        "incarnation": "h1 life 1",
        "shards": [{"region": made.id, "shard": 0, "epoch": 1, "position": 4, "ready": True}],
    }
    status, told = call("POST", DEVICE, report, token=controller.device_token)
    assert status == 200
    assert {name: told[name] for name in ("interval", "lease", "virtual_ip", "port")} == {
        "interval": 0.5,
        "lease": 3.0,
        "virtual_ip": "10.0.0.253",
        "port": 12001,
    }
    [shard] = told["shards"]
    assert (shard["region"], shard["name"], shard["base"], shard["size"]) == (made.id, "x", made.base, made.size)
    assert shard["keys"] == {"read": made.read_key, "write": made.write_key, "device": made.device_key}
    assert (shard["state"], shard["epoch"], shard["lost"]) == ("member", 1, False)
    [own] = shard["group"]
    assert own == {
        "host": "h1",
        "ip": "10.0.0.1",
        "port": 12001,
        "mac": "02:6e:73:00:00:01",
        "incarnation": "h1 life 1",
        "joining": False,
    }
    assert call("POST", "/v1/memory/devices/h2", {"incarnation": "b"}, token=controller.device_token)[1]["shards"] == []
