"""The ``make fuzz`` command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import click
from netsum_testbed.checking import count_option, only_option, running, seed_option, switch_option
from netsum_testbed.interrupts import interrupts_held
from netsum_testbed.switches import choose_switch

from netsum_trials.strangers.in_process import InProcess
from netsum_trials.strangers.on_wires import OnWires
from netsum_trials.strangers.report import FuzzTotals
from netsum_trials.strangers.run import Plan, Run
from netsum_trials.strangers.target import Target

PACKETS: Final = 1_000_000
SHARE: Final = 10
"""Of the embedded switch's packets, one in so many goes over its ports, the others straight into its data plane; with ``auto``,
simple_switch_grpc gets one for so many of the embedded switch's."""

_BATCHES_IN_PROCESS: Final = 5
_BATCHES_ON_WIRES: Final = 20


@dataclass(frozen=True)
class _Part:
    """So many packets for one target of a switch."""

    switch: str
    packets: int
    open: Callable[[], Target]
    batches: int
    first: int = 0


def parts(switch: str, packets: int, rootless: bool) -> Iterator[_Part]:
    """The parts of a run."""
    if switch in ("auto", "embedded"):
        share = packets // SHARE
        yield _Part("embedded", packets - share, InProcess, _BATCHES_IN_PROCESS)
        first = -(-(packets - share) // Plan.batch)  # other packets than in the part before
        yield _Part("embedded", share, lambda: OnWires("embedded", rootless=rootless), _BATCHES_ON_WIRES, first)
    if switch == "bmv2" or (switch == "auto" and not rootless and choose_switch("auto") == "bmv2"):
        yield _Part(
            "bmv2", packets // SHARE if switch == "auto" else packets, lambda: OnWires("bmv2"), _BATCHES_ON_WIRES
        )


@click.command()
@count_option("--packets", default=PACKETS, told="malformed packets")
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
        for part in parts(switch, packets, rootless):
            if not part.packets:
                continue
            target = part.open()
            try:
                totals.sent = 0
                screen.begin(part.packets, target.name)
                screen.say(f"{target.name}: {part.packets:,} packets, seed {seed}")
                plan = Plan(part.packets, seed, part.first, batches=part.batches, only=only)
                Run(target, plan, part.switch, totals, screen).run()
            finally:
                with interrupts_held():
                    target.close()
