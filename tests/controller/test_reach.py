# SPDX-License-Identifier: MIT
"""Switches that do not answer: the others' paths go around them, and use them again when they are back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.context import find_down
from netsum_controller.entries import ForwardEntry
from netsum_controller.errors import SwitchError, UnreachableError
from netsum_controller.jobs.reconcile import Report
from netsum_controller.monitoring.switch_monitor import DOWN_AFTER, SwitchMonitor
from netsum_controller.planning.allocation import mac_to_int

from tests.controller.fake_fabric import FakeFabric
from tests.controller.fake_switch import FakeSwitch
from tests.controller.items import items_on
from tests.controller.test_watcher import PERIOD
from tests.threads import until


class Fabric(FakeFabric):
    """Two leaves and two spines, all fake."""

    def __init__(self, sockets: Path, state: Path) -> None:
        super().__init__(leaf_spine(2, 2, 1), sockets, state)
        self.controller = self.open()

    def way(self, switch: str, host: str) -> str:
        """The switch over which a host is reached, as installed."""
        address = mac_to_int(self.topology.hosts[host].mac)
        entries = items_on(self.controller, ForwardEntry, switch)
        (port,) = (entry.port for entry in entries if entry.eth_dst == address)
        return self.topology.neighbors(switch)[port].switch


@pytest.fixture
def fabric(sockets: Path, tmp_path: Path) -> Iterator[Fabric]:
    with closing(Fabric(sockets, tmp_path / "state.db")) as one:
        one.controller.push()
        yield one


def test_reconcile_goes_around_what_does_not_answer(fabric: Fabric) -> None:
    usual = fabric.way("leaf1", "h2")
    other = {"spine1": "spine2", "spine2": "spine1"}[usual]
    fabric.switches[usual].stop()
    with pytest.raises(SwitchError, match=f"switch {usual}: no P4Runtime server answers"):
        fabric.controller.reconcile()
    assert fabric.way("leaf1", "h2") == other
    writes = len(fabric.switches["leaf1"].writes)
    command = fabric.open()  # the next command knows nothing, and changes nothing
    with pytest.raises(SwitchError, match=usual):
        command.reconcile()
    assert command.context.down == {usual}
    assert len(fabric.switches["leaf1"].writes) == writes
    fabric.switches[usual].start()
    fabric.controller.reconcile()
    assert fabric.way("leaf1", "h2") == usual
    assert fabric.controller.reconcile() == [Report(name) for name in fabric.topology.switches]


def test_an_unknown_address_is_no_device_that_is_down(fabric: Fabric) -> None:
    context = fabric.controller.context
    context.topology = context.topology.filled({"spine2": {"p4runtime": None}})
    fabric.switches["spine1"].stop()
    assert find_down(context) == {"spine1"}
    fabric.switches["spine1"].start()
    assert find_down(context) == frozenset()


def test_a_star_whose_switch_is_back_has_none_that_is_down(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    """The watcher may not have looked since, but that is no reason to create a job without the switch."""
    context = controller.context
    context.down.add("s1")
    switch.stop()
    assert find_down(context) == {"s1"}
    with pytest.raises(UnreachableError, match="s1 is down"):
        controller.create_job(spec)
    switch.start()
    assert controller.create_job(spec).by_switch
    assert context.down == set()
    assert find_down(context) == frozenset()


def test_the_watcher_goes_around_and_back(fabric: Fabric) -> None:
    with closing(SwitchMonitor(fabric.controller.context, PERIOD)) as watcher:
        until(lambda: all(watch._around == frozenset() for watch in watcher._watches))
        usual = fabric.way("leaf1", "h2")
        fabric.switches[usual].stop()
        until(lambda: fabric.controller.context.down == {usual})
        (watch,) = (watch for watch in watcher._watches if watch._name == usual)
        assert watch._unanswered >= DOWN_AFTER
        others = [watch for watch in watcher._watches if watch._name != usual]
        until(lambda: all(watch._around == frozenset({usual}) for watch in others))
        assert fabric.way("leaf1", "h2") != usual
        fabric.switches[usual].start()
        until(lambda: all(watch._around == frozenset() for watch in watcher._watches))
        assert fabric.way("leaf1", "h2") == usual
