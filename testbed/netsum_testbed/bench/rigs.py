"""Switches under test: each runs in a namespace of its own, with a generator beside it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import click
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.config.topology import Topology
from netsum_controller.entries import MulticastGroup
from netsum_controller.p4runtime.client import Kind, SwitchClient, Update
from netsum_switch.pipeline import ENGINE_VARIABLE

from netsum_testbed.bench.adder import ALL_PORTS, adder_program
from netsum_testbed.bench.blast import Blasted, Blaster, Load, WrongReplyError
from netsum_testbed.bench.floor import passing_on
from netsum_testbed.bench.loads import HOSTS, aggregate_load, forward_load, raw_load
from netsum_testbed.bench.wires import bare_wires
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric, RootlessFabric
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.switches import BMV2, SwitchProcess, runs_machine_code, usable_switches

SIZES: Final = (64, 1500, FRAME_BYTES)
"""Bytes of the frames that are forwarded."""
AGGREGATE: Final = "aggregate"
ADDER: Final = "bare_adder"

ENGINES: Final = {"native": "embedded", "python": "embedded", "bmv2": "bmv2"}
"""The engines that run P4 programs, with their kind of switch."""
_TRIES: Final = 2
"""How often the adder's last sum may be wrong: it adds in the order in which packets come, and the kernel sometimes delivers a
packet of one port before one that was sent to another port earlier."""


class Rig:
    """A running switch. ``loads``: what can be sent to it, by name; ``prepare`` makes them, and says the first block to use."""

    def __init__(self, blaster: Blaster, pid: int, prepare: Callable[[], tuple[Mapping[str, Load], int]]) -> None:
        self.pid = pid
        self._blaster = blaster
        self._prepare = prepare
        self.renew()

    def renew(self) -> None:
        """Start over after a loss, with blocks that have had no contribution."""
        self.loads, self._next = self._prepare()

    def run(self, name: str, rounds: int, window: int) -> Blasted:
        """Send a load. Raises LostError, or WrongReplyError."""
        first = self._next
        if name == AGGREGATE:
            self._next = first + rounds & 0xFFFFFFFF
        for _ in range(_TRIES if name == ADDER else 0):
            with suppress(WrongReplyError):
                return self._blaster.run(self.loads[name], rounds, window, first_block=first, switch_pid=self.pid)
        return self._blaster.run(self.loads[name], rounds, window, first_block=first, switch_pid=self.pid)


def _forwarded(make: Callable[[int], Load]) -> dict[str, Load]:
    return {str(size): make(size) for size in SIZES}


@contextmanager
def floor_rig(rootless: bool = False) -> Iterator[Rig]:
    """A rig that only passes frames on."""
    loads = _forwarded(lambda size: raw_load("floor", size))
    with passing_on(rootless) as (blaster, pid):
        yield Rig(blaster, pid, lambda: (loads, 0))


class _WrappedFabric(NamespaceFabric):
    """The switch's command line has ``wrapper`` in front."""

    def __init__(self, topology: Topology, kind: str, wrapper: Sequence[str]) -> None:
        super().__init__(topology, kind)
        self._wrapper = wrapper

    @property
    def _prefix(self) -> Sequence[str]:
        return (*super()._prefix, *self._wrapper)


@contextmanager
def netsum_rig(engine: str, wrapper: Sequence[str] = (), rootless: bool = False) -> Iterator[Rig]:
    """netsum's program, for contributions and plain traffic. ``wrapper`` precedes the switch's command line."""
    with ExitStack() as undo:
        topology, kind = star(HOSTS), ENGINES[engine]
        fabric = RootlessFabric(topology, kind) if rootless else _WrappedFabric(topology, kind, wrapper)
        with environment(**{ENGINE_VARIABLE: engine}):
            undo.enter_context(fabric)
        hosts = list(fabric.topology.hosts)
        fabric.create_job(JobSpec(name="bench", members=tuple(hosts), window=64, chunks=16))

        def prepare() -> tuple[Mapping[str, Load], int]:
            descriptors = fabric.controller.membership.join_all("bench")
            loads = _forwarded(lambda size: forward_load(descriptors, size))
            return {**loads, AGGREGATE: aggregate_load(descriptors)}, descriptors[0].first_block_id

        yield Rig(undo.enter_context(closing(_hosts_of(fabric))), fabric.switch_pid, prepare)


def _hosts_of(fabric: Fabric) -> Blaster:
    if isinstance(fabric, NamespaceFabric):
        interfaces = [fabric.interface(host) for host in fabric.topology.hosts]
        return fabric.inside(lambda: Blaster.on_interfaces(interfaces))
    wires = [(host.frames or "", host.switch_frames or "") for host in fabric.topology.hosts.values()]
    return Blaster.on_datagrams(wires)


@contextmanager
def adder_rig(engine: str, wrapper: Sequence[str] = (), rootless: bool = False) -> Iterator[Rig]:
    """The bare adder, without a controller."""
    (address,) = star(HOSTS).switches.values()
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="netsum-"))
        wires = undo.enter_context(bare_wires(rootless))
        interfaces = [f"{port}@{end}" for port, end in enumerate(wires.ends, 1)]
        with environment(**{ENGINE_VARIABLE: engine}):
            switch = SwitchProcess(ENGINES[engine], interfaces, Path(folder), (*wires.prefix, *wrapper))
        undo.callback(switch.stop)
        switch.wait_ready()
        reached = address.model_copy(update={"p4runtime": switch.address})
        with SwitchClient("s1", reached, adder_program()) as client:
            client.push_pipeline()
            group = MulticastGroup(ALL_PORTS, frozenset((port, port) for port in range(1, HOSTS + 1)))
            client.write([Update(Kind.INSERT, group)])
        loads = {ADDER: raw_load("bare adder", FRAME_BYTES, checked=False)}
        yield Rig(undo.enter_context(closing(wires.blaster())), switch.pid, lambda: (loads, 0))


@contextmanager
def environment(**changes: str) -> Iterator[None]:
    """Processes that start meanwhile have these variables."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def engines_here(rootless: bool = False) -> list[str]:
    """The engines of this machine; that one is missing is said on standard error."""
    missing = {}
    if not runs_machine_code():
        missing["native"] = f"llvmlite is not installed, or {ENGINE_VARIABLE} is python"
    if rootless:
        missing["bmv2"] = "its ports are interfaces"
    elif shutil.which(BMV2) is None:
        missing["bmv2"] = f"{BMV2} is not on PATH"
    elif "bmv2" not in usable_switches():  # which says why
        missing["bmv2"] = f"{BMV2} does not work here, or this is not root"
    for engine, reason in missing.items():
        click.echo(f"*** {engine} IS NOT MEASURED: {reason} ***", err=True)
    return [engine for engine in ENGINES if engine not in missing]
