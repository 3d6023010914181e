"""Stage ``aggregator``: the switch's own address and those of the other switches."""

from __future__ import annotations

from dataclasses import dataclass

from netsum_controller.entries.entry import Entry


@dataclass(frozen=True)
class AggregatorEntry(Entry, table="aggregator", action="aggregator_here", key=("address",)):
    """The switch answers ARP for ``address`` with ``mac``, and accepts contributions sent there."""

    address: int
    mac: int


@dataclass(frozen=True)
class ElsewhereEntry(Entry, table="aggregator", action="elsewhere", key=("address",)):
    """``address`` is another switch's. netsum's packets for it, which only a host would send through us, are dropped."""

    address: int
