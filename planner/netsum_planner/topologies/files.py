# SPDX-License-Identifier: MIT
"""Topology files: the planner's YAML, the controller's, and those of ASTRA-sim, htsim and TACCL. A file's own contents say which
it is.

The planner's YAML::

    name: uneven
    hosts: [h1, h2, h3]
    switches:
      s1: {sums: true}            # false, the default: it only forwards
    links:                        # both directions, unless one_way is true
      - {from: h1, to: s1, rate_GBps: 12.5}
      - {from: h2, to: s1, rate_mbps: 100000, delay_us: 1.5}
      - {from: h3, to: s1, rate_GBps: 12.5, one_way: true}
      - {from: s1, to: h3, rate_GBps: 25, one_way: true}
    routes:                       # optional: paths between hosts, where they are not the usual ones
      - [h1, s1, h2]

In the controller's YAML every switch can sum; a link that has no ``rate_mbps`` takes the rate that the caller gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from netsum_controller.config.topology import MAX_PORT, parse_topology
from netsum_controller.config.topology import Topology as Installed
from netsum_controller.config.yaml_files import MarkedYaml, Problem, Problems, Strict, parse_yaml, validate
from netsum_controller.errors import InputError
from pydantic import Field, model_validator

from netsum_planner.topologies.formats import read_astra_sim, read_htsim, read_taccl
from netsum_planner.topologies.model import Link, Pair, Topology, wire

MBPS = Fraction(1, 8000)
"""GB/s of a Mbit/s."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Switch(Strict):
    sums: bool = False


class _Link(Strict):
    source: str = Field(alias="from")
    target: str = Field(alias="to")
    rate_gbytes: Positive | None = Field(default=None, alias="rate_GBps")
    rate_mbps: Positive | None = None
    delay_us: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    one_way: bool = False

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if (self.rate_gbytes is None) == (self.rate_mbps is None):
            raise ValueError("needs either rate_GBps or rate_mbps")
        return self

    @property
    def rate(self) -> Fraction:
        if self.rate_mbps is not None:
            return exact(self.rate_mbps) * MBPS
        return exact(self.rate_gbytes or 0)


