"""What goes wrong in a round beside lost packets: each event is done when its time has come, and undone when it is over."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from netsum_controller.errors import ControllerError

from netsum_testbed.faults.kernel import KernelLink
from netsum_testbed.faults.scenario import Event, Kind, Scenario, Where
from netsum_testbed.soak.crew import Crew
from netsum_testbed.soak.judge import Judge
from netsum_testbed.soak.outside import ServesOutside
from netsum_testbed.soak.report import Totals
from netsum_testbed.soak.words import Posting


class Incidents:
    """The events of one round. Everything is done by whoever calls :meth:`run`, in its thread."""

    def __init__(
        self,
        fabric: ServesOutside,
        crew: Crew,
        postings: list[Posting],
        judge: Judge,
        totals: Totals,
        say: Callable[[str], None],
    ) -> None:
        self._fabric, self._crew, self._postings, self._judge = fabric, crew, postings, judge
        self._totals, self._say = totals, say
        self._waiting = list(postings[0].plan.scenario.events)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._links: dict[int, KernelLink] = {}
        self._stack = ExitStack()
        self._restarted = False
        self._before: Counter[str] = Counter()
        self.stalled: list[tuple[int, float]] = []
        """Ranks that were made to stand still, and for how long, since this was last emptied."""
        self.killed: set[int] = set()
        """Ranks that were killed and not replaced yet."""

    def __enter__(self) -> Incidents:
        scenario = self._postings[0].plan.scenario
        if scenario.where is Where.KERNEL:
            hosts = list(self._fabric.topology.hosts)
            for rank in range(len(self._postings)):
                link = KernelLink(self._fabric, hosts[rank], scenario.link(rank))
                self._links[rank] = self._stack.enter_context(link)
        elif scenario.where is Where.SWITCH:
            self._before = self._fabric.set_wires(self._wires(scenario))
            self._stack.callback(self._good_wires)
        return self

    def _wires(self, scenario: Scenario) -> dict[str, object]:
        """The scenario's links as the switch takes them: what goes up comes in."""
        places = list(self._fabric.topology.hosts.values())
        ports = {}
        for rank, link in scenario.links.items():
            up, down = (rates.model_dump(exclude_defaults=True) for rates in (link.up, link.down))
            ports[str(places[rank].port)] = {"in": up, "out": down}
        return {"seed": scenario.seed, "ports": ports}

    def _good_wires(self) -> None:
        done = self._fabric.set_wires({})
        if self._restarted:
            self._before.clear()  # the switch that counted them is gone
        done.subtract(self._before)
        for name, counted in (
            ("loss", "lost"),
            ("duplicate", "duplicated"),
            ("reorder", "reordered"),
            ("delay", "delayed"),
        ):
            if done[counted] > 0:
                self._totals.faults[f"switch_{name}"] += done[counted]

    def __exit__(self, *_: object) -> None:
        """Undo what is not undone yet: the next round begins on a fabric that is whole."""
        try:
            while self._agenda:
                heapq.heappop(self._agenda)[2]()
        finally:
            self._stack.close()
            lost = sum(link.lost for link in self._links.values())
            cut = sum(link.cut_off for link in self._links.values())
            self._totals.faults.update({name: n for name, n in (("kernel_loss", lost), ("cut_packets", cut)) if n})

    @property
    def over(self) -> bool:
        """Whether everything that was begun is undone."""
        return not self._agenda

    def begun(self, step: int) -> None:
        """The first rank begins this step: what is to happen then happens at the next :meth:`run`."""
        for event in [event for event in self._waiting if event.after <= step]:
            self._waiting.remove(event)
            self._at(0.0, lambda event=event: self._do(event))  # type: ignore[misc]  # a lambda with a default

    def next_time(self) -> float | None:
        """When :meth:`run` has something to do (``time.monotonic()``)."""
        return self._agenda[0][0] if self._agenda else None

    def run(self) -> None:
        """Do what is due."""
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heapq.heappop(self._agenda)[2]()

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._agenda, (time.monotonic() + seconds, self._serial, action))

    def _do(self, event: Event) -> None:
        getattr(self, f"_{event.kind.value}")(event)
        self._totals.faults[event.kind.value] += 1

    def _stall(self, event: Event) -> None:
        assert event.rank is not None
        self.stalled.append((event.rank, event.seconds))
        self._crew.command(event.rank, "stall", event.seconds)

    def _cut(self, event: Event) -> None:
        rank = event.rank
        assert rank is not None
        if link := self._links.get(rank):
            link.cut()
            self._at(event.seconds, link.heal)
        else:
            self._crew.command(rank, "cut")
            self._at(event.seconds, lambda: self._crew.command(rank, "heal"))

    def _kill(self, event: Event) -> None:
        rank = event.rank
        assert rank is not None
        self._judge.upheaval = True
        self._crew.kill(rank)
        self.killed.add(rank)

        def replaced() -> None:
            self.killed.discard(rank)
            self._crew.post(replace(self._postings[rank], first=False))

        self._at(event.seconds, replaced)

    def _restart_switch(self, event: Event) -> None:
        self._restarted = True
        self._fabric.kill_switch()
        self._at(event.seconds, self._fabric.start_switch)

    def _restart_controller(self, event: Event) -> None:
        self._fabric.kill_controller()
        self._at(event.seconds, self._fabric.start_controller)

    def _evict(self, event: Event) -> None:
        rank, job = event.rank, self._postings[0].job
        assert rank is not None
        self._judge.upheaval = True
        self._judge.evicted.add(rank)
        try:
            self._fabric.controller.evict(job, rank)
        except ControllerError as error:
            self._say(f"  rank {rank} could not be evicted: {error}")
            self._totals.faults[Kind.EVICT.value] -= 1
            return

        def admit() -> None:
            self._fabric.controller.admit(job, rank)
            self._crew.command(rank, "admitted")

        self._at(event.seconds, admit)
