"""A region's packets at each switch."""

from __future__ import annotations

from netsum_controller.context import ControllerContext
from netsum_controller.entries.memory import RegionCounts
from netsum_controller.errors import SwitchError
from netsum_controller.memory.model import Region


def region_traffic(context: ControllerContext, region: Region) -> dict[str, RegionCounts]:
    """By switch; those that do not answer are not in it."""
    found = {}
    for name, switch in context.topology.switches.items():
        if switch.p4runtime is None:
            continue
        try:
            with context.client(name) as client:
                context.require_program(client)
                counts = client.read_region_traffic().get(region.id)
        except SwitchError:
            continue
        if counts is not None:
            found[name] = counts
    return found