class _File(Strict):
    name: str
    hosts: tuple[str, ...] = Field(min_length=1, strict=False)
    switches: dict[str, _Switch] = Field(default_factory=dict)
    links: tuple[_Link, ...] = Field(default=(), strict=False)
    routes: tuple[Annotated[tuple[str, ...], Field(strict=False, min_length=2)], ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [
            Problem(("hosts", n), f"{host} is already the name of another node")
            for n, host in enumerate(self.hosts)
            if host in self.hosts[:n] or host in self.switches
        ]
        known = {*self.hosts, *self.switches}
        for n, link in enumerate(self.links):
            for key, end in (("from", link.source), ("to", link.target)):
                if end not in known:
                    problems.append(Problem(("links", n, key), f"there is no host or switch {end!r}"))
            if link.source == link.target:
                problems.append(Problem(("links", n, "to"), f"a link joins two different nodes, and both are {link.target}"))
        problems += self._wrong_routes()
        if problems:
            raise Problems(problems)
        return self

    def _wrong_routes(self) -> Iterator[Problem]:
        joined = {(link.source, link.target) for link in self.links}
        joined |= {(link.target, link.source) for link in self.links if not link.one_way}
        between = set(self.switches or self.hosts)
        seen: set[Pair] = set()
        for n, route in enumerate(self.routes):
            ends = (route[0], route[-1])
            for end in ends:
                if end not in self.hosts:
                    yield Problem(("routes", n), f"a route goes from a host to a host, and {end} is none")
            if ends in seen:
                yield Problem(("routes", n), f"there is a route from {ends[0]} to {ends[1]} already")
            seen.add(ends)
            if len(set(route)) < len(route):
                yield Problem(("routes", n), "a route comes to no node twice")
            for node in route[1:-1]:
                if node not in between:
                    yield Problem(("routes", n), f"{node} does not forward")
            for one, other in pairwise(route):
                if (one, other) not in joined:
                    yield Problem(("routes", n), f"there is no link from {one} to {other}")


def exact(number: float) -> Fraction:
    """The number as a person wrote it: 0.1 is 1/10."""
    return Fraction(repr(number))


def to_yaml(topology: Topology) -> str:
    """The planner's YAML, a line for each wire, which :func:`read_topology` reads back as the same network."""
    lines = [f"name: {topology.name}", f"hosts: [{', '.join(topology.hosts)}]"]
    if topology.switches:
        lines.append("switches:")
        lines += [f"  {name}: {{sums: {'true' if sums else 'false'}}}" for name, sums in topology.switches.items()]
    lines.append("links:")
    left = list(topology.links)
    while left:
        link = left.pop(0)
        back = replace(link, source=link.target, target=link.source)
        delay = f", delay_us: {link.delay_us:g}" if link.delay_us else ""
        fields = f"from: {link.source}, to: {link.target}, rate_GBps: {float(link.rate):.15g}{delay}"
        if back in left:
            left.remove(back)
            lines.append(f"  - {{{fields}}}")
        else:
            lines.append(f"  - {{{fields}, one_way: true}}")
    if topology.routes:
        lines += ["routes:", *(f"  - [{', '.join(route)}]" for route in topology.routes.values())]
    return "\n".join([*lines, ""])


def to_network(topology: Topology) -> dict[str, Any]:
    """The planner's YAML as data, for JSON; :func:`from_network` reads it back."""
    found: dict[str, Any] = yaml.safe_load(to_yaml(topology))
    return found


def from_network(text: str) -> Topology:
    """The topology that a plan carries, as JSON. :class:`~netsum_controller.errors.InputError` if it is none."""
    return _own(parse_yaml(text, "network"))  # JSON is YAML


def read_topology(path: str | Path, *, rate_mbps: float | None = None, boxes: int = 1) -> Topology:
    """The topology of a file. ``rate_mbps``: of those links of the controller's YAML that have none;
    ``boxes``: how many there are of the box that TACCL's JSON describes.

    :class:`~netsum_controller.errors.InputError` names the line that is wrong, or the key if it is JSON."""
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    if path.suffix == ".json":
        return read_taccl(text, str(path), boxes)
    if boxes != 1:
        raise InputError(f"{path}: only TACCL's .json describes a box, of which there can be {boxes}")
    if path.suffix == ".topo":
        return read_htsim(text, str(path))
    document = parse_yaml(text, str(path))
    if isinstance(document.data, dict) and "npus_count" in document.data:
        return read_astra_sim(document, path.stem)
    if isinstance(document.data, dict) and isinstance(document.data.get("hosts"), list):
        return _own(document)
    return installed(parse_topology(text, str(path)), rate_mbps, str(path))


def _own(document: MarkedYaml) -> Topology:
    file = validate(_File, document)
    links: list[Link] = []
    for each in file.links:
        both = tuple(wire(each.source, each.target, each.rate, each.delay_us))
        links += both[:1] if each.one_way else both
    switches = {name: switch.sums for name, switch in file.switches.items()}
    routes = {(route[0], route[-1]): route for route in file.routes}
    return Topology(file.name, file.hosts, switches, tuple(links), routes)


def installed(topology: Installed, rate_mbps: float | None = None, source: str = "topology") -> Topology:
    """The controller's topology, whose switches all sum."""
    wires: list[tuple[str, Pair, int | None]] = [
        (f"hosts.{name}", (name, host.switch), host.rate_mbps) for name, host in topology.hosts.items()
    ]
    wires += [(f"links.{name}", link.switches, link.rate_mbps) for name, link in topology.links.items()]
    links: list[Link] = []
    for name, ends, own in wires:
        mbps: Any = rate_mbps if own is None else own
        if mbps is None:
            raise InputError(f"{source}: {name} has no rate_mbps; write it there, or give all links without one a rate (--rate)")
        links += wire(*ends, exact(mbps) * MBPS)
    return Topology(topology.name, tuple(topology.hosts), dict.fromkeys(topology.switches, True), tuple(links))


# A topology as the controller knows it, with addresses and ports that mean nothing: to ask for its trees, or to build
# it.


MTU = 9000


def for_controller(topology: Topology) -> Installed | None:
    """None if the controller could not have it: a host is not on one switch, or a switch has too many ports. Links keep their
    order, and so traffic its paths. Rates are in whole Mbit/s, at least 1."""
    homes = {host: topology.neighbors[host] for host in topology.hosts}
    if any(len(others) != 1 or others[0] not in topology.switches for others in homes.values()):
        return None
    used = dict.fromkeys(topology.switches, 0)

    def port(switch: str) -> int:
        used[switch] += 1
        return used[switch]

    def addresses(number: int) -> dict[str, str]:
        return {
            "ip": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            "mac": f"02:00:00:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
        }

    def link(one: str, other: str) -> dict[str, Any]:
        rate = min(topology.rates[ends] for ends in ((one, other), (other, one)) if ends in topology.rates)
        return {"rate_mbps": max(1, round(rate / MBPS)), "mtu": MTU}

    order = {name: n for n, name in enumerate(topology.nodes, 1)}
    hosts = {
        host: {**addresses(order[host]), "switch": others[0], "port": port(others[0]), **link(host, others[0])}
        for host, others in homes.items()
    }
    between = dict.fromkeys(
        (one, other) if order[one] < order[other] else (other, one)
        for one, other in topology.rates
        if one in topology.switches and other in topology.switches and (other, one) in topology.rates
    )
    links = {
        f"{one}_{other}": {"switches": (one, other), "ports": (port(one), port(other)), **link(one, other)}
        for one, other in between
    }
    if max(used.values(), default=0) > MAX_PORT:
        return None
    switches = {name: {"device_id": order[name], **addresses(order[name])} for name in topology.switches}
    return Installed.model_validate({"name": "planned", "switches": switches, "hosts": hosts, "links": links})
