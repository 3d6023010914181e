# SPDX-License-Identifier: MIT
"""Writes of many updates: what fails is told one by one, and nothing is undone that was not done."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from netsum_controller import Controller
from netsum_controller.config.topology import Topology
from netsum_controller.entries import ForwardEntry, Item
from netsum_controller.errors import RejectedError, WriteError
from netsum_controller.p4runtime.channel import BATCH
from netsum_controller.p4runtime.client import SwitchClient, Update, UpdateKind
from netsum_controller.p4runtime.converge import AppliedUpdate, RollbackError, apply

from tests.controller.fake_switch import FakeSwitch
from tests.switch.harness.api import SwitchUnderTest


def entries(number: int) -> list[ForwardEntry]:
    return [ForwardEntry(0x020001000000 + each, 1) for each in range(number)]


def address(number: int) -> dict[str, str]:
    high, low = divmod(number, 256)
    return {"ip": f"10.0.{high}.{low}", "mac": f"02:00:00:00:{high:02x}:{low:02x}"}


def insert(client: SwitchClient, items: Sequence[Item]) -> None:
    apply(client, [AppliedUpdate(Update(UpdateKind.INSERT, item), None) for item in items])


def test_what_was_there_is_there_when_hundreds_of_updates_fail(on_live: Controller) -> None:
    """More errors than gRPC's default has room for; and among them, in another Write than most, updates that do not fail."""
    with on_live.context.client("s1") as client:
        items = entries(2 * BATCH)
        there = items[: BATCH + BATCH // 2]
        insert(client, there)
        before = set(client.read_items())
        for refused in (there, [*there[:BATCH], *items[len(there) :]], [*items[len(there) :], *there]):
            with pytest.raises(WriteError, match=r"insert forward eth_dst=0x\w+: ALREADY_EXISTS"):
                insert(client, refused)
            assert set(client.read_items()) == before


def test_unknown_outcomes_are_not_undone(controller: Controller, switch: FakeSwitch) -> None:
    """A Write fails without a word about its updates, as where they have more errors than the client takes."""
    items = entries(2 * BATCH)
    with controller.context.client("s1") as client:
        insert(client, items[BATCH:])
        before = set(client.read_items())

        writes = itertools.count(1)

        def fail(_: Any) -> None:
            if next(writes) == 2:
                raise RuntimeError("it fails as a whole")

        switch.on_write = fail
        with pytest.raises(RollbackError, match=rf"which of {BATCH} updates were carried out: `netsum reconcile` repairs"):
            insert(client, items)
        assert set(client.read_items()) == before
    controller.reconcile()
    assert not controller.reconcile()[0].changed


def test_a_table_that_is_too_small_for_a_topology_is_known_beforehand(live: SwitchUnderTest, tmp_path: Path) -> None:
    switches = {f"s{n}": address(n) for n in range(1, 5)}
    topology = Topology.model_validate(
        {
            "name": "large",
            "switches": {name: {"device_id": n, **each} for n, (name, each) in enumerate(switches.items(), 1)},
            "hosts": {f"h{n}": {"switch": f"s{1 + n % 4}", "port": 10 + n // 4, **address(10 + n)} for n in range(1300)},
            "links": {f"l{n}": {"switches": ["s1", f"s{n}"], "ports": [n, 1]} for n in range(2, 5)},
        }
    ).filled({"s1": {"p4runtime": live.grpc_address}})
    words = r"needs 13\d\d entries of the table 'forward', which has room for 1024; leave hosts out"
    with Controller(topology, tmp_path / "state.db") as controller:
        with pytest.raises(RejectedError, match=rf"topology 'large' is too large for switch s1: it {words}"):
            controller.push()
        with controller.context.client("s1") as client:
            assert client.pipeline_cookie() is None, "nothing was loaded"
