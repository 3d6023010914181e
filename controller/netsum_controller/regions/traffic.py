"""A region's packets at each switch."""

from __future__ import annotations

from netsum_controller.errors import SwitchError
from netsum_controller.memory.model import Region
from netsum_controller.site import Site
from netsum_controller.stages.memory import RegionCounts


def region_traffic(site: Site, region: Region) -> dict[str, RegionCounts]:
    """By switch; those that do not answer are not in it."""
    found = {}
    for name, switch in site.topology.switches.items():
        if switch.p4runtime is None:
            continue
        try:
            with site.client(name) as client:
                site.require_program(client)
                counts = client.read_region_traffic().get(region.id)
        except SwitchError:
            continue
        if counts is not None:
            found[name] = counts
    return found
