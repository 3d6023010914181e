"""The measurements, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from netsum.agent.tables import make_table
from netsum_testbed.checking import Totals
from rich.table import Table

from netsum_trials.bytes.hosts import RANKS, SIZE, Bytes, HostVolume, Volume
from netsum_trials.bytes.links import Below, Line, LinkBytes, Stripe

_FIGURES: Final = (">formula", ">measured")


@dataclass
class LinkTotals(Totals):
    """``collectives``: each on its links, by topology. ``below``: an allreduce with a growing number of hosts below a leaf.
    ``stripes``: what each root of a leaf-spine carried, by weights."""

    collectives: list[Line] = field(default_factory=list)
    below: list[Below] = field(default_factory=list)
    stripes: list[Stripe] = field(default_factory=list)

    @property
    def made(self) -> int:
        return len(self.collectives)

    @property
    def failures(self) -> int:
        """Directions with fewer bytes than the formula expects, for which the formula or a counter is wrong."""
        ways = [way for line in self.collectives for way in (line.up, line.down)]
        ways += [way for line in self.below for way in (line.up, line.down)]
        return sum(way is not None and way.measured < way.expected for way in ways)

    def figures(self) -> dict[str, Any]:
        found = super().figures()
        del found["seed"]  # nothing is drawn
        return {**found, "wrong": self.failures, "size": SIZE}


def _words(way: Bytes) -> tuple[str, str, str]:
    return way.formula, f"{way.expected:,}", f"{way.measured:,}"


def _link_words(way: LinkBytes | None) -> Sequence[str]:
    return ("",) * 4 if way is None else (*_words(way), str(way.again))


def lines_table(title: str, lines: Sequence[Line]) -> Table:
    """Bytes up and down, next to the formulas."""
    figures = *_FIGURES, ">again"
    rows = ((each.collective, each.link, *_link_words(each.up), *_link_words(each.down)) for each in lines)
    return make_table(title, ("collective", "link", "up", *figures, "down", *figures), rows)


def below_table(lines: Sequence[Below]) -> Table:
    """Bytes by the number of hosts below a leaf."""
    title = f"An allreduce with a growing number of hosts below a leaf: S = {SIZE:,}"
    columns = ">hosts below", ">their links", "up", *_FIGURES, "down", *_FIGURES
    return make_table(
        title, columns, ((str(each.hosts), f"{each.sent:,}", *_words(each.up), *_words(each.down)) for each in lines)
    )


def stripes_table(stripes: Sequence[Stripe]) -> Table:
    """What each root carried."""
    columns = "weights", "link", ">share due", ">bytes up", ">share", ">bytes down", ">share"
    rows = (
        (each.weights, each.link, f"{each.due:.1%}", f"{each.up:,}", f"{each.up_share:.1%}", f"{each.down:,}",
         f"{each.down_share:.1%}")
        for each in stripes
    )  # fmt: skip
    return make_table("An allreduce striped over the roots of a leaf-spine", columns, rows)


def volume_table(volumes: Sequence[Volume]) -> Table:
    """Bytes of each collective at the hosts, next to the formulas."""
    columns = "collective", "rank", "sent", *_FIGURES, "received", *_FIGURES, ">again"
    rows = (
        (each.collective, each.who, *_words(each.sent), *_words(each.received), str(each.again)) for each in volumes
    )
    return make_table(f"Bytes at the hosts: n = {RANKS} ranks, S = {SIZE:,}", columns, rows)


def host_volume_table(volumes: Sequence[HostVolume], algorithm: str) -> Table:
    """Bytes that all ranks together send, next to the formulas."""
    title = f"Bytes by {algorithm}, of all ranks together: n = {RANKS} ranks, S = {SIZE:,}"
    rows = ((each.collective, *_words(each), str(each.again)) for each in volumes)
    return make_table(title, ("collective", "sent", *_FIGURES, ">again"), rows)
