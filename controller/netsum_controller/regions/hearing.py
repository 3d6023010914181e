"""Hears memory devices: ``POST /v1/memory/devices/HOST``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netsum_controller.errors import NoSuchHost
from netsum_controller.memory.devices import DeviceReport, orders
from netsum_controller.memory.model import Device
from netsum_controller.site import Site


def hear(site: Site, host: str, report: DeviceReport) -> dict[str, Any]:
    """Note a device's report; returns its orders. Raises :class:`NoSuchHost`."""
    if host not in site.topology.hosts:
        raise NoSuchHost(host, site.topology.name)
    site.beats.hear(host, report)
    state = site.memory.state()
    known = state.devices.get(host, Device(host, 0))
    now = replace(known, incarnation=report.incarnation, durable=report.durable, alive=True)
    if now != known or (known.free is None) != (report.free is None):
        with site.store.transaction():
            site.memory.set_device(replace(now, free=report.free))
        site.beats.wake.set()
    return orders(site.topology, state, host, report, site.beats.lease)
