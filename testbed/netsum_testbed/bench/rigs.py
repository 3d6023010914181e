"""Switches under test: each runs in a namespace of its own, with a generator beside it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.p4runtime.client import Kind, SwitchClient, Update
from netsum_controller.stages import MulticastGroup
from netsum_switch.pipeline import ENGINE_VARIABLE

from netsum_testbed.bench.adder import ALL_PORTS, adder_program
from netsum_testbed.bench.blast import Blasted, Blaster, Load
from netsum_testbed.bench.floor import host_links, passing_on
from netsum_testbed.bench.loads import FRAME_BYTES, HOSTS, aggregate_load, forward_load, raw_load
from netsum_testbed.namespaces import NamespaceFabric
from netsum_testbed.netns import NetworkNamespace
from netsum_testbed.switches import SwitchProcess

SIZES: Final = (64, 1500, FRAME_BYTES)
"""Bytes of the frames that are forwarded."""
AGGREGATE: Final = "aggregate"
ADDER: Final = "bare_adder"

ENGINES: Final = {"native": "embedded", "python": "embedded", "bmv2": "bmv2"}
"""What runs P4 programs, and the kind of switch that it belongs to."""


class Rig:
    """A running switch. ``loads``: what can be sent to it, by name; ``prepare`` makes them, and says the first block to use."""

    def __init__(self, blaster: Blaster, pid: int, prepare: Callable[[], tuple[Mapping[str, Load], int]]) -> None:
        self._blaster = blaster
        self._pid = pid
        self._prepare = prepare
        self.renew()

    def renew(self) -> None:
        """Begin anew, with blocks that have had no contribution: packets were lost."""
        self.loads, self._next = self._prepare()

    def run(self, name: str, rounds: int, window: int) -> Blasted:
        """Send a load. Raises LostError."""
        first = self._next
        if name == AGGREGATE:
            self._next = first + rounds & 0xFFFFFFFF
        return self._blaster.run(self.loads[name], rounds, window, first_block=first, switch_pid=self._pid)


def _forwarded(make: Callable[[int], Load]) -> dict[str, Load]:
    return {str(size): make(size) for size in SIZES}


@contextmanager
def floor_rig() -> Iterator[Rig]:
    """Frames are only passed on."""
    loads = _forwarded(lambda size: raw_load("floor", size))
    with passing_on() as (blaster, pid):
        yield Rig(blaster, pid, lambda: (loads, 0))


@contextmanager
def netsum_rig(engine: str) -> Iterator[Rig]:
    """netsum's program, for contributions and plain traffic."""
    with ExitStack() as undo:
        fabric = NamespaceFabric(star(HOSTS), ENGINES[engine])
        with _chosen(engine):
            undo.enter_context(fabric)
        hosts = list(fabric.topology.hosts)
        fabric.create_job(JobSpec(name="bench", members=tuple(hosts), window=64, chunks=16))

        def prepare() -> tuple[Mapping[str, Load], int]:
            descriptors = fabric.controller.membership.join_all("bench")
            loads = _forwarded(lambda size: forward_load(descriptors, size))
            return {**loads, AGGREGATE: aggregate_load(descriptors)}, descriptors[0].first_block_id

        blaster = fabric.inside(lambda: Blaster([fabric.interface(host) for host in hosts]))
        yield Rig(undo.enter_context(closing(blaster)), fabric.switch_pid, prepare)


@contextmanager
def adder_rig(engine: str) -> Iterator[Rig]:
    """The bare adder, without a controller."""
    (address,) = star(HOSTS).switches.values()
    ports = range(1, HOSTS + 1)
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="netsum-"))
        namespace = undo.enter_context(closing(NetworkNamespace(host_links(), 9500)))
        interfaces = [f"{port}@{end}" for port, (end, _) in zip(ports, host_links(), strict=True)]
        with _chosen(engine):
            prefix = ("ip", "netns", "exec", namespace.name)
            switch = SwitchProcess(ENGINES[engine], interfaces, Path(folder), prefix)
        undo.callback(switch.stop)
        switch.wait_ready()
        reached = address.model_copy(update={"p4runtime": switch.address})
        with SwitchClient("s1", reached, adder_program()) as client:
            client.push_pipeline()
            group = MulticastGroup(ALL_PORTS, frozenset((port, port) for port in ports))
            client.write([Update(Kind.INSERT, group)])
        blaster = namespace.call(lambda: Blaster([host for _, host in host_links()]))
        loads = {ADDER: raw_load("bare adder", FRAME_BYTES, checked=False)}
        yield Rig(undo.enter_context(closing(blaster)), switch.pid, lambda: (loads, 0))


@contextmanager
def _chosen(engine: str) -> Iterator[None]:
    """Switches that start meanwhile run programs on that engine."""
    asked = os.environ.get(ENGINE_VARIABLE)
    os.environ[ENGINE_VARIABLE] = engine
    try:
        yield
    finally:
        if asked is None:
            del os.environ[ENGINE_VARIABLE]
        else:
            os.environ[ENGINE_VARIABLE] = asked
