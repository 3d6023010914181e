"""What was measured, as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from rich.box import SIMPLE_HEAD
from rich.table import Table

from netsum_trials.bytes.below import Below
from netsum_trials.bytes.measure import SIZE, Bytes, Line
from netsum_trials.bytes.stripes import Stripe


@dataclass
class Report:
    """``collectives``: each on its links, by topology. ``below``: an allreduce with more and more hosts below a leaf.
    ``stripes``: what each root of a leaf-spine carried, for given weights."""

    switch: str
    collectives: list[Line] = field(default_factory=list)
    below: list[Below] = field(default_factory=list)
    stripes: list[Stripe] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def wrong(self) -> int:
        """Directions with fewer bytes than the formula expects: then the formula, or a counter, is wrong."""
        ways = [way for line in self.collectives for way in (line.up, line.down)]
        ways += [way for line in self.below for way in (line.up, line.down)]
        return sum(way is not None and way.measured < way.expected for way in ways)

    @property
    def exit_code(self) -> int:
        """0 when nothing is wrong, 130 when Ctrl-C ended the run."""
        if self.interrupted:
            return 130
        return 1 if self.wrong or not self.collectives else 0

    def to_json(self) -> str:
        """One line."""
        return json.dumps(
            {
                "switch": self.switch,
                "wrong": self.wrong,
                "size": SIZE,
                "collectives": [asdict(line) for line in self.collectives],
                "below": [asdict(line) for line in self.below],
                "stripes": [asdict(stripe) for stripe in self.stripes],
                "seconds": round(self.seconds, 1),
                "interrupted": self.interrupted,
            }
        )


def lines_table(title: str, lines: Sequence[Line]) -> Table:
    """Bytes up and down, next to the formulas."""
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("collective", no_wrap=True)
    table.add_column("link", no_wrap=True)
    for way in ("up", "down"):
        table.add_column(way, no_wrap=True)
        for name in ("formula", "measured", "again"):
            table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(line.collective, line.link, *_words(line.up), *_words(line.down))
    return table


def _words(way: Bytes | None) -> Sequence[str]:
    if way is None:
        return ("",) * 4
    return way.formula, f"{way.expected:,}", f"{way.measured:,}", str(way.again)


def below_table(lines: Sequence[Below]) -> Table:
    """The same, by the number of hosts."""
    title = f"An allreduce with more and more hosts below a leaf: S = {SIZE:,}"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    for name in ("hosts below", "their links", "up", "formula", "measured", "down", "formula", "measured"):
        table.add_column(name, justify="left" if name in ("up", "down") else "right", no_wrap=True)
    for line in lines:
        table.add_row(str(line.hosts), f"{line.sent:,}", *_words(line.up)[:3], *_words(line.down)[:3])
    return table


def stripes_table(stripes: Sequence[Stripe]) -> Table:
    """What each root carried."""
    table = Table(box=SIMPLE_HEAD, title="An allreduce striped over the roots of a leaf-spine", title_justify="left")
    for name in ("weights", "link"):
        table.add_column(name, no_wrap=True)
    for name in ("share due", "bytes up", "share", "bytes down", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for stripe in stripes:
        shares = (
            f"{stripe.due:.1%}",
            f"{stripe.up:,}",
            f"{stripe.up_share:.1%}",
            f"{stripe.down:,}",
            f"{stripe.down_share:.1%}",
        )
        table.add_row(stripe.weights, stripe.link, *shares)
    return table
