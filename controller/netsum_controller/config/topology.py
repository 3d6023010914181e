# SPDX-License-Identifier: MIT
"""The topology: the switches, the links between them, and which host is on which port.

::

    name: star2
    switches:
      s1: {device_id: 1, p4runtime: "127.0.0.1:9559", ip: 10.0.0.254, mac: "02:6e:73:00:00:fe"}
    hosts:
      h1: {ip: 10.0.0.1, mac: "02:6e:73:00:00:01", switch: s1, port: 1, mtu: 9000}
      h2: {ip: 10.0.0.2, mac: "02:6e:73:00:00:02", switch: s1, port: 2, mtu: 9000}
    links:                      # optional: between switches, with the port on each of them
      l1: {switches: [leaf1, spine1], ports: [10, 1], mtu: 9000}
    tenants:                    # optional: who may have jobs, and how much of each switch they may take
      vision: {slots: 4096, job_ids: 16, members: 64}
    memory: {ip: 10.0.0.253, mac: "02:6e:73:00:00:fd"}   # optional: the virtual address of memory (default: one that is free)
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import yaml
from netsum.wire import schema
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, model_validator

from netsum_controller.config.yaml_files import MarkedYaml, Problem, Problems, Strict, load_yaml, parse_yaml, validate

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
ANYWHERE = "0.0.0.0"
"""The address of a host behind a shared port whose address the controller does not know, or that may change."""
NO_MAC = "00:00:00:00:00:00"
MAX_PORT = 509
"""Largest port of a host or a link: 510 is the CPU port and 511 the drop port of simple_switch."""


def _mac(text: Any) -> str:
    if not isinstance(text, str):
        raise ValueError('a MAC address must be a string like "02:6e:73:00:00:01"; quote it, or YAML may read a number')
    mac = text.lower()
    if not _MAC.fullmatch(mac):
        raise ValueError("not a MAC address like 02:6e:73:00:00:01")
    if int(mac[:2], 16) & 1:
        raise ValueError("a group (multicast) MAC address cannot be a host's or a switch's")
    return mac


def _ip(text: Any) -> str:
    try:
        return str(ipaddress.IPv4Address(text if isinstance(text, str) else "?"))
    except ValueError:
        raise ValueError("not an IPv4 address like 10.0.0.1; netsum is IPv4 only") from None


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("a name is a letter, then letters, digits, '_', '.' or '-' (63 at most)")
    return text


def _grpc_address(text: str) -> str:
    if text.startswith("unix:"):
        if len(text) == len("unix:"):
            raise ValueError("unix: lacks a path")
        return text
    return _endpoint(text)


def _endpoint(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("not an address like 127.0.0.1:9559 (or unix:/run/switch.sock for P4Runtime)")
    return text


def _udp_endpoint(text: str) -> str:
    if ":" in _endpoint(text).rpartition(":")[0]:
        raise ValueError("an address of IPv6, and netsum is IPv4 only")
    return text


def _cpu_port(port: int) -> int:
    if port != schema.CPU_PORT:
        raise ValueError(f"must be {schema.CPU_PORT}, which the P4 program is compiled for")
    return port


def _different(switches: tuple[str, str]) -> tuple[str, str]:
    if switches[0] == switches[1]:
        raise ValueError(f"a link joins two different switches, and both of these are {switches[0]}")
    return switches


Name = Annotated[str, AfterValidator(_name)]
Port = Annotated[int, Field(strict=True, ge=0, le=MAX_PORT)]
Mac = Annotated[str, BeforeValidator(_mac)]
Ip = Annotated[str, BeforeValidator(_ip)]
GrpcAddress = Annotated[str, AfterValidator(_grpc_address)]
Endpoint = Annotated[str, AfterValidator(_udp_endpoint)]
Queue = Annotated[
    int | None, Field(ge=1, description="packets that wait at each end of the link; a testbed sets it, with rate_mbps")
]
Ecn = Annotated[int | None, Field(ge=1, description="packets above the rate from which on the link marks them; with queue")]


def mac_of(ip: str) -> str:
    """The MAC address that stands for an IPv4 address: of both ends where the kernel makes the frames (ports ``@socket`` of
    netsum-switch), and of an aggregator's switch that takes raw frames."""
    return ":".join(["02", "00", *(f"{int(part):02x}" for part in ip.split("."))])


