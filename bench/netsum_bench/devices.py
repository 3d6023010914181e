"""Switches under test: each runs in a namespace of its own, with a generator beside it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.entries import MulticastGroup
from netsum_controller.p4runtime.client import SwitchClient, Update, UpdateKind
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric, RootlessFabric
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.switches import SwitchProcess

from netsum_bench.adder import ALL_PORTS, adder_program
from netsum_bench.baseline import passing_on
from netsum_bench.traffic_generator import (
    HOSTS,
    Blasted,
    Blaster,
    Load,
    LostError,
    WrongReplyError,
    aggregate_load,
    bare_wires,
    forward_load,
    raw_load,
)

SIZES: Final = (64, 1500, FRAME_BYTES)
"""Bytes of the frames that are forwarded."""
AGGREGATE: Final = "aggregate"
ADDER: Final = "bare_adder"

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


@contextmanager
def netsum_rig(switch: str, rootless: bool = False) -> Iterator[Rig]:
    """netsum's program, for contributions and plain traffic."""
    with ExitStack() as undo:
        fabric = undo.enter_context((RootlessFabric if rootless else NamespaceFabric)(star(HOSTS), switch))
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
def adder_rig(kind: str, rootless: bool = False) -> Iterator[Rig]:
    """The bare adder, without a controller."""
    (address,) = star(HOSTS).switches.values()
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="netsum-"))
        wires = undo.enter_context(bare_wires(rootless))
        interfaces = [f"{port}@{end}" for port, end in enumerate(wires.ends, 1)]
        switch = SwitchProcess(kind, interfaces, Path(folder), wires.prefix)
        undo.callback(switch.stop)
        switch.wait_ready()
        reached = address.model_copy(update={"p4runtime": switch.address})
        with SwitchClient("s1", reached, adder_program()) as client:
            client.push_pipeline()
            group = MulticastGroup(ALL_PORTS, frozenset((port, port) for port in range(1, HOSTS + 1)))
            client.write([Update(UpdateKind.INSERT, group)])
        loads = {ADDER: raw_load("bare adder", FRAME_BYTES, checked=False)}
        yield Rig(undo.enter_context(closing(wires.blaster())), switch.pid, lambda: (loads, 0))


# Many loads on many switches, in turns, so that other load on the machine affects all alike.


_FIRST_ROUNDS: Final = 100
_MOST_ROUNDS: Final = 500_000


@dataclass
class Case:
    """One load on one switch. ``runs`` grows by one in each turn, of ``rounds`` rounds."""

    engine: str
    load: str
    rig: Rig
    window: int
    rounds: int = _FIRST_ROUNDS
    runs: list[Blasted] = field(default_factory=list)

    def warm_up(self, seconds: float | None) -> None:
        """Send the first packets, which are slow, and set ``rounds`` to as many as take this long (None: keep them)."""
        if seconds is None:
            self._run(min(self.rounds, 3 * _FIRST_ROUNDS))
            return
        for share in (0.1, 1.0):
            run = self._run(self.rounds)
            self.rounds = min(max(round(self.rounds / run.seconds * seconds * share), _FIRST_ROUNDS), _MOST_ROUNDS)

    def take_turn(self) -> None:
        """Measure once. Raises LostError if packets are lost even one at a time."""
        self.runs.append(self._run(self.rounds))

    def _run(self, rounds: int) -> Blasted:
        while True:
            try:
                return self.rig.run(self.load, rounds, self.window)
            except LostError:
                if self.window == 1:
                    raise
                self.window //= 2
                self.rig.renew()

    @property
    def pps(self) -> float:
        """Packets a second into the switch: the median."""
        return statistics.median(run.pps for run in self.runs)

    @property
    def cpu_us(self) -> float:
        """CPU microseconds of the switch's process for a packet into it, all threads: the median."""
        return statistics.median(run.switch_cpu / run.packets for run in self.runs) * 1e6

    @property
    def generator_share(self) -> float:
        """The share of the time that the generator was busy."""
        return statistics.median(run.generator_cpu / run.seconds for run in self.runs)


def take_turns(
    cases: Sequence[Case],
    repetitions: int,
    *,
    run_seconds: float | None,
    deadline: float,
    progress: Callable[[str], None],
) -> None:
    """Give every case its ``repetitions``, or as many turns as end before ``deadline`` (of time.monotonic), but at least one.

    A turn takes about ``run_seconds``; None: the rounds that the case has.
    """
    for case in cases:
        progress(f"{case.engine}, {case.load}: warming up")
        case.warm_up(run_seconds)
    longest = 0.0
    for turn in range(1, repetitions + 1):
        began = time.monotonic()
        if turn > 1 and began + longest > deadline:
            progress(f"turn {turn} of {repetitions} would take too long: this is all")
            return
        for case in cases:
            progress(f"turn {turn} of {repetitions}: {case.engine}, {case.load}")
            case.take_turn()
        longest = max(longest, time.monotonic() - began)
