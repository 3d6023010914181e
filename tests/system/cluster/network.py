# SPDX-License-Identifier: MIT
"""An ordinary network, without a P4 switch: servers that are network namespaces, on a Linux bridge, some behind a router."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Self, TypeVar

from netsum_testbed.netns import call_inside, run_command

AGGREGATOR: Final = "aggregator"
OUTSIDER: Final = "outsider"
SERVICE: Final = "10.96.0.50"
"""An address that no server has: the router sends what is for it to the aggregator, as Kubernetes does for a Service."""
_ROUTER: Final = "router"
_BRIDGES: Final = "bridges"
_NEAR, _FAR = 1, 2
_LEFT_OVER: Final = "2mb"
_BURST: Final = "128kb"
_DETOUR: Final = "detour"
_BACK: Final = "back"
_DETOUR_RATE: Final = "20mbit"
_DETOUR_BURST: Final = "16kb"
_numbers = count()

Result = TypeVar("Result")


@dataclass(frozen=True)
class Rates:
    """Of the servers' cables, each way, Mbit/s; None: no limit."""

    hosts: int | None = None
    aggregator: int | None = None


NO_LIMIT: Final = Rates()


class OrdinaryNetwork:
    """``hosts`` servers h1, h2 ..., one for the aggregator and one for an outsider. The last ``routed`` hosts are in another
    subnet, behind a router, with ``nat`` behind its address. With ``service``, hosts reach the aggregator by :data:`SERVICE`. A
    context manager. Needs root.
    """

    def __init__(
        self,
        hosts: int,
        *,
        mtu: int = 9000,
        rates: Rates = NO_LIMIT,
        routed: int = 0,
        nat: bool = False,
        service: bool = False,
    ) -> None:
        self._prefix = f"netsum-{os.getpid()}-{next(_numbers)}"
        self.hosts = tuple(f"h{number}" for number in range(1, hosts + 1))
        self._far = self.hosts[hosts - routed :]
        self._mtu, self._rates, self._nat, self.service = mtu, rates, nat, service
        self._has_detour = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._lay()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _lay(self) -> None:
        self._add(_BRIDGES)
        for subnet in (_NEAR, _FAR):
            self.run(_BRIDGES, "ip", "link", "add", f"b{subnet}", "mtu", str(self._mtu), "type", "bridge")
            self.run(_BRIDGES, "ip", "link", "set", f"b{subnet}", "up")
        for place, name in enumerate((*self.hosts, AGGREGATOR, OUTSIDER), 10):
            self._add(name)
            self._plug(name, _FAR if name in self._far else _NEAR, place)
        if self._far or self.service:
            self._route()

    def _add(self, name: str) -> None:
        run_command("ip", "netns", "add", self.namespace(name))
        self._stack.callback(run_command, "ip", "netns", "delete", self.namespace(name))
        settings = [f"net.ipv6.conf.{which}.disable_ipv6=1" for which in ("all", "default")]
        self.run(name, "sysctl", "-qw", *settings)
        self.run(name, "ip", "link", "set", "lo", "up")

    def _plug(self, name: str, subnet: int, place: int, end: str = "eth0") -> None:
        """Connect a server to the bridge of a subnet, with the address of that place."""
        port = self.port(name, end)
        mtu = str(self._mtu)
        inside = ("netns", self.namespace(name), "mtu", mtu)
        run_command(
            *("ip", "link", "add", port, "netns", self.namespace(_BRIDGES), "mtu", mtu, "type", "veth"),
            *("peer", "name", end, *inside),
        )
        self.run(_BRIDGES, "ip", "link", "set", port, "master", f"b{subnet}", "up")
        self.run(name, "ip", "link", "set", end, "up")
        self.run(name, "ip", "addr", "add", f"10.{subnet}.0.{place}/24", "dev", end)
        rate = self._rates.aggregator if name == AGGREGATOR else self._rates.hosts if name in self.hosts else None
        if rate is not None:
            words = ("root", "tbf", "rate", f"{rate}mbit", "burst", _BURST, "limit", _LEFT_OVER)
            self.run(name, "tc", "qdisc", "add", "dev", end, *words)
            self.run(_BRIDGES, "tc", "qdisc", "add", "dev", port, *words)

    def _route(self) -> None:
        self._add(_ROUTER)
        self._plug(_ROUTER, _NEAR, 254, "near")
        self._plug(_ROUTER, _FAR, 254, "far")
        self.run(_ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for name in (*self.hosts, AGGREGATOR, OUTSIDER):
            subnet = _FAR if name in self._far else _NEAR
            self.run(name, "ip", "route", "add", "default", "via", f"10.{subnet}.0.254")
        rules = []
        if self._nat or self.service:
            rules += [
                "add table ip nat",
                "add chain ip nat out { type nat hook postrouting priority 100 ; }",
                'add rule ip nat out oifname "near" masquerade',
            ]
        if self.service:
            rules += [
                "add chain ip nat in { type nat hook prerouting priority -100 ; }",
                f"add rule ip nat in ip daddr {SERVICE} dnat to {self.address(AGGREGATOR)}",
            ]
        for rule in rules:
            self.run(_ROUTER, "nft", rule)

    def namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def port(self, name: str, end: str = "eth0") -> str:
        """The bridge's interface towards a server."""
        return f"{name}.{end}"[:15]

    def prefix(self, name: str) -> Sequence[str]:
        """The prefix of a command line that makes it run on a server."""
        return ("ip", "netns", "exec", self.namespace(name))

    def run(self, name: str, *command: str) -> str:
        return run_command(*self.prefix(name), *command)

    def on(self, name: str, function: Callable[[], Result]) -> Result:
        """Call a function in a server's namespace."""
        return call_inside(Path("/run/netns") / self.namespace(name), function)

    def address(self, name: str) -> str:
        subnet = _FAR if name in self._far else _NEAR
        place = [*self.hosts, AGGREGATOR, OUTSIDER].index(name) + 10
        return f"10.{subnet}.0.{place}"

    def filter(self, name: str, rule: str) -> None:
        """Apply a rule of nftables to what a server sends, where it enters the bridge."""
        port = self.port(name)
        table = f"t_{name}"
        self.run(_BRIDGES, "nft", f"add table netdev {table}")
        chain = f'add chain netdev {table} in {{ type filter hook ingress device "{port}" priority 0 ; }}'
        self.run(_BRIDGES, "nft", chain)
        self.run(_BRIDGES, "nft", f"add rule netdev {table} in {rule}")

    def delay(self, name: str, rule: str) -> None:
        """Send what a rule of nftables matches of a near server's packets on a slow way to the same bridge, so that later
        packets overtake it."""
        if not self._has_detour:
            mtu, slow = ("mtu", str(self._mtu)), ("rate", _DETOUR_RATE, "burst", _DETOUR_BURST, "limit", _LEFT_OVER)
            back = ("ip", "link", "set", _BACK)
            for command in (
                ("ip", "link", "add", _DETOUR, *mtu, "type", "veth", "peer", "name", _BACK, *mtu),
                ("tc", "qdisc", "add", "dev", _DETOUR, "root", "tbf", *slow),
                ("ip", "link", "set", _DETOUR, "up"),
                (*back, "master", f"b{_NEAR}"),
                (*back, "type", "bridge_slave", "learning", "off"),  # senders stay where they are
                (*back, "up"),
            ):
                self.run(_BRIDGES, *command)
            self._has_detour = True
        self.filter(name, f"{rule} fwd to {_DETOUR}")

    @property
    def delayed(self) -> int:
        """Packets that have gone the slow way."""
        links = json.loads(self.run(_BRIDGES, "ip", "-json", "-statistics", "link", "show", "dev", _DETOUR))
        return int(links[0]["stats64"]["tx"]["packets"])

    def unfilter(self, name: str) -> None:
        self.run(_BRIDGES, "nft", f"delete table netdev t_{name}")
