# SPDX-License-Identifier: MIT
"""Jobs over trees of switches: on all of their switches or on none, whatever fails, and whenever the controller is killed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from netsum.wire.schema import SWITCH_SOURCE, Role
from netsum_controller import Controller, JobSpec, Topology
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.entries import (
    JobEntry,
    MemberEntry,
    MulticastGroup,
    ParentEntry,
    RewriteEntry,
    SwitchRewriteEntry,
    UplinkEntry,
)
from netsum_controller.errors import ControllerError, RejectedError, SwitchError, UnknownJobError
from netsum_controller.state.model import Late

from tests.controller.fake_fabric import ALL, HOSTS, FakeFabric, controller
from tests.controller.fake_switch import touches
from tests.controller.killing import Killed, dying_after
from tests.controller.members import TOKEN, join_all
from tests.examples import one_in

__all__ = ["controller"]  # the fixture


def wide(**options: Any) -> JobSpec:
    return JobSpec(name="wide", members=HOSTS, **{"window": 8, **options})


def test_what_each_switch_has(fabric: FakeFabric, controller: Controller) -> None:
    job = controller.create_job(wide())
    assert job.switches == ALL
    assert set(job.epoch.shape.roots) == {"spine1", "spine2"}
    items = fabric.items(controller, job.job_id)
    for spine, port in (("spine1", 3), ("spine2", 4)):
        (entry,) = (item for item in items[spine] if isinstance(item, JobEntry))
        assert (entry.role, entry.stripe_mask, entry.all_sources) == (Role.ROOT, 0, 0b11)
        members = {item.src_id: item for item in items[spine] if isinstance(item, MemberEntry)}
        assert {src_id: item.workers for src_id, item in members.items()} == {0: 2, 1: 2}
        down = {item.replica: item for item in items[spine] if isinstance(item, SwitchRewriteEntry)}
        for src_id, leaf in ((0, "leaf1"), (1, "leaf2")):
            udp_port = job.epoch.port_between(leaf, spine)
            assert members[src_id].udp_port == down[src_id].udp_port == udp_port
            (parent,) = (i for i in items[leaf] if isinstance(i, ParentEntry) and i.ingress_port == port)
            assert (parent.src_id, parent.udp_port) == (SWITCH_SOURCE, udp_port)
            ways = [item for item in items[leaf] if isinstance(item, UplinkEntry) and item.port == port]
            assert {(way.udp_port, way.src_id) for way in ways} == {(udp_port, src_id)}
            assert [job.epoch.shape.roots[way.stripe] for way in ways] == [spine] * 8
    for leaf, ranks in (("leaf1", {0, 1}), ("leaf2", {2, 3})):
        (entry,) = (item for item in items[leaf] if isinstance(item, JobEntry))
        assert (entry.role, entry.stripe_mask, entry.quorum) == (Role.LEAF, 15, 0)
        assert {item.rank for item in items[leaf] if isinstance(item, RewriteEntry)} == ranks
        groups = [item.replicas for item in items[leaf] if isinstance(item, MulticastGroup)]
        assert {src_id for replicas in groups for _, src_id in replicas} - {1000} == {0, 1}, "a parent is no receiver"
    ports = [edge.udp_port for edge in job.epoch.edges] + [seat.udp_port for seat in job.epoch.seats]
    assert len(set(ports)) == 8
    assert controller.descriptor("wide", 2).switch.ip == fabric.topology.switches["leaf2"].ip
    assert not any(report.changed for report in controller.reconcile())


def test_a_job_on_one_leaf_stays_there(controller: Controller) -> None:
    job = controller.create_job(JobSpec(name="near", members=("h3", "h4")))
    assert (job.switches, job.epoch.edges) == (("leaf2",), ())
    wide_one = controller.create_job(wide())
    assert wide_one.job_id != job.job_id
    assert wide_one.part("leaf1") != wide_one.part("leaf2")  # slots lie where there is room


def test_roots_that_were_asked_for(fabric: FakeFabric, controller: Controller) -> None:
    job = controller.create_job(wide(roots={"spine1": 3, "spine2": 1}))
    assert [job.epoch.shape.roots.count(spine) for spine in ("spine1", "spine2")] == [12, 4]
    assert fabric.open().job("wide").roots == {"spine1": 3, "spine2": 1}
    with pytest.raises(RejectedError, match="exists with roots spine1=3, spine2=1, not as the controller chooses"):
        controller.create_job(wide())
    only = controller.create_job(wide(roots={"spine2": 1}).model_copy(update={"name": "only"}))
    assert only.switches == ("spine2", "leaf1", "leaf2")


def test_order(fabric: FakeFabric, controller: Controller) -> None:
    """A parent knows its children before they send, and forgets them last."""
    log: list[str] = []
    for name, switch in fabric.switches.items():
        switch.on_write = lambda _, name=name: log.append(name)  # type: ignore[misc]
    controller.create_job(wide())
    spread = [name for name, before in zip(log, ["", *log], strict=False) if name != before]
    assert spread[-4:] == list(ALL)
    log.clear()
    controller.delete_job("wide")
    assert list(dict.fromkeys(log)) == list(reversed(ALL))


@pytest.mark.parametrize("switch", ["leaf2", pytest.param("spine2", marks=pytest.mark.full)])
@pytest.mark.parametrize("table", ["member", "rewrite", "uplink", "multicast group", "job"])
def test_a_step_that_fails_takes_everything_back(fabric: FakeFabric, controller: Controller, switch: str, table: str) -> None:

    def fail(name: str, update: Any) -> str | None:
        return "no space" if name == switch and touches(update, table) and update.type == 1 else None

    before = fabric.installed()
    fabric.fail_everywhere(fail)
    if table == "uplink" and switch.startswith("spine"):
        controller.create_job(wide())  # it has none
        return
    with pytest.raises(SwitchError, match=f"switch {switch}: .*{table}"):
        controller.create_job(wide())
    assert fabric.installed() == before
    assert controller.context.store.jobs() == []
    fabric.fail_everywhere(lambda _, __: None)
    assert controller.create_job(wide()).created


def test_when_taking_back_fails_on_another_switch(fabric: FakeFabric, controller: Controller) -> None:
    """The next command on that switch cleans up; until then no job gets the name or the slots."""
    before = fabric.installed()

    def fail(name: str, update: Any) -> str | None:
        is_row = update.entity.HasField("table_entry")
        return "broken" if (is_row and name == "leaf2") or update.type == 3 else None

    fabric.fail_everywhere(fail)
    with pytest.raises(SwitchError, match="undoing the changes on other switches failed too"):
        controller.create_job(wide())
    with pytest.raises(UnknownJobError):
        controller.job("wide")
    fabric.fail_everywhere(lambda _, __: None)
    near = controller.create_job(JobSpec(name="near", members=("h1", "h2")))  # cleans leaf1
    assert near.slot_base == 0
    (left,) = (job for job in controller.context.store.jobs() if job.name == "wide")
    assert set(left.switches) == {"spine1", "spine2", "leaf2"}
    controller.delete_job("near")
    controller.reconcile()
    assert fabric.installed() == before
    assert controller.context.store.jobs() == []


SELDOM = [pytest.param(command, marks=pytest.mark.full) for command in ("delete", "epoch", "reconcile")]


@pytest.mark.full
@pytest.mark.parametrize("command", ["create", "evict", *SELDOM])
def test_killed_at_any_moment(open_fabric: Callable[[Topology], FakeFabric], command: str) -> None:
    """A controller dies between two writes, at every third place; a new process puts everything in order."""
    fabric = open_fabric(leaf_spine(1, 2, 2))
    fabric.open().push()
    writes = 0
    while not _killed(fabric, command, writes):
        writes += 3
    assert writes > 3, "it was killed nowhere"


def _killed(fabric: FakeFabric, command: str, writes: int) -> bool:
    """True if the command had fewer writes than that."""
    first = fabric.open()
    empty = fabric.installed()
    if command != "create":
        first.create_job(wide(token=TOKEN))
        join_all(first, name="wide")
    if command == "reconcile":
        fabric.switches["leaf1"].restart()
    commands: dict[str, Callable[[], object]] = {
        "create": lambda: first.create_job(wide()),
        "delete": lambda: first.delete_job("wide"),
        "epoch": lambda: first.join("wide", TOKEN, 0, "b"),
        "evict": lambda: first.evict("wide", 3),
        "reconcile": first.reconcile,
    }
    finished = False
    with suppress(Killed), dying_after(writes):
        commands[command]()
        finished = True
    second = fabric.open()
    if command == "delete":
        second.create_job(wide(token=TOKEN))
    elif command == "create":
        second.create_job(wide())
    second.reconcile()
    assert not any(report.changed for report in second.reconcile())
    if command in ("epoch", "evict", "reconcile"):
        assert second.job("wide").exists
    second.delete_job("wide")
    assert fabric.installed() == empty
    return finished


def test_a_new_epoch_has_other_ports_everywhere(fabric: FakeFabric, controller: Controller) -> None:
    old = controller.create_job(wide(token=TOKEN))
    controller.join("wide", TOKEN, 0, "a")
    controller.join("wide", TOKEN, 0, "b")
    new = controller.job("wide")
    assert new.epoch.number > old.epoch.number
    assert not {edge.udp_port for edge in old.epoch.edges} & {edge.udp_port for edge in new.epoch.edges}
    for items in fabric.items(controller, new.job_id).values():
        assert {item.epoch for item in items if isinstance(item, JobEntry)} == {new.epoch.number}
    ranges = controller.context.store.used_ranges(["leaf2"], new.job_id)
    assert ranges[0].first == old.epoch.first_block_id
    assert not ranges[0].overlaps(ranges[1])


def test_a_new_epoch_that_a_switch_refuses(fabric: FakeFabric, controller: Controller) -> None:
    job = controller.create_job(wide(token=TOKEN))
    controller.join("wide", TOKEN, 0, "a")
    before = fabric.installed()
    fabric.fail_everywhere(lambda name, update: "broken" if (name, update.type) == ("leaf2", 2) else None)
    with pytest.raises(SwitchError, match="leaf2"):
        controller.join("wide", TOKEN, 0, "b")
    assert fabric.installed() == before
    assert controller.job("wide").epoch.number == job.epoch.number


def test_deleting_one_does_not_disturb_another(fabric: FakeFabric, controller: Controller) -> None:
    controller.create_job(wide())
    with_one = fabric.installed()
    controller.create_job(JobSpec(name="other", members=("h4", "h1"), window=100))
    controller.delete_job("other")
    assert fabric.installed() == with_one


def test_a_switch_that_is_gone_for_good(fabric: FakeFabric, controller: Controller) -> None:
    controller.create_job(wide())
    fabric.switches["leaf2"].stop()
    with pytest.raises(SwitchError, match="leaf2"):
        controller.delete_job("wide")
    assert controller.job("wide").exists
    controller.delete_job("wide", force=True)
    assert controller.jobs() == []
    fabric.switches["leaf2"].start()
    reports = {report.switch: report for report in controller.reconcile()}
    assert reports["leaf2"].deleted > 0
    assert not reports["leaf1"].changed


Command = Callable[[Controller], Any]


def _create(name: str, members: list[str], late: Late) -> Command:
    spec = JobSpec(name=name, members=tuple(members), window=8, token=TOKEN, algorithm="switch", late=late)
    return lambda controller: controller.create_job(spec)


def _join(name: str, rank: int, instance: str) -> Command:
    return lambda controller: controller.join(name, TOKEN, rank, instance)


names, ranks, hosts = st.sampled_from("ab"), st.integers(0, 2), st.sampled_from(HOSTS[:3])
commands = st.one_of(
    st.builds(_create, names, st.lists(hosts, min_size=1, max_size=3), st.sampled_from(Late)),
    st.builds(_join, names, ranks, st.sampled_from("xy")),
    st.builds(lambda name: lambda controller: controller.delete_job(name), names),
    st.builds(lambda name, rank: lambda controller: controller.evict(name, rank), names, ranks),
    st.builds(lambda name, rank: lambda controller: controller.admit(name, rank), names, ranks),
)
failures = st.none() | st.tuples(st.sampled_from((*ALL, "leaf3")), st.integers(1, 12))
"""(switch, which of a command's updates there fails); None: nothing fails."""


def failing(fabric: FakeFabric, failure: tuple[str, int] | None) -> None:
    count = 0

    def fail(name: str, update: Any) -> str | None:
        nonlocal count
        if failure is None or name != failure[0] or update.entity.HasField("counter_entry"):
            return None
        count += 1
        return "no space" if count == failure[1] else None

    fabric.fail_everywhere(fail)


@one_in(20, phases=[Phase.explicit, Phase.generate])  # each takes seconds
@given(st.lists(st.tuples(commands, failures), min_size=3, max_size=8))
def test_nothing_is_half_installed(steps: list[tuple[Command, tuple[str, int] | None]]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="ns") as folder,
        closing(FakeFabric(leaf_spine(2, 3, 1), Path(folder), Path(folder) / "state.db")) as fabric,
    ):
        controller = fabric.open()
        controller.push()
        empty = fabric.installed()
        for command, failure in steps:
            failing(fabric, failure)
            with suppress(ControllerError):  # refused, or it failed: then nothing has changed
                command(controller)
            failing(fabric, None)
            assert all(job.exists for job in controller.context.store.jobs())
            assert not any(report.changed or report.waiting for report in controller.reconcile())
        for job in controller.jobs():
            controller.delete_job(job.name)
        assert fabric.installed() == empty
