"""A round's events, which happen to devices, regions, the switch and the controller, one after the other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

from netsum_controller.errors import ControllerError
from netsum_controller.memory.model import RegionState, Shard
from netsum_testbed.fabric import Fabric
from netsum_testbed.memory_devices import MemoryDevice

from netsum_trials.memory.on_network.site import Wires
from netsum_trials.memory.plan import Event, Kind, Plan
from netsum_trials.memory.report import MemoryTotals
from netsum_trials.soak.outside import ServesOutside

REPORTS: Final = 1.5
"""Seconds within which the controller has noticed what happened to a device, and begun to act."""
WHOLE: Final = 60.0
"""Seconds within which everything must be whole again."""
_POLL: Final = 0.05


class Events:
    """To be looked after by one thread."""

    def __init__(
        self,
        fabric: Fabric,
        plan: Plan,
        wires: Wires,
        totals: MemoryTotals,
        say: Callable[[str], None],
        renewing: Callable[[str, float], Iterator[str]],
    ) -> None:
        """``renewing``: makes a region anew that was lost at that time, and yields what it waits for."""
        self._fabric, self._plan, self._wires, self._totals, self._say = fabric, plan, wires, totals, say
        self._renewing = renewing
        self._renewed: Iterator[str] = iter(())
        self._waiting = list(plan.events)
        self._undo: dict[str, tuple[float, Callable[[], None]]] = {}
        self._calm = 0.0

    def look(self, answered: int) -> None:
        """Begin the events that are due after so many answers, and end those whose time is up."""
        for whom, (due, undo) in list(self._undo.items()):
            if time.monotonic() >= due:
                undo()
                del self._undo[whom]
                self._calm = time.monotonic() + REPORTS
        if next(self._renewed, None) is not None:
            self._calm = time.monotonic() + REPORTS
            return
        if not self._waiting or answered < self._waiting[0].after:
            return
        event = self._waiting[0]
        if event.whom not in self._undo and (self.whole() or not event.waits):
            self._waiting.pop(0)
            self._say(f"  {event.describe()}")
            self._undo[event.whom] = time.monotonic() + event.seconds, self._do(event)
            self._totals.faults[event.kind.value] += 1

    def whole(self) -> bool:
        """Whether no event is in progress, and every shard has all its devices with all contents."""
        if self._undo or time.monotonic() < self._calm:
            return False
        state = self._fabric.controller.context.memory.state()
        if not all(state.devices[host].alive for host in self._plan.devices):
            return False
        return all(
            state.regions[plan.name].state is RegionState.READY
            and all(placed.next is None and _has_all(placed.now, plan.replicas) for placed in state.shards[plan.name])
            for plan in self._plan.regions
        )

    def wait_whole(self) -> bool:
        """End what lasts, and wait; False if things do not get whole."""
        deadline = time.monotonic() + WHOLE
        while not self.whole():
            if time.monotonic() > deadline:
                return False
            self.look(-1)
            time.sleep(_POLL)
        return True

    def close(self) -> None:
        """Undo what lasts, whatever it is."""
        while self._undo:
            self._undo.popitem()[1][1]()

    def _do(self, event: Event) -> Callable[[], None]:
        """Begin it; returns how it is undone."""
        fabric = self._fabric
        if event.kind is Kind.KILL_DEVICE:
            device = fabric.memory.devices[event.what]
            device.kill()
            return lambda: _start(device)
        if event.kind is Kind.HANG_DEVICE:
            pid = fabric.memory.devices[event.what].pid
            os.kill(pid, signal.SIGSTOP)
            return lambda: os.kill(pid, signal.SIGCONT)
        if event.kind is Kind.MOVE:
            try:
                fabric.controller.move_region(event.what, event.to)
            except ControllerError as error:
                self._say(f"  no move: {error}")
            return lambda: None
        if event.kind is Kind.RESTART_SWITCH:
            fabric.kill_switch()
            self._wires.begin_anew()
            return fabric.start_switch
        if event.kind is Kind.LOSE:
            return self._lose(event.what)
        assert isinstance(fabric, ServesOutside), "only there it is a process"
        fabric.served.kill()
        return fabric.served.start

    def _lose(self, name: str) -> Callable[[], None]:
        """End all devices of a region; they are back with nothing."""
        devices = [self._fabric.memory.devices[host] for host in self._plan.region(name).hosts]
        for device in devices:
            device.kill()
        lost = time.monotonic()

        def undo() -> None:
            for device in devices:
                _start(device)
            self._renewed = self._renewing(name, lost)

        return undo


def _start(device: MemoryDevice) -> None:
    device.start()
    device.wait_ready()


def _has_all(shard: Shard, replicas: int) -> bool:
    members = shard.group.members
    return shard.lost or (
        shard.target is None and len(members) >= replicas and not any(each.joining for each in members)
    )
