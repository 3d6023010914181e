"""The bytes on each link of a network, as its switches count them.

A switch counts what comes in. So both directions of a link between switches are known, each at its far end, and of a host's
link what the host has sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netsum_controller.context import ControllerContext


class Passed(NamedTuple):
    """Frames, and bytes of whole frames."""

    frames: int
    bytes: int


Way = tuple[str, str]
"""One direction of a link: from a host or a switch, to a switch."""

Traffic = Mapping[Way, Passed]


def read_links(context: ControllerContext) -> dict[Way, Passed]:
    """Read what has passed since the switches' programs were loaded; parallel links between two switches are added up. Takes one
    call per switch. Raises :class:`~netsum_controller.errors.SwitchError` if one does not answer."""
    passed: dict[Way, Passed] = {}
    for switch in context.topology.switches:
        senders = {host.port: name for name, host in context.topology.hosts_of(switch).items()}
        senders |= {port: other.switch for port, other in context.topology.neighbors(switch).items()}
        with context.client(switch) as client:
            counted = client.read_ports(senders)
        for port, sender in senders.items():
            way = (sender, switch)
            before = passed.get(way, Passed(0, 0))
            passed[way] = Passed(before.frames + counted[port][0], before.bytes + counted[port][1])
    return passed


def between(before: Traffic, after: Traffic) -> dict[Way, Passed]:
    """What has passed between two readings."""
    return {
        way: Passed(frames - before[way].frames, octets - before[way].bytes) for way, (frames, octets) in after.items()
    }
