"""What was measured, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from netsum_testbed.checking import Totals
from rich.table import Table

from netsum_trials.bytes.hosts import RANKS, SIZE, Bytes, HostVolume, Volume
from netsum_trials.bytes.links import Below, Line, LinkBytes, Stripe
from netsum_trials.tables import make_table


@dataclass
class LinkTotals(Totals):
    """``collectives``: each on its links, by topology. ``below``: an allreduce with more and more hosts below a leaf.
    ``stripes``: what each root of a leaf-spine carried, for given weights."""

    collectives: list[Line] = field(default_factory=list)
    below: list[Below] = field(default_factory=list)
    stripes: list[Stripe] = field(default_factory=list)

    @property
    def made(self) -> int:
        return len(self.collectives)

    @property
    def failures(self) -> int:
        """Directions with fewer bytes than the formula expects: then the formula, or a counter, is wrong."""
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
    figures = ">formula", ">measured", ">again"
    table = make_table(title, "collective", "link", "up", *figures, "down", *figures)
    for line in lines:
        table.add_row(line.collective, line.link, *_link_words(line.up), *_link_words(line.down))
    return table


def below_table(lines: Sequence[Below]) -> Table:
    """The same, by the number of hosts."""
    title = f"An allreduce with more and more hosts below a leaf: S = {SIZE:,}"
    figures = ">formula", ">measured"
    table = make_table(title, ">hosts below", ">their links", "up", *figures, "down", *figures)
    for line in lines:
        table.add_row(str(line.hosts), f"{line.sent:,}", *_words(line.up), *_words(line.down))
    return table


def stripes_table(stripes: Sequence[Stripe]) -> Table:
    """What each root carried."""
    title = "An allreduce striped over the roots of a leaf-spine"
    table = make_table(title, "weights", "link", ">share due", ">bytes up", ">share", ">bytes down", ">share")
    for each in stripes:
        up, down = (f"{each.up:,}", f"{each.up_share:.1%}"), (f"{each.down:,}", f"{each.down_share:.1%}")
        table.add_row(each.weights, each.link, f"{each.due:.1%}", *up, *down)
    return table


def volume_table(volumes: Sequence[Volume]) -> Table:
    """Bytes of each collective at the hosts, next to the formulas."""
    figures = ">formula", ">measured"
    title = f"Bytes at the hosts: n = {RANKS} ranks, S = {SIZE:,}"
    table = make_table(title, "collective", "rank", "sent", *figures, "received", *figures, ">again")
    for each in volumes:
        table.add_row(each.collective, each.who, *_words(each.sent), *_words(each.received), str(each.again))
    return table


def host_volume_table(volumes: Sequence[HostVolume], algorithm: str) -> Table:
    """Bytes that all ranks send together, next to the formulas."""
    title = f"Bytes by {algorithm}, of all ranks together: n = {RANKS} ranks, S = {SIZE:,}"
    table = make_table(title, "collective", "sent", ">formula", ">measured", ">again")
    for each in volumes:
        table.add_row(each.collective, *_words(each), str(each.again))
    return table
