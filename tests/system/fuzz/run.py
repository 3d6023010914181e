# SPDX-License-Identifier: MIT
"""Sends batches to one switch, and every few batches compares everything that must not have changed."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

import click
from netsum.wire.schema import Outcome
from netsum_testbed.checking import Screen, Totals, count_option, only_option, running, seed_option, switch_option
from netsum_testbed.interrupts import interrupts_held
from netsum_testbed.switches import choose_switch

from tests.system.fuzz.expect import ARP, FORGED, FORWARDED, Expectation
from tests.system.fuzz.generate import Batch, make_batch
from tests.system.fuzz.setup import fetch_results, finish_blocks, make_blocks, result_differences
from tests.system.fuzz.targets import CrashedError, Echo, InProcess, OnWires, State, Target, state_differences

_SHOWN = 12
"""Differences that are printed; all are counted."""


@dataclass(frozen=True)
class FuzzPlan:
    """``packets`` in batches of ``batch``, from number ``first`` on; everything is compared after every ``batches`` of them.
    ``only``: just this batch of the seed."""

    packets: int
    seed: int = 1
    first: int = 0
    batch: int = 1000
    batches: int = 10
    only: int | None = None

    def sizes(self) -> Iterable[tuple[int, int]]:
        """(number, packets) of each batch. A shortened batch begins like the whole one."""
        if self.only is not None:
            yield self.only, self.batch
            return
        for number in count():
            left = self.packets - number * self.batch
            if left <= 0:
                return
            yield self.first + number, min(self.batch, left)


@dataclass
class FuzzTally:
    """One switch. ``state_changes``: records, buffers, entries, groups, counters and results that differ from what they
    were or should be; ``amplified``: answers with more bytes than what they answer. ``outcomes``: packets by the outcome
    that the switch counted, over all jobs; ``forwarded``: those that were not for it, ``forged``: those dropped because
    their address is not behind their port. ``bytes_in`` of all packets, ``bytes_out`` of the answers, ``bytes_forwarded``
    of other frames, with every copy of a flooded one."""

    packets: int = 0
    crashes: int = 0
    state_changes: int = 0
    amplified: int = 0
    left_out: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    forwarded: int = 0
    forged: int = 0
    arp: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_forwarded: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For the JSON line."""
        outcomes = dict(sorted(self.outcomes.items()))
        return {**vars(self), "outcomes": outcomes, "seconds": round(self.seconds, 1)}


@dataclass
class FuzzTotals(Totals):
    """The totals of all switches; ``sent``: packets to the current target."""

    switches: dict[str, FuzzTally] = field(default_factory=dict)
    sent: int = 0

    def tally(self, switch: str) -> FuzzTally:
        """The tally of a switch."""
        return self.switches.setdefault(switch, FuzzTally())

    def _sum(self, name: str) -> int:
        return sum(getattr(tally, name) for tally in self.switches.values())

    @property
    def made(self) -> int:
        return self._sum("packets")

    @property
    def failures(self) -> int:
        return self._sum("crashes") + self._sum("state_changes") + self._sum("amplified")

    @property
    def done(self) -> float:
        return self.sent

    @property
    def note(self) -> str:
        return f"{self.made:,} packets, {self._sum('crashes')} crashes, {self._sum('state_changes')} state changes"

    def figures(self) -> dict[str, Any]:
        outcomes: Counter[str] = Counter()
        for tally in self.switches.values():
            outcomes.update(tally.outcomes)
        names = ("packets", "crashes", "state_changes", "amplified", "bytes_in", "bytes_out")
        return {
            **{name: self._sum(name) for name in names},
            "outcomes": dict(sorted(outcomes.items())),
            "seed": self.seed,
            "interrupted": self.interrupted,
            "switches": {name: tally.to_dict() for name, tally in self.switches.items()},
        }


