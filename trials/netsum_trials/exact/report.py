"""What a run came to: totals, the table and the JSON line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from netsum.descriptor import SWITCH
from rich.box import SIMPLE_HEAD
from rich.table import Table

from netsum_trials.exact.cells import COLLECTIVES, KINDS, Kind
from netsum_trials.exact.host_volume import HostVolume
from netsum_trials.exact.volume import RANKS, SIZE, Volume


@dataclass
class Tally:
    """Cells of one collective, or of one topology."""

    cases: int = 0
    wrong: int = 0


@dataclass
class Totals:
    """``kinds``: which collectives, operations and types there were; ``dropped``: packets lost on purpose."""

    switch: str
    algorithm: str = SWITCH
    seed: int = 0
    by_collective: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in COLLECTIVES})
    by_topology: dict[str, Tally] = field(default_factory=dict)
    kinds: set[Kind] = field(default_factory=set)
    jobs: int = 0
    elements: int = 0
    seconds: float = 0.0
    packets: int = 0
    dropped: int = 0
    retransmissions: int = 0
    volumes: Sequence[Volume] | Sequence[HostVolume] = ()
    interrupted: bool = False

    @property
    def cases(self) -> int:
        """Cells that were made."""
        return sum(tally.cases for tally in self.by_collective.values())

    @property
    def wrong(self) -> int:
        """Cells whose result was wrong on any rank, or that raised."""
        return sum(tally.wrong for tally in self.by_collective.values())

    def count(self, kind: Kind, topology: str, elements: int, *, wrong: bool) -> None:
        """A cell that was checked."""
        for tally in (self.by_collective[kind.collective], self.by_topology.setdefault(topology, Tally())):
            tally.cases += 1
            tally.wrong += wrong
        self.kinds.add(kind)
        self.elements += elements

    @property
    def exit_code(self) -> int:
        """0 when every cell was right, 1 when one was not or none was made, 130 when Ctrl-C ended the run."""
        if self.interrupted:
            return 130
        return 1 if self.wrong or not self.cases else 0

    def to_json(self) -> str:
        """One line."""
        return json.dumps(
            {
                "cases": self.cases,
                "wrong": self.wrong,
                "by_collective": {name: asdict(tally) for name, tally in self.by_collective.items()},
                "by_topology": {name: asdict(tally) for name, tally in self.by_topology.items()},
                "switch": self.switch,
                "algorithm": self.algorithm,
                "seconds": round(self.seconds, 1),
                "seed": self.seed,
                "kinds": [len(self.kinds), len(KINDS)],
                "jobs": self.jobs,
                "elements": self.elements,
                "packets": self.packets,
                "dropped": self.dropped,
                "retransmissions": self.retransmissions,
                "bytes": [volume.to_json() for volume in self.volumes],
                "interrupted": self.interrupted,
            }
        )


def table_of(totals: Totals) -> Table:
    """Bytes of each collective, next to the formulas."""
    by_hosts = [volume for volume in totals.volumes if isinstance(volume, HostVolume)]
    by_switch = [volume for volume in totals.volumes if isinstance(volume, Volume)]
    return host_volume_table(by_hosts, totals.algorithm) if by_hosts else volume_table(by_switch)


def volume_table(volumes: Sequence[Volume]) -> Table:
    """Bytes of each collective at the hosts, next to the formulas."""
    table = Table(box=SIMPLE_HEAD, title=f"Bytes at the hosts: n = {RANKS} ranks, S = {SIZE:,}", title_justify="left")
    for name in ("collective", "rank"):
        table.add_column(name, no_wrap=True)
    for name in ("sent", "received"):
        table.add_column(name, no_wrap=True)
        table.add_column("formula", justify="right")
        table.add_column("measured", justify="right")
    table.add_column("again", justify="right")
    for volume in volumes:
        words = [volume.collective, volume.who]
        for way in (volume.sent, volume.received):
            words += [way.formula, f"{way.expected:,}", f"{way.measured:,}"]
        table.add_row(*words, str(volume.again))
    return table


def host_volume_table(volumes: Sequence[HostVolume], algorithm: str) -> Table:
    """Bytes that all ranks send together, next to the formulas."""
    title = f"Bytes by {algorithm}, of all ranks together: n = {RANKS} ranks, S = {SIZE:,}"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("collective", no_wrap=True)
    table.add_column("sent", no_wrap=True)
    for name in ("formula", "measured", "again"):
        table.add_column(name, justify="right")
    for volume in volumes:
        figures = f"{volume.expected:,}", f"{volume.measured:,}", str(volume.again)
        table.add_row(volume.collective, volume.formula, *figures)
    return table
