"""A network of clients' and devices' hosts around one switch, whose wires can be bad."""

from __future__ import annotations

from collections import Counter
from typing import Final, Self

from netsum.transports.base import Transport
from netsum.transports.impairment import ImpairedTransport, ImpairmentCounts
from netsum_controller.config.topologies import star
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric

from netsum_trials.faults.scenario import Rates
from netsum_trials.memory.plan import CLIENTS, Kind, Site
from netsum_trials.soak.outside import OutsideRootless, ServesOutside

DEVICES: Final = {"h9": True, "h10": True, "h11": True, "h12": False, "h13": False}
"""By host, whether a device has its memory in files."""
SETTLES: Final = 6.0
"""Seconds until everything is whole after an event, more or less."""


def open_site(switch: str, *, rootless: bool) -> Fabric:
    """Without root the controller is a process of its own, which can be killed."""
    topology = star(CLIENTS + len(DEVICES))
    return OutsideRootless(topology, switch) if rootless else NamespaceFabric(topology, switch)


def possible_on(fabric: Fabric) -> Site:
    """What can happen there."""
    outside = isinstance(fabric, ServesOutside)
    kinds = [kind for kind in Kind if outside or kind is not Kind.RESTART_CONTROLLER]
    return Site(tuple(DEVICES), settling=SETTLES, kinds=kinds, files=DEVICES)


class Wires:
    """What is done to packets: at the ports of a rootless fabric's switch, where all of clients and devices pass; else at the
    clients. It is counted in ``faults``."""

    def __init__(self, fabric: Fabric, rates: Rates, seed: int, faults: Counter[str]) -> None:
        self._fabric, self._rates, self._seed, self._faults = fabric, rates, seed, faults
        self._counts = ImpairmentCounts()
        self._before: Counter[str] | None = None

    def __enter__(self) -> Self:
        if isinstance(self._fabric, ServesOutside):
            rates = self._rates.model_dump(exclude_defaults=True)
            hosts = self._fabric.topology.hosts.values()
            ports = {str(host.port): {"in": rates, "out": rates} for host in hosts} if rates else {}
            self._before = self._fabric.set_wires("s1", {"seed": self._seed, "ports": ports})
        return self

    def wrap(self, transport: Transport) -> Transport:
        """A client's transport."""
        if self._before is not None:
            return transport
        self._seed += 1
        return ImpairedTransport(transport, self._rates.faults(), self._seed, counts=self._counts)

    def begin_anew(self) -> None:
        """The switch's process has ended, and the next one counts from zero."""
        if self._before is not None:
            self._before = Counter()

    def __exit__(self, *_: object) -> None:
        """Let everything pass again."""
        if isinstance(self._fabric, ServesOutside) and self._before is not None:
            found = self._fabric.set_wires("s1", {})
            found.subtract(self._before)
            done = {"loss": found["lost"], "duplicate": found["duplicated"], "reorder": found["reordered"]}
        else:
            counts = self._counts
            done = {"loss": counts.dropped, "duplicate": counts.duplicated, "reorder": counts.reordered}
        self._faults.update({name: number for name, number in done.items() if number > 0})
