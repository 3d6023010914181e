# SPDX-License-Identifier: MIT
"""Where an aggregator is: its addresses and ports, and what the cables of its machine and of the hosts carry."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import click
from netsum.transports.interfaces import interface_of, mtu_of
from netsum.transports.link_speed import speed_of_interface
from netsum.wire.schema import SWITCH_SOURCE, UDP_PORT
from netsum_controller.config.topology import Topology, mac_of
from netsum_planner.training.coprocessor import Cluster, advice

from netsum_testbed.errors import TestbedError
from netsum_testbed.raw_interface import check_raw_interface

NAME: Final = "aggregator"
HTTP_PORT: Final = 8080
Advice = tuple[tuple[int, float], ...]
"""See :class:`netsum.descriptor.Descriptor`."""
_MBPS: Final = 125e3
"""Bytes a second in 1 Mbit/s."""
UNKNOWN: Final = "is virtual, or does not say"
_ANY_HOST: Final = ("192.0.2.1", 9)  # TEST-NET-1 (RFC 5737): nothing is sent there


class Origin(NamedTuple):
    """Where a rank is: ranks with the same ``host`` share memory; ``link_mbps`` is the speed of that host's cable as its
    interface says it, 0 if it is not known."""

    host: str
    link_mbps: int = 0


@dataclass(frozen=True)
class Place:
    """Where an aggregator is: the address of this machine that it uses (``host``), the ports of its ``https`` and ``udp``
    there, and the address at which hosts reach both (``advertise``). ``mtu``: largest IP packet on the way to every host,
    bytes. ``folder`` keeps what must outlive it: the state of its jobs, its certificate and the token of the join line. With
    ``interface``, the switch takes raw frames there and has ``switch_address``, which the kernel does not have, as its own; the
    UDP port is then that of the P4 program, :data:`UDP_PORT`. With several ``stripes``, as many switches share the blocks, at
    UDP ports in a row, in turns at ``host`` and ``others``, further addresses of this machine."""

    folder: Path
    host: str
    advertise: str
    mtu: int
    https: int = HTTP_PORT
    udp: int = UDP_PORT
    interface: str = ""
    switch_address: str = ""
    stripes: int = 1
    others: tuple[str, ...] = ()
    multicast: bool = False
    """Results leave once for all hosts that can join an IP multicast group."""
    host_rate: float | None = None
    """Of a host's cable, bytes a second; None: what the hosts' interfaces say."""
    aggregator_rate: float | None = None
    """Of this machine's cables together; None: not known."""
    rate_source: str = "--aggregator-rate"
    """What gives ``aggregator_rate``: the option, or the names of interfaces; if it is None, the interface that does not."""

    @property
    def endpoint(self) -> str:
        """ADDRESS:PORT that hosts send their gradients to, by UDP."""
        return f"{self.switch_address}:{UDP_PORT}" if self.interface else f"{self.advertise}:{self.udp}"

    @property
    def switches(self) -> dict[str, tuple[str, int]]:
        """The address of this machine and the UDP port of each switch, by name."""
        addresses = (self.host, *self.others)
        return {
            f"{NAME}-{number}" if number else NAME: (addresses[number % len(addresses)], self.udp + number)
            for number in range(self.stripes)
        }

    def cable_of(self, origins: Sequence[Origin]) -> float | None:
        """The rate of a host's cable, bytes a second: of the slowest, for which all others wait. None: not known."""
        if self.host_rate is not None or not origins:
            return self.host_rate
        return min(each.link_mbps for each in origins) * _MBPS or None

    def advice(self, origins: Sequence[Origin]) -> Advice:
        """Which calls of a job with these ranks may be faster without the aggregator or by both at once; none if a cable's rate
        is not known."""
        ranks, rate = Counter(each.host for each in origins), self.cable_of(origins)
        if rate is None or self.aggregator_rate is None or len(ranks) < 2:
            return ()
        return advice(Cluster(len(ranks), rate, self.aggregator_rate, max(ranks.values()), self.multicast, self.stripes))

    def rates_in_words(self, origins: Sequence[Origin] = ()) -> str:
        """The rates that :meth:`advice` follows from, and who says so; without ``origins``, before hosts have joined."""
        own, rate = self.aggregator_rate, self.cable_of(origins)
        aggregator = f"{in_bits(own)} ({self.rate_source})" if own else f"not known ({self.rate_source} {UNKNOWN})"
        if rate is not None:
            by = "--host-rate" if self.host_rate is not None else "the least that their interfaces say"
            hosts = f"{in_bits(rate)} ({by})"
        elif origins:
            silent = next(rank for rank, each in enumerate(origins) if not each.link_mbps)
            hosts = f"not known (the interface of rank {silent} {UNKNOWN})"
        else:
            hosts = "as their interfaces say when they join"
        is_known = own is not None and (rate is not None or not origins)
        return f"aggregator {aggregator}, hosts {hosts}" + ("" if is_known else "; all calls go by the aggregator")

    def topology(self, p4runtime: Mapping[str, str]) -> Topology:
        """The switches, at these addresses of P4Runtime. Behind the only port of each are as many hosts as a job may have,
        wherever they are."""
        switches = {
            name: {
                "device_id": 1,
                "p4runtime": p4runtime[name],
                "ip": self.switch_address or address,
                "mac": mac_of(self.switch_address or address),
                "shared_ports": [1],
                "endpoint": self.endpoint if name == NAME else f"{self.advertise if address == self.host else address}:{udp}",
                "stripes": [other for other in self.switches if name == NAME != other],
            }
            for name, (address, udp) in self.switches.items()
        }
        host = {"switch": NAME, "port": 1, "mtu": self.mtu}
        hosts = {f"host{number}": host for number in range(SWITCH_SOURCE)}
        return Topology.model_validate({"name": NAME, "switches": switches, "hosts": hosts})