Part = TypeVar("Part", bound=BaseModel)


class Tls(Strict):
    """PEM files for mutual TLS with a switch's P4Runtime server; the server's own are for a testbed that starts it."""

    ca: str = Field(description="certificate of the authority that signed the server's")
    cert: str | None = Field(default=None, description="our certificate")
    key: str | None = Field(default=None, description="our private key")
    server_name: str | None = Field(default=None, description="name in the server's certificate, if not its address")
    server_cert: str | None = Field(default=None, description="the server's certificate")
    server_key: str | None = Field(default=None, description="the server's private key")

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together")
        if (self.server_cert is None) != (self.server_key is None):
            raise ValueError("server_cert and server_key go together")
        return self


class Switch(Strict):
    device_id: int = Field(ge=1, lt=2**63, description="P4Runtime device id")
    p4runtime: GrpcAddress | None = Field(default=None, description="gRPC address; a testbed fills it in")
    ip: Ip = Field(description="the switch's own address: contributions go there")
    mac: Mac
    cpu_port: Annotated[int, AfterValidator(_cpu_port)] = Field(default=schema.CPU_PORT, description="port of PacketIn/PacketOut")
    endpoint: Endpoint | None = Field(
        default=None, description="where the UDP of hosts behind a shared port reaches it, if that is not its ip"
    )
    tls: Tls | None = None
    shared_ports: tuple[Port, ...] = Field(
        default=(), strict=False, description="ports of an ordinary switch or a network, behind which are several hosts"
    )
    stripes: tuple[Name, ...] = Field(
        default=(), strict=False, description="switches that its hosts reach as well, each at its endpoint: they share the blocks"
    )


class Host(Strict):
    """One host. ``frames`` and ``switch_frames``: UDP endpoints of a rootless link that carries frames. Behind a shared port,
    ``ip`` and ``mac`` may be left out: the host may then be anywhere there."""

    ip: Ip = ANYWHERE
    mac: Mac = NO_MAC
    switch: Name
    port: Port = Field(description="switch port that the host is on")
    rate_mbps: int | None = Field(default=None, ge=1, description="link rate; a testbed sets it")
    queue: Queue = None
    ecn: Ecn = None
    mtu: int = Field(default=1500, ge=576, le=65535, description="largest IP packet on the link, bytes")
    frames: Endpoint | None = None
    switch_frames: Endpoint | None = None


class SwitchLink(Strict):
    """One link between two switches; its pairs are in the order of ``switches``. ``frames``: the two UDP endpoints of a
    rootless link."""

    switches: Annotated[tuple[Name, Name], AfterValidator(_different)] = Field(strict=False)
    ports: tuple[Port, Port] = Field(strict=False, description="port of the link on each of them")
    rate_mbps: int | None = Field(default=None, ge=1, description="link rate; a testbed sets it")
    queue: Queue = None
    ecn: Ecn = None
    mtu: int = Field(default=1500, ge=576, le=65535, description="largest IP packet on the link, bytes")
    frames: tuple[Endpoint, Endpoint] | None = Field(default=None, strict=False)


class Neighbor(NamedTuple):
    """The other end of a switch's link: a ``switch``, and its ``port``; ``link`` is the link's name."""

    switch: str
    port: int
    link: str


class Quota(Strict):
    """The most that a tenant's jobs together may have of one switch; None: limited only by the switch."""

    slots: int | None = Field(default=None, ge=0, le=schema.SLOTS, description="aggregator slots")
    job_ids: int | None = Field(default=None, ge=0, le=255, description="job ids: one a job, and one a group")
    members: int | None = Field(default=None, ge=0, description="members: one a rank")


class MemoryAddress(Strict):
    """The address at which all hosts reach memory in the network: one address for all devices, which every switch answers for."""

    ip: Ip = Field(description="virtual address, in the hosts' subnet")
    mac: Mac


