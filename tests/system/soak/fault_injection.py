# SPDX-License-Identifier: MIT
"""The events of a round, besides packet faults: each begins at its time and is undone when it is over."""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace

from netsum.descriptor import SWITCH
from netsum_controller.errors import ControllerError
from netsum_controller.state.model import Job

from tests.system.faults.fabrics import ServesOutside
from tests.system.faults.make import GONE, KernelLink, KernelTrunk
from tests.system.faults.scenario import Event, EventKind, Rates, Where
from tests.system.soak.error_attribution import BAD_LINK, History, Trouble
from tests.system.soak.messages import WorkerSetup
from tests.system.soak.workers import Workers

_TRIES = 40
"""How often the controller is asked to undo something."""
_PAUSE = 0.5


class FaultInjector:
    """The events of one round. They happen in the thread that calls :meth:`run`, are recorded in the ``history``, and counted in
    ``faults``."""

    def __init__(
        self,
        fabric: ServesOutside,
        workers: Workers,
        setups: list[WorkerSetup],
        job: Job,
        history: History,
        faults: Counter[str],
        say: Callable[[str], None],
    ) -> None:
        self._fabric, self._workers, self._setups, self._job, self._history = fabric, workers, setups, job, history
        self._faults, self._say = faults, say
        self._scenario = setups[0].plan.scenario
        self._waiting = list(self._scenario.events)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._links: dict[int, KernelLink] = {}
        self._trunks: dict[str, KernelTrunk] = {}
        self._cut_trunks: set[str] = set()
        self._stack = ExitStack()
        self._closing = False
        self.stalled: list[tuple[int, float]] = []
        """Ranks that were stalled, and for how long, since this was last emptied."""
        self.killed: set[int] = set()
        """Ranks that were killed and not yet replaced."""

    def __enter__(self) -> FaultInjector:
        scenario, kernel = self._scenario, self._scenario.where is Where.KERNEL
        for rank, link in scenario.links.items():
            if any(rates.loss or rates.delay_ms for rates in (link.up, link.down)):
                self._history.begins(BAD_LINK, [rank], -math.inf)
        for name in scenario.trunks:
            self._history.begins(BAD_LINK, self._beyond(name), -math.inf)
        if kernel:
            for rank, host in enumerate(self._job.members):
                self._links[rank] = self._stack.enter_context(KernelLink(self._fabric, host, scenario.link(rank)))
        cut = {event.what for event in scenario.events if event.kind is EventKind.CUT_TRUNK}
        for name in self._fabric.topology.links:
            if (kernel and name in scenario.trunks) or (name in cut and self._fabric.switch != "embedded"):
                loss = scenario.trunks[name].loss if name in scenario.trunks else 0.0
                self._trunks[name] = self._stack.enter_context(KernelTrunk(self._fabric, name, loss))
        self._stack.callback(self._good_wires)
        if scenario.where is Where.SWITCH:
            for name in self._fabric.topology.switches:
                self._wire(name)
        return self

    def _beyond(self, trunk: str) -> list[int]:
        """The ranks that reach a spine over this link."""
        ends = self._fabric.topology.links[trunk].switches
        hosts = self._fabric.topology.hosts
        return [rank for rank, host in enumerate(self._job.members) if hosts[host].switch in ends]

    def _wire(self, switch: str) -> None:
        """Give an embedded switch the scenario's wire faults and cuts; what a host sends up comes in."""
        topology, scenario = self._fabric.topology, self._scenario
        ports: dict[str, object] = {}
        disturbs = scenario.where is Where.SWITCH
        for rank, link in scenario.links.items() if disturbs else ():
            if (place := topology.hosts[self._job.members[rank]]).switch == switch:
                ports[str(place.port)] = {"in": _dump(link.up), "out": _dump(link.down)}
        for name, trunk in topology.links.items():
            rates = _dump(scenario.trunks[name]) if disturbs and name in scenario.trunks else {}
            rates = {"loss": 1.0} if name in self._cut_trunks else rates
            for end, port in zip(trunk.switches, trunk.ports, strict=True):
                if end == switch and rates:
                    ports[str(port)] = {"out": rates}
        self._fabric.set_wires(switch, {"seed": scenario.seed, "ports": ports})

    def _good_wires(self) -> None:
        self._faults.update({f"switch_{kind}": number for kind, number in self._fabric.good_wires().items()})

    def __exit__(self, *_: object) -> None:
        """Undo the rest, so that the next round begins on a whole fabric."""
        self._closing = True
        try:
            while self._agenda:
                heapq.heappop(self._agenda)[2]()
        finally:
            self._stack.close()
            kernel = [*self._links.values(), *self._trunks.values()]
            lost = sum(each.lost for each in kernel)
            cut = sum(each.cut_off for each in kernel)
            self._faults.update({name: n for name, n in (("kernel_loss", lost), ("cut_packets", cut)) if n})

    @property
    def over(self) -> bool:
        """True if everything that was begun is undone."""
        return not self._agenda

    def begun(self, step: int) -> None:
        """The first rank begins this step; the next :meth:`run` begins the step's events."""
        for event in [event for event in self._waiting if event.after <= step]:
            self._waiting.remove(event)
            self._at(0.0, lambda event=event: self._do(event))  # type: ignore[misc]  # a lambda with a default

    def next_time(self) -> float | None:
        """Time at which :meth:`run` has something to do (``time.monotonic()``)."""
        return self._agenda[0][0] if self._agenda else None

    def run(self) -> None:
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heapq.heappop(self._agenda)[2]()

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._agenda, (time.monotonic() + seconds, self._serial, action))

    def _do(self, event: Event) -> None:
        """Begin the event. If the controller refuses it, print that and forget the event."""
        trouble = self._history.begins(event.kind.value, self._held_up(event), time.monotonic())
        try:
            getattr(self, f"_{event.kind.value}")(event, trouble)
            self._faults[event.kind.value] += 1
        except ControllerError as error:
            trouble.over = time.monotonic()
            self._say(f"  no {event.kind.value}: {error}")

    def _held_up(self, event: Event) -> Collection[int] | None:
        """The ranks that it holds up; None for all."""
        if event.rank is not None:
            return [event.rank]
        if event.kind is EventKind.CUT_TRUNK:
            return self._beyond(event.which)
        if event.kind is EventKind.RESTART_SWITCH:
            return None if (event.what or self._job.switch) in self._job.switches else ()
        return None

    def _until(self, event: Event, trouble: Trouble, undo: Callable[[], object]) -> None:
        """Undo it when its time is up; then it is over."""

        def undone() -> None:
            undo()
            trouble.over = time.monotonic()

        self._at(event.seconds, undone)

    def _stall(self, event: Event, trouble: Trouble) -> None:
        self.stalled.append((event.whom, event.seconds))
        trouble.over = time.monotonic() + event.seconds
        self._workers.command(event.whom, "stall", event.seconds)

    def _cut(self, event: Event, trouble: Trouble) -> None:
        if link := self._links.get(event.whom):
            link.cut()
            self._until(event, trouble, link.heal)
        else:
            self._workers.command(event.whom, "cut")
            self._until(event, trouble, lambda: self._workers.command(event.whom, "heal"))

    def _cut_trunk(self, event: Event, trouble: Trouble) -> None:
        name = event.which
        if trunk := self._trunks.get(name):
            trunk.cut()
            self._until(event, trouble, trunk.heal)
            return

        def wire(change: Callable[[str], None]) -> None:
            change(name)
            for switch in self._fabric.topology.links[name].switches:
                self._wire(switch)

        wire(self._cut_trunks.add)
        self._until(event, trouble, lambda: wire(self._cut_trunks.discard))

    def _kill(self, event: Event, trouble: Trouble) -> None:
        self._workers.kill(event.whom)
        self.killed.add(event.whom)

        def replaced() -> None:
            self.killed.discard(event.whom)
            self._workers.post(replace(self._setups[event.whom], first=False))

        self._until(event, trouble, replaced)

    def _restart_switch(self, event: Event, trouble: Trouble) -> None:
        name = event.what or self._job.switch
        self._fabric.kill_switch(name)

        def started() -> None:
            self._fabric.start_switch(name)
            self._persist(trouble, lambda: self._restored(name))
            if event.seconds >= GONE:  # the job may have moved to its members
                back = self._history.begins(event.kind.value, None, time.monotonic())
                self._persist(back, self._to_switch)

        self._until(event, trouble, started)

    def _restart_controller(self, event: Event, trouble: Trouble) -> None:
        self._fabric.served.kill()
        self._until(event, trouble, self._fabric.served.start)

    def _hang_controller(self, event: Event, trouble: Trouble) -> None:
        self._fabric.served.hang(hang=True)
        self._until(event, trouble, lambda: self._fabric.served.hang(hang=False))

    def _move(self, event: Event, trouble: Trouble) -> None:
        self._fabric.controller.move(self._job.name, event.which)
        self._at(event.seconds, lambda: self._persist(trouble, self._to_switch))

    def _evict(self, event: Event, trouble: Trouble) -> None:
        self._fabric.controller.evict(self._job.name, event.whom)

        def admit() -> None:
            self._fabric.controller.admit(self._job.name, event.whom)
            self._workers.command(event.whom, "admitted")

        self._at(event.seconds, lambda: self._persist(trouble, admit))

    def _restored(self, switch: str) -> None:
        """Check that the controller has reloaded the program, which the next job needs."""
        context = self._fabric.controller.context
        with context.client(switch) as client:
            context.require_program(client)

    def _to_switch(self) -> None:
        self._fabric.controller.move(self._job.name, SWITCH)

    def _persist(self, trouble: Trouble, undo: Callable[[], None], tries: int = _TRIES) -> None:
        """Undo it as soon as the controller can; a switch may still be away."""
        try:
            undo()
        except ControllerError as error:
            if tries and not self._closing:
                self._at(_PAUSE, lambda: self._persist(trouble, undo, tries - 1))
                return
            self._say(f"  {trouble.kind} is not undone: {error}")
        trouble.over = time.monotonic()


def _dump(rates: Rates) -> dict[str, object]:
    return rates.model_dump(exclude_defaults=True)