class SwitchFuzz:
    """One switch. Counts into its tally, which is consistent at any moment, since an exception may end a run."""

    def __init__(self, target: Target, plan: FuzzPlan, switch: str, totals: FuzzTotals, screen: Screen) -> None:
        self._target = target
        self._plan = plan
        self._totals = totals
        self._tally = totals.tally(switch)
        self._screen = screen
        self._unchecked: list[int] = []

    def run(self) -> None:
        """Set up, send, compare; print and count what goes wrong."""
        began = time.monotonic() - self._tally.seconds
        expectation = Expectation(make_blocks(self._target))
        self._results = fetch_results(self._target)
        self._state: State = self._target.state()
        self._counts = self._target.counts()
        self._expected: Counter[str] = Counter()
        try:
            for number, size in self._plan.sizes():
                self._send(make_batch(expectation, self._plan.seed, number, size, self._target.shortest))
                if len(self._unchecked) >= self._plan.batches:
                    self._check()
                self._tally.seconds = time.monotonic() - began
                self._totals.sent += size
                self._screen.show(self._totals)
            self._check()
            self._finish()
        except CrashedError as error:
            self._tally.crashes += 1
            self._complain([str(error)])
        self._tally.seconds = time.monotonic() - began

    def _send(self, batch: Batch) -> None:
        tally = self._tally
        self._unchecked.append(batch.number)
        echo = self._target.send(batch.packets, batch.verdicts)
        tally.packets += len(batch.packets)
        tally.left_out += batch.left_out
        tally.bytes_in += sum(len(frame) for _, frame in batch.packets)
        tally.bytes_out += echo.answer_bytes.total()
        tally.bytes_forwarded += echo.forwarded_bytes
        fates = Counter(str(verdict.fate) for verdict in batch.verdicts)
        tally.arp += fates[ARP]
        tally.forged += fates[FORGED]
        tally.forwarded += fates[FORWARDED]
        tally.outcomes.update(each.fate.name.lower() for each in batch.verdicts if isinstance(each.fate, Outcome))
        self._expected.update(batch.counts())
        self._judge(batch, echo)

    def _judge(self, batch: Batch, echo: Echo) -> None:
        """Check what left the switch: the answers and frames that were expected, and no answer larger than its question."""
        answers: Counter[int] = Counter()
        forwarded: Counter[int] = Counter()
        arrived: Counter[int] = Counter()
        for (port, frame), verdict in zip(batch.packets, batch.verdicts, strict=True):
            (answers if verdict.is_answer else forwarded).update(verdict.egress)
            arrived[port] += len(frame)
        larger = max(echo.larger, sum(echo.answer_bytes[port] > arrived[port] for port in echo.answer_bytes))
        if larger:
            self._tally.amplified += larger
            self._complain([f"batch {batch.number}: {larger} answers are larger than what they answer"])
        for name, wanted, got in (("answers", answers, echo.answers), ("forwarded", forwarded, echo.forwarded)):
            wrong = [port for port in wanted.keys() | got.keys() if wanted[port] != got[port]]
            self._count([f"batch {batch.number}: {got[port]} {name} on port {port} instead of {wanted[port]}" for port in wrong])

    def _check(self) -> None:
        """Compare everything; name the batches since the last comparison."""
        if not self._unchecked:
            return
        found = state_differences(self._state, self._target.state())
        read = self._target.counts()
        read.subtract(self._counts)
        found += [
            f"{name}: {read[name]} instead of {self._expected[name]}"
            for name in sorted(self._expected.keys() | read.keys())
            if self._expected[name] != read[name]
        ]
        if found:
            first, last = self._unchecked[0], self._unchecked[-1]
            self._complain([f"after batches {first} to {last} (repeat one with --only N):"])
            self._count(found)
            self._state, self._counts, self._expected = self._target.state(), self._target.counts(), Counter()
        self._unchecked.clear()

    def _finish(self) -> None:
        """Let the jobs go on: results must not have changed, and open blocks, once completed, must give the right sums."""
        self._count(result_differences(self._target, self._results))
        self._count(finish_blocks(self._target))

    def _count(self, found: list[str]) -> None:
        self._tally.state_changes += len(found)
        self._complain(found)

    def _complain(self, lines: list[str]) -> None:
        for line in lines[:_SHOWN]:
            self._screen.say(f"{self._target.name}: {line}")
        if len(lines) > _SHOWN:
            self._screen.say(f"{self._target.name}: ... and {len(lines) - _SHOWN} more")


# The ``make fuzz`` command.


PACKETS: Final = 1_000_000
SHARE: Final = 10
"""Of the embedded switch's packets, one in so many goes over its ports, the others straight into its data plane; with ``auto``,
simple_switch_grpc gets one for so many of the embedded switch's."""

_BATCHES_IN_PROCESS: Final = 5
_BATCHES_ON_WIRES: Final = 20


def plans(
    switch: str, packets: int, seed: int, only: int | None, rootless: bool
) -> Iterator[tuple[str, Callable[[], Target], FuzzPlan]]:
    """The parts of a run: a switch, what opens it, and its packets."""
    if switch in ("auto", "embedded"):
        straight = packets - packets // SHARE
        first = -(-straight // FuzzPlan.batch)  # on the wires other packets than before
        yield "embedded", InProcess, FuzzPlan(straight, seed, batches=_BATCHES_IN_PROCESS, only=only)
        on_wires = FuzzPlan(packets // SHARE, seed, first, batches=_BATCHES_ON_WIRES, only=only)
        yield "embedded", partial(OnWires, "embedded", rootless=rootless), on_wires
    if switch == "bmv2" or (switch == "auto" and not rootless and choose_switch("auto") == "bmv2"):
        number = packets // SHARE if switch == "auto" else packets
        yield "bmv2", partial(OnWires, "bmv2"), FuzzPlan(number, seed, batches=_BATCHES_ON_WIRES, only=only)


@click.command()
@count_option("--packets", default=PACKETS, text="malformed packets")
@switch_option("the embedded one, and simple_switch_grpc with a tenth of the packets if it is on PATH (and root)")
@seed_option()
@only_option("batch", "--only-batch")
def fuzz(packets: int, switch: str, seed: int, only: int | None) -> None:
    """Send malformed packets to a switch with live jobs and check that nothing changes but the counters of refusals.

    A tenth of the embedded switch's packets go over its ports, the others straight into its data plane. The last line is
    one JSON object; the exit code is 1 if a switch crashed, changed its state or answered with more bytes than it got.
    """
    rootless = os.geteuid() != 0
    if switch == "bmv2":
        choose_switch(switch)
        if rootless:
            raise click.UsageError("simple_switch_grpc needs network interfaces: run as root, or --switch embedded")
    totals = FuzzTotals(switch, seed)
    with running(totals) as screen:
        for name, open_target, plan in plans(switch, packets, seed, only, rootless):
            if not plan.packets:
                continue
            target = open_target()
            try:
                totals.sent = 0
                screen.begin(plan.packets, target.name)
                screen.say(f"{target.name}: {plan.packets:,} packets, seed {seed}")
                SwitchFuzz(target, plan, name, totals, screen).run()
            finally:
                with interrupts_held():
                    target.close()
