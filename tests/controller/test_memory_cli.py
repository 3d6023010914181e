# SPDX-License-Identifier: MIT
"""`netsum memory`, beside a controller that serves."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from netsum_controller.controller import Controller

from tests.controller.conftest import Run
from tests.controller.memory_devices import FakeMemory
from tests.threads import repeatedly


@pytest.fixture
def memory(controller: Controller) -> Iterator[FakeMemory]:
    """Its devices report, and the controller tends, while a command waits."""
    memory = FakeMemory(controller)
    with repeatedly(memory.tick, 0.01):
        yield memory


@pytest.mark.usefixtures("memory")
def test_a_region_from_beginning_to_end(run: Run) -> None:
    made = run("memory", "create", "weights", "--dtype", "float32", "--shape", "1024,100", "--replicas", "2")
    assert made.code == 0
    first, token, read_token = made.out.splitlines()
    assert first == "region weights: created, 524288 bytes at 0x100000000, 16 shards on h1, h2, h4"
    assert token.split()[0] == "token"
    assert read_token.startswith("read token ")
    assert run("memory", "create", "weights", "--dtype", "float32", "--shape", "1024,100", "--replicas", "2").out == (
        "region weights: unchanged, 524288 bytes at 0x100000000, 16 shards on h1, h2, h4\n"
    )
    listed = run("memory", "list").out
    for words in ("weights", "float32", "524288", "ready", "h1, h2, h4", "alive", "RAM"):
        assert words in listed
    found = json.loads(run("memory", "list", "--json").out)
    assert [region["name"] for region in found["regions"]] == ["weights"]
    assert {device["device"]: device["state"] for device in found["devices"]} == dict.fromkeys(("h1", "h2", "h4"), "alive")

    moved = run("memory", "move", "weights", "--from", "h1", "--to", "h2,h4")
    assert (moved.code, moved.err) == (0, "")
    assert "moved" in moved.out
    shown = json.loads(run("memory", "show", "weights", "--json").out)
    assert {host for shard in shown["shards"] for host in (shard["primary"], shard["backups"])} == {"h2", "h4"}
    assert shown["traffic"] == {"s1": {"packets": 0, "bytes": 0}}
    assert "key" not in shown
    table = run("memory", "show", "weights").out
    for words in ("float32 (1024, 100)", "clients use 10.0.0.253", "PRIMARY", "INSTRUCTIONS"):
        assert words in table

    assert run("memory", "delete", "weights").out == "region weights: deleted\n"
    assert "there are no regions" in run("memory", "list").out


@pytest.mark.usefixtures("memory")
def test_what_is_wrong_is_said_in_a_line(run: Run) -> None:
    cases = [
        (("create", "x"), 2, "netsum: give a size, or a dtype and a shape"),
        (("create", "x", "--size", "12Q"), 2, "'12Q' is not a size such as 4096, 64K or 1M"),
        (("create", "x", "--size", "1M", "--shape", "a"), 2, "'a' is no number"),
        (("create", "x", "--size", "1M", "--option", "adam"), 2, "'adam' is not like optimizer=adam"),
        (("create", "x", "--size", "1M", "--devices", "h3"), 1, "no memory device serves on h3"),
        (("show", "x"), 1, "netsum: there is no region 'x'; `netsum memory list` shows all regions"),
        (("move", "x", "--to", "h1"), 1, "there is no region 'x'"),
        (("move", "x", "--to", ","), 2, "--to names no device"),
        (("delete", "x"), 1, "there is no region 'x'"),
    ]
    for words, code, message in cases:
        found = run("memory", *words)
        assert (found.code, message in found.err) == (code, True), found
        assert found.err.count("\n") == 1


def test_options_and_tokens(memory: FakeMemory, run: Run) -> None:
    words = ["--size", "1M", "--kind", "parameters", "--option", "optimizer=adam", "--option", "lr=0.1", "--json"]
    made = json.loads(run("memory", "create", "p", *words, "--token", "my-own-secret").out)
    assert made["token"] == "my-own-secret"
    region = memory.context.memory.region("p")
    assert region.options == {"optimizer": "adam", "lr": 0.1}
    assert run("memory", "token").out.strip() == memory.controller.device_token
