"""What an uplink carries when there are more and more hosts below it: the same."""

from __future__ import annotations

from dataclasses import dataclass

from netsum_trials.bytes.measure import Bytes, Network, uplinks
from netsum_trials.bytes.rules import RULES


@dataclass(frozen=True)
class Below:
    """An allreduce with so many ``hosts`` of the job below a leaf: bytes on their links together, and on the leaf's uplink."""

    hosts: int
    sent: int
    up: Bytes
    down: Bytes


def below(made: Network, leaf: str) -> Below:
    """An allreduce, as the links of one leaf see it."""
    traffic = made.call("allreduce")
    line = uplinks(made, RULES[0], leaf, traffic)
    hosts = [host for host in made.members if made.fabric.topology.hosts[host].switch == leaf]
    assert line.down is not None
    return Below(len(hosts), sum(traffic[host, leaf].bytes for host in hosts), line.up, line.down)
