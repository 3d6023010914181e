"""Stage ``aggregator``: the switch's own address and those of the other switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from netsum_controller.stages.entry import Entry


@dataclass(frozen=True)
class AggregatorEntry(Entry):
    """The switch answers ARP for ``address`` with ``mac``, and accepts contributions sent there."""

    TABLE: ClassVar = "aggregator"
    ACTION: ClassVar = "aggregator_here"
    KEY: ClassVar = ("address",)

    address: int
    mac: int


@dataclass(frozen=True)
class ElsewhereEntry(Entry):
    """``address`` is another switch's. netsum's packets for it, which only a host would send through us, are dropped."""

    TABLE: ClassVar = "aggregator"
    ACTION: ClassVar = "elsewhere"
    KEY: ClassVar = ("address",)

    address: int
