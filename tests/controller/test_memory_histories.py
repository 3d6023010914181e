# SPDX-License-Identifier: MIT
"""Whatever dies, returns, is moved and comes late: what was acknowledged is there, or no device that had it is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from netsum_controller.config.topologies import star
from netsum_controller.errors import RejectedError

from tests.controller.fake_fabric import HOSTS, FakeFabric
from tests.controller.memory_devices import FakeMemory
from tests.examples import one_in

SHARDS = 2

hosts = st.sampled_from(HOSTS)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("die", "kill", "restart", "slow", "slow", "quick", "move", "beat")), hosts),
        st.tuples(st.just("write"), st.integers(0, SHARDS - 1)),
        st.tuples(st.just("tick"), st.sampled_from((0.1, 0.5, 4.0))),
    ),
    min_size=10,
    max_size=40,
)


@contextmanager
def memory_of(replicas: int, *, durable: bool) -> Iterator[FakeMemory]:
    with (
        tempfile.TemporaryDirectory(prefix="ns") as folder,
        closing(FakeFabric(star(4), Path(folder), Path(folder, "state.db"))) as fabric,
    ):
        controller = fabric.open()
        controller.push()
        memory = FakeMemory(controller, HOSTS, durable=durable)
        memory.create(replicas=replicas, shards=SHARDS)
        yield memory


class History:
    """The number of writes to each shard that clients have been told are done."""

    def __init__(self, memory: FakeMemory) -> None:
        self.memory = memory
        self.done = [0] * SHARDS

    def take(self, what: str, of: object) -> None:
        memory = self.memory
        if what == "write":
            assert isinstance(of, int)
            self._write(of)
        elif what == "tick":
            assert isinstance(of, float)
            memory.tick(of)
        elif what == "move":
            try:
                memory.controller.move_region("x", [str(of)], shards=[self.done[0] % SHARDS])
            except RejectedError:
                assert not memory.context.memory.state().devices[str(of)].alive
        else:
            device = memory.devices[str(of)]
            if what in ("kill", "die"):
                device.up = False
                memory.tick(4.0 if what == "die" else 0.1)
            elif what == "restart":
                device.restart()
            elif what == "beat":
                if device.up:
                    memory.beat(device.host)
            else:
                device.slow = what == "slow"

    def _write(self, number: int) -> None:
        """A write is done if all that the primary waits for have it: the members, and who has caught up."""
        placed = self.memory.placed()[number]
        shard, key = placed.installed, (self.memory.context.memory.region("x").id, number)
        if shard.lost:
            return
        group = [(member, self.memory.devices[member.host]) for member in shard.group.members]
        needed = [device for member, device in group if not member.joining or device.held.get(key, {}).get("ready", False)]
        if all(device.up and device.held.get(key, {}).get("epoch") == shard.epoch for device in needed):
            for device in needed:
                device.held[key]["position"] += 1
                device.held[key]["vouched"] = device.held[key]["position"]
            self.done[number] += 1
            assert {device.held[key]["position"] for device in needed} == {self.done[number]}

    def check(self) -> None:
        region = self.memory.context.memory.region("x").id
        for shard in self.memory.shards():
            key, done = (region, shard.number), self.done[shard.number]
            having = [
                device.host
                for device in self.memory.devices.values()
                if device.held.get(key, {}).get("position", -1) == done and device.held[key]["ready"]
            ]
            if shard.lost:
                known = {member.host for member in shard.group.members if not member.joining}
                assert not known & set(having), "nothing is given up that is known to be there"
            elif self.memory.devices[shard.hosts[0]].up and key in self.memory.devices[shard.hosts[0]].held:
                assert shard.hosts[0] in having, "a primary has everything"


@one_in(4)
@given(st.integers(1, 3), st.booleans(), steps)
def test_nothing_that_was_done_is_lost_while_a_device_has_it(
    replicas: int, durable: bool, taken: list[tuple[str, object]]
) -> None:
    with memory_of(replicas, durable=durable) as memory:
        history = History(memory)
        for what, of in taken:
            history.take(what, of)
            history.check()
        for device in memory.devices.values():
            device.slow = False
            if not device.up:
                device.restart()
        memory.tick(4.0)
        memory.settle(60)
        history.check()
        for shard in memory.shards():
            if not shard.lost:
                assert len(shard.hosts) >= replicas
                assert not any(member.joining for member in shard.group.members)