def own_address() -> str:
    """This machine's address on the way to others. Raises :class:`TestbedError` if it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_ANY_HOST)
        except OSError:
            raise TestbedError(
                "this machine has no route to others: give with --host the address at which they reach it"
            ) from None
        return str(sock.getsockname()[0])


def in_bits(rate: float) -> str:
    """A rate in bytes a second, in bits."""
    unit, factor = ("Gbit/s", 1e9) if rate * 8 >= 1e9 else ("Mbit/s", 1e6)
    return f"{rate * 8 / factor:g} {unit}"


def own_rate(addresses: Sequence[str], interface: str | None) -> tuple[float | None, str]:
    """The rate of this machine's cables, bytes a second, as the interfaces with these addresses say it (``interface``: as that
    one does), and their names. None, and the name of one, if that does not say. The switch processes are at the addresses in
    turns, so that each address gets the same number of bytes. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        shares = Counter([interface] if interface else [interface_of(sock, each) or each for each in addresses])
        rates = []
        for name, share in shares.items():
            speed = speed_of_interface(sock, name)
            if speed is None:
                return None, name
            rates.append(speed * _MBPS * shares.total() / share)
    return min(rates), ", ".join(shares)


def largest_packet(host: str, interface: str | None, switch_address: str | None, udp_port: int) -> int:
    """The MTU of the interface that takes the gradients, bytes. Raises :class:`TestbedError` if it cannot be used."""
    if (interface is None) != (switch_address is None):
        raise click.UsageError("--interface and --switch-address go together: the switch has an address of its own there")
    try:
        largest = mtu_of(host)
    except OSError as error:
        raise TestbedError(f"--host {host}: {error}") from None
    if interface is None or switch_address is None:
        return largest
    if udp_port != UDP_PORT:
        raise click.UsageError(f"--udp-port chooses a port of the kernel's; with --interface it is the P4 program's, {UDP_PORT}")
    return check_raw_interface(interface, switch_address)
