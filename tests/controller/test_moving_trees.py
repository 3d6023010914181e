"""Jobs over trees when switches die: they go around those that they can do without, or else move to the members."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from netsum.descriptor import Descriptor
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import leaf_spine, tree
from netsum_controller.config.topology import Topology
from netsum_controller.controller import Controller
from netsum_controller.errors import Busy
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.watching.watcher import Watcher

from tests.controller.fake_fabric import FakeFabric
from tests.controller.members import TOKEN
from tests.controller.test_watcher import PERIOD
from tests.threads import until

Open = Callable[[Topology], FakeFabric]


def create(controller: Controller) -> None:
    """A job of every host, all of them joined."""
    hosts = tuple(controller.topology.hosts)
    controller.push()
    controller.create_job(JobSpec(name="wide", members=hosts, window=8, token=TOKEN))
    for rank in range(len(hosts)):
        controller.join("wide", TOKEN, rank, "a", peer=f"10.0.0.{rank + 1}:4000")


def rejoin(controller: Controller, epoch: int, first: int) -> list[Descriptor]:
    """What members that lack everything from ``first`` on get."""
    found: dict[int, Descriptor] = {}
    for _ in range(2):
        for rank in range(controller.job("wide").workers):
            try:
                place = Progress(epoch, first)
                found[rank] = controller.join("wide", TOKEN, rank, "a", progress=place, peer=f"10.0.0.{rank + 1}:4000")
            except Busy:
                continue
    return [found[rank] for rank in sorted(found)]


def test_a_tree_without_its_root(open_fabric: Open) -> None:
    """The leaves forget the job at once, the root when it is back; the job comes back to all of them when it is told to."""
    fabric = open_fabric(tree(2, 2))
    controller = fabric.open()
    controller.push()
    empty = fabric.installed()
    create(controller)
    old = controller.job("wide").epoch
    with closing(Watcher(controller.site, PERIOD, dead_after=5 * PERIOD)) as watcher:
        until(lambda: all(watch._around == frozenset() for watch in watcher._watches))
        fabric.switches["root"].stop()
        until(lambda: not controller.job("wide").by_switch)
        new = rejoin(controller, old.number, old.first_block_id + 3)
        assert {(one.resumes, one.algorithm, one.first_block_id) for one in new} == {
            (old.number, "auto", old.first_block_id + 3)
        }
        fabric.switches["root"].start()
        until(lambda: fabric.installed() == empty)
    done = controller.move("wide", "auto")
    assert (done.job.switches, done.resumes) == (("root", "leaf1", "leaf2"), True)
    back = rejoin(controller, new[0].epoch, new[0].first_block_id + 5)
    assert {(one.resumes, one.algorithm, one.first_block_id) for one in back} == {
        (new[0].epoch, "switch", old.first_block_id + 8)
    }
    assert not any(report.changed for report in controller.reconcile())


def test_the_last_spine_is_waited_for_by_nobody(open_fabric: Open) -> None:
    fabric = open_fabric(leaf_spine(2, 2, 1))
    controller = fabric.open()
    create(controller)
    assert set(controller.job("wide").epoch.shape.roots) == {"spine1", "spine2"}
    old = controller.job("wide").epoch
    with closing(Watcher(controller.site, PERIOD, dead_after=5 * PERIOD)) as watcher:
        until(lambda: all(watch._around == frozenset() for watch in watcher._watches))
        fabric.switches["spine1"].stop()
        until(lambda: set(controller.job("wide").epoch.shape.roots) == {"spine2"})
        around = rejoin(controller, old.number, old.first_block_id)
        assert {(one.algorithm, one.resumes) for one in around} == {("switch", old.number)}
        fabric.switches["spine2"].stop()
        until(lambda: not controller.job("wide").by_switch)
        last = rejoin(controller, around[0].epoch, around[0].first_block_id)
        assert {(one.algorithm, one.resumes) for one in last} == {("auto", around[0].epoch)}