class Topology(Strict):
    """Switches, hosts and links by name, validated as a whole: no address or port is used twice. Two switches may have several
    links. If there are ``tenants``, only they may have jobs, within their quotas; otherwise every user may, as many as fit."""

    name: Name
    switches: dict[Name, Switch] = Field(min_length=1)
    hosts: dict[Name, Host] = Field(min_length=1)
    links: dict[Name, SwitchLink] = Field(default_factory=dict)
    tenants: dict[Name, Quota] | None = Field(default=None, min_length=1)
    memory: MemoryAddress | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := _conflicts(self.switches, self.switches, self.hosts, self.links, self.memory):
            raise Problems(problems)
        if problems := _wrong_stripes(self):
            raise Problems(problems)
        return self

    def hosts_of(self, switch: str) -> dict[str, Host]:
        """Hosts that reach a switch at a port of it, by name."""
        return {name: host for name, host in self.hosts.items() if switch in self.reached_by(host)}

    def reached_by(self, host: Host) -> tuple[str, ...]:
        """The switches that a host reaches without another switch: its own, then the others that share the blocks with it."""
        return host.switch, *self.switches[host.switch].stripes

    def shares_port(self, host: Host) -> bool:
        """True if there may be other hosts at the host's port, so that members there are known by their keys."""
        return host.port in self.switches[host.switch].shared_ports

    def neighbors(self, switch: str) -> dict[int, Neighbor]:
        """The other ends of a switch's links, by its own port, in the order of the file."""
        found = {}
        for name, link in self.links.items():
            for own, other in ((0, 1), (1, 0)):
                if link.switches[own] == switch:
                    found[link.ports[own]] = Neighbor(link.switches[other], link.ports[other], name)
        return found

    def without(self, links: Collection[str]) -> Topology:
        """A copy without these links, and without those beside them between the same two switches, which nothing uses."""
        gone = {frozenset(self.links[name].switches) for name in links if name in self.links}
        left = {name: link for name, link in self.links.items() if frozenset(link.switches) not in gone}
        return self.model_copy(update={"links": left})

    def on_ports(self, switch: str) -> dict[int, str]:
        """The neighbors on each port of a switch, ascending: a host's name, the number of several (``3 hosts``), another switch's
        name with its port (``spine1:2``), or ``controller``."""
        names: dict[int, list[str]] = {}
        for name, host in self.hosts_of(switch).items():
            names.setdefault(host.port, []).append(name)
        found = {port: there[0] if len(there) == 1 else f"{len(there)} hosts" for port, there in names.items()}
        found |= {port: f"{other.switch}:{other.port}" for port, other in self.neighbors(switch).items()}
        found[self.switches[switch].cpu_port] = "controller"
        return dict(sorted(found.items()))

    def filled(
        self,
        switches: Mapping[str, Mapping[str, Any]] | None = None,
        hosts: Mapping[str, Mapping[str, Any]] | None = None,
        links: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Topology:
        """A copy with some settings of some switches, hosts and links replaced, as when a testbed fills in addresses."""
        data = self.model_dump()
        for section, changes in (("switches", switches or {}), ("hosts", hosts or {}), ("links", links or {})):
            for name, values in changes.items():
                data[section][name].update(values)
        return Topology.model_validate(data)

    def to_yaml(self) -> str:
        """YAML that :func:`load_topology` reads back to an equal topology."""
        data = self.model_dump(exclude_none=True, exclude=None if self.links else {"links"})
        return yaml.safe_dump(data, sort_keys=False)


def _conflicts(
    known: Sequence[str] | Mapping[str, Any],
    switches: Mapping[str, Switch],
    hosts: Mapping[str, Host],
    links: Mapping[str, SwitchLink],
    memory: MemoryAddress | None = None,
) -> list[Problem]:
    """Names and addresses that are taken twice, and switches that are not among those ``known``."""
    taken: dict[tuple[str, str], str] = {}
    problems: list[Problem] = []

    def claim(kind: str, value: str, *path: str | int) -> None:
        owner = "memory" if path[0] == "memory" else f"{path[0]}.{path[1]}"
        other = taken.setdefault((kind, value), owner)
        if other != owner:
            problems.append(Problem(path, f"{value} is already that of {other}"))

    def require(switch: str, *path: str | int) -> None:
        if switch not in known:
            problems.append(Problem(path, f"there is no switch {switch!r} (there are: {', '.join(known)})"))

    for name, field, value in _addresses(switches):
        claim(field, value, "switches", name, field)
    for name, switch in switches.items():
        for port in switch.shared_ports:
            claim("port", f"port {port} of {name}", "switches", name, "shared_ports")
        if switch.p4runtime:
            claim("server", f"{switch.p4runtime} device {switch.device_id}", "switches", name, "p4runtime")
    for name, host in hosts.items():
        require(host.switch, "hosts", name, "switch")
        shared = host.switch in switches and host.port in switches[host.switch].shared_ports
        for kind, value, none in (("ip", host.ip, ANYWHERE), ("mac", host.mac, NO_MAC)):
            if value != none:
                claim(kind, value, "hosts", name, kind)
            elif not shared:
                problems.append(Problem(("hosts", name), f"{kind} is missing (only behind a shared port a host may be anywhere)"))
        if not shared:
            claim("port", f"port {host.port} of {host.switch}", "hosts", name, "port")
    if memory is not None:
        claim("ip", memory.ip, "memory", "ip")
        claim("mac", memory.mac, "memory", "mac")
    for name, link in links.items():
        for end in (0, 1):
            require(link.switches[end], "links", name, "switches", end)
            claim("port", f"port {link.ports[end]} of {link.switches[end]}", "links", name, "ports", end)
    return problems


def _addresses(switches: Mapping[str, Switch]) -> Iterator[tuple[str, str, str]]:
    """(switch, field, address) of the addresses that no other switch may have. Stripes may have those of the first, on whose
    machine they are."""
    first = {stripe: switch for switch in switches.values() for stripe in switch.stripes}
    for name, own in switches.items():
        if name not in first or (own.ip, own.mac) != (first[name].ip, first[name].mac):
            yield from ((name, "ip", own.ip), (name, "mac", own.mac))
        if own.endpoint:
            yield name, "endpoint", own.endpoint


def _wrong_stripes(topology: Topology) -> list[Problem]:
    """Switches that cannot share the blocks of the same hosts."""
    problems: list[Problem] = []
    switches = topology.switches
    owners: dict[str, str] = {}
    linked = {name: link for link, ends in topology.links.items() for name in ends.switches}
    homes = {host.switch: name for name, host in topology.hosts.items()}

    def wrong(why: str, *path: str | int) -> None:
        problems.append(Problem(("switches", *path), why))

    for name, head in switches.items():
        if not head.stripes:
            continue
        for host, place in topology.hosts.items():
            if place.switch == name and not topology.shares_port(place):
                wrong(f"{host} is on port {place.port}, which is not among the shared_ports", name, "stripes")
                break
        for number, other in enumerate((name, *head.stripes)):
            path = (name, "stripes", max(number - 1, 0))
            if other not in switches:
                wrong(f"there is no switch {other!r} (there are: {', '.join(switches)})", *path)
                continue
            if other in owners:
                wrong(f"{other} shares the blocks of {owners[other]} already", *path)
            owners[other] = name
            if switches[other].endpoint is None:
                wrong(f"{other} has no endpoint: hosts could not tell it from the others", *path)
            if switches[other].shared_ports != head.shared_ports:
                wrong(f"{other} has other shared_ports than {name}", *path)
            if other in linked:
                wrong(f"{other} is on link {linked[other]}: the switches that share blocks have no links", *path)
            if number and other in homes:
                wrong(f"{homes[other]} is on {other}: hosts are on {name}, and reach the others from there", *path)
            if number and switches[other].stripes:
                wrong(f"{other} has stripes of its own", *path)
    return problems


def _conflicts_of_sound(data: Any) -> list[Problem]:
    """The conflicts between those parts of a topology that are right by themselves."""
    if not isinstance(data, dict):
        return []
    sections = {name: found if isinstance(found := data.get(name), dict) else {} for name in ("switches", "hosts", "links")}
    return _conflicts(
        [name for name in sections["switches"] if isinstance(name, str)],
        _sound(Switch, sections["switches"]),
        _sound(Host, sections["hosts"]),
        _sound(SwitchLink, sections["links"]),
        _sound(MemoryAddress, {"memory": data.get("memory")}).get("memory"),
    )


def _sound(kind: type[Part], section: Mapping[Any, Any]) -> dict[str, Part]:
    found = {}
    for name, data in section.items():
        with suppress(ValidationError):
            found[str(name)] = kind.model_validate(data)
    return found


def _checked(document: MarkedYaml) -> Topology:
    return validate(Topology, document, _conflicts_of_sound)


def load_topology(path: str | Path) -> Topology:
    """Topology of a YAML file; :class:`~netsum_controller.errors.InputError` quotes every wrong line."""
    return _checked(load_yaml(path))


def parse_topology(text: str, source: str = "topology") -> Topology:
    return _checked(parse_yaml(text, source))
