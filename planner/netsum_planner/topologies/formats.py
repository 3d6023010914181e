# SPDX-License-Identifier: MIT
"""Topology files of other programs: ASTRA-sim, htsim, TACCL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Self

from netsum_controller.config.yaml_files import MarkedYaml, Problem, Problems, validate
from netsum_controller.errors import InputError
from pydantic import BaseModel, ConfigDict, Field, model_validator

from netsum_planner.topologies.model import Link, Topology, wire
from netsum_planner.topologies.shapes import joined_gpus

# ASTRA-sim's network file (``Ring``, ``FullyConnected`` and ``Switch``, one for each dimension; GB/s and ns).
#
# Two NPUs are in the same group of a dimension if they differ only in that coordinate; the first dimension is the
# fastest. A ring has both directions, as in ASTRA-sim's analytical backend. No switch sums.


class _Block(StrEnum):
    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


class _Network(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    topology: tuple[_Block, ...] = Field(min_length=1)
    npus_count: tuple[Annotated[int, Field(ge=2)], ...]
    bandwidth: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...]
    latency: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        wanted = len(self.topology)
        lengths = {"npus_count": self.npus_count, "bandwidth": self.bandwidth, "latency": self.latency}
        wrong = [
            Problem((key,), f"has {len(values)} entries, and topology has {wanted}")
            for key, values in lengths.items()
            if len(values) != wanted
        ]
        if wrong:
            raise Problems(wrong)
        return self


def read_astra_sim(document: MarkedYaml, name: str) -> Topology:
    file = validate(_Network, document)
    sizes = file.npus_count
    hosts = tuple(f"npu{n}" for n in range(prod(sizes)))
    switches: list[str] = []
    links: list[Link] = []
    for axis, (kind, size) in enumerate(zip(file.topology, sizes, strict=True)):
        rate, delay_us = Fraction(repr(file.bandwidth[axis])), file.latency[axis] / 1000
        for number, group in enumerate(_groups(hosts, sizes, axis)):
            if kind is _Block.SWITCH:
                switches.append(f"switch{axis + 1}-{number}")
                joined = [(npu, switches[-1]) for npu in group]
            elif kind is _Block.RING:
                joined = [(group[n], group[(n + 1) % size]) for n in range(size if size > 2 else 1)]
            else:
                joined = [(group[a], group[b]) for a in range(size) for b in range(a + 1, size)]
            links += (link for ends in joined for link in wire(*ends, rate, delay_us))
    return Topology(name, hosts, dict.fromkeys(switches, False), tuple(links))


def _groups(hosts: Sequence[str], sizes: Sequence[int], axis: int) -> Iterator[list[str]]:
    """The NPUs that differ only along an axis."""
    stride = prod(sizes[:axis])
    for high, low in product(range(prod(sizes[axis + 1 :])), range(stride)):
        yield [hosts[(high * sizes[axis] + place) * stride + low] for place in range(sizes[axis])]


# htsim's ``.topo`` files: fat-trees of two or three tiers (Gbit/s and ns). Switches sum: ask for the optimum with and
# without.
#
# ``Nodes``, ``Tiers`` and ``Podsize``, then for each ``Tier`` the speed of the links down from its switches, how many
# links its switches have down and up, and ``Bundle``, how many of those go to the same switch. Queues do not matter
# here.


_HEADER = ("nodes", "tiers", "podsize")
_OF_A_TIER = (
    "downlink_speed_gbps",
    "radix_down",
    "radix_up",
    "bundle",
    "downlink_latency_ns",
    "switch_latency_ns",
    "oversubscribed",
    "queue_up",
    "queue_down",
)


class _Reader:
    """Numbers by key; tier -1 is the header."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._values: dict[tuple[int, str], tuple[int, int]] = {}
        tier = -1
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            key = words[0].lower()
            if len(words) < 2 or not words[1].isdecimal():
                raise self._wrong(number, f"{words[0]} needs a whole number")
            value = int(words[1])
            if key == "tier":
                tier = value
                continue
            if key not in (_HEADER if tier < 0 else _OF_A_TIER):
                raise self._wrong(number, f"{words[0]} is no setting of {'the header' if tier < 0 else f'tier {tier}'}")
            if (tier, key) in self._values:
                raise self._wrong(number, f"{words[0]} is given twice")
            self._values[tier, key] = (value, number)

    def _wrong(self, line: int, words: str) -> InputError:
        return InputError(f"{self._source}:{line}: {words}")

    def get(self, tier: int, key: str, default: int | None = None) -> int:
        found = self._values.get((tier, key))
        where = "the header" if tier < 0 else f"tier {tier}"
        if found is None:
            if default is None:
                raise InputError(f"{self._source}: {where} lacks {key}")
            return default
        if found[0] < 1 and not key.endswith("latency_ns"):
            raise self._wrong(found[1], f"{key} must be 1 or more")
        return found[0]

    def divided(self, what: str, number: int, by: int) -> int:
        if number % by:
            raise InputError(f"{self._source}: {what}: {number} is not a multiple of {by}")
        return number // by

    def same(self, tier: int, given: int, wanted: int) -> None:
        if given != wanted:
            words = f"radix_down is {given}, and what is below takes {wanted}"
            raise self._wrong(self._values[tier, "radix_down"][1], words)


def read_htsim(text: str, source: str) -> Topology:
    file = _Reader(text, source)
    nodes, tiers, podsize = (file.get(-1, key) for key in _HEADER)
    if tiers not in (2, 3):
        raise InputError(f"{source}: Tiers is 2 or 3, not {tiers}")
    below = file.get(0, "radix_down")
    pods = file.divided("Nodes and Podsize", nodes, podsize if tiers == 3 else nodes)
    edges = file.divided("Podsize and tier 0's Radix_Down", podsize if tiers == 3 else nodes, below)
    bundle = file.get(1, "bundle", 1)
    upper = file.divided("tier 0's Radix_Up and tier 1's Bundle", file.get(0, "radix_up"), bundle)
    file.same(1, file.get(1, "radix_down"), edges * bundle)
    links: list[Link] = []

    def join(one: str, other: str, tier: int, count: int = 1) -> None:
        rate = Fraction(count * file.get(tier, "downlink_speed_gbps"), 8)
        links.extend(wire(one, other, rate, file.get(tier, "downlink_latency_ns") / 1000))

    edge_names = [f"edge{pod}-{n}" for pod in range(1, pods + 1) for n in range(1, edges + 1)]
    for node in range(nodes):
        join(f"h{node + 1}", edge_names[node // below], 0)
    for pod in range(1, pods + 1):
        for low in range(1, edges + 1):
            for high in range(1, upper + 1):
                join(f"edge{pod}-{low}", f"agg{pod}-{high}", 1, bundle)
    names = [*edge_names, *(f"agg{pod}-{n}" for pod in range(1, pods + 1) for n in range(1, upper + 1))]
    if tiers == 3:
        names += _join_cores(file, pods, upper, join)
    hosts = tuple(f"h{n + 1}" for n in range(nodes))
    return Topology(Path(source).stem, hosts, dict.fromkeys(names, True), tuple(links))


def _join_cores(file: _Reader, pods: int, upper: int, join: Callable[[str, str, int, int], None]) -> list[str]:
    """The n-th aggregation switch of every pod is joined to every core whose number is n, counted in steps of ``upper``."""
    bundle = file.get(2, "bundle", 1)
    each = file.divided("tier 1's Radix_Up and tier 2's Bundle", file.get(1, "radix_up"), bundle)
    file.same(2, file.get(2, "radix_down"), pods * bundle)
    for pod in range(1, pods + 1):
        for place in range(upper):
            for step in range(each):
                join(f"agg{pod}-{place + 1}", f"core{place + upper * step + 1}", 2, bundle)
    return [f"core{n + 1}" for n in range(upper * each)]


# TACCL's topology JSON (us and us/MB): one box, or several that are joined by their NICs.
#
# With ``links`` and ``invbws``, matrices whose row is the receiver. With two of ``node_invbws_list`` it is TACCL's
# NDv2, 8 GPUs with double and single NVLinks; with one, GPUs around a switch. No switch sums.


_NDV2_FAST = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
_NDV2_SLOW = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
MB_PER_US = 1000
"""GB/s."""


class _Box:
    """The file's values, each checked when it is asked for."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        try:
            self._data: Any = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{source}:{error.lineno}: not valid JSON: {error.msg}") from None
        if not isinstance(self._data, dict):
            raise self.wrong("the file must be an object")

    def wrong(self, words: str) -> InputError:
        return InputError(f"{self._source}: {words}")

    def has(self, key: str) -> bool:
        return key in self._data

    def get(self, key: str) -> Any:
        if key not in self._data:
            raise self.wrong(f"{key} is missing")
        return self._data[key]

    def count(self, key: str) -> int:
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(f"{key} must be a whole number from 1 (it is {value!r})")
        return value

    def number(self, key: str, value: Any) -> Fraction:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
            raise self.wrong(f"{key} must be a number from 0 (there is {value!r})")
        return Fraction(repr(value))

    def rate(self, key: str, inverse: Any) -> Fraction:
        found = self.number(key, inverse)
        if not found:
            raise self.wrong(f"{key}: a link needs more than 0 us/MB")
        return MB_PER_US / found

    def matrix(self, key: str, size: int) -> list[list[Any]]:
        rows = self.get(key)
        if not isinstance(rows, list) or [len(row) if isinstance(row, list) else -1 for row in rows] != [size] * size:
            raise self.wrong(f"{key} must have {size} rows of {size} numbers, one for each GPU")
        return rows


def read_taccl(text: str, source: str, boxes: int = 1) -> Topology:
    file = _Box(text, source)
    name, gpus = str(file.get("name")), file.count("gpus_per_node")
    delay_us = float(file.number("alpha", file.get("alpha")))
    links: list[Link] = []
    switches: list[str] = []
    hosts: list[str] = []
    for box in range(boxes):
        prefix = f"box{box}-" if boxes > 1 else ""
        hosts += [f"{prefix}gpu{n}" for n in range(gpus)]
        inside, switch = _inside(file, gpus, prefix)
        links += (Link(link.source, link.target, link.rate, delay_us) for link in inside)
        switches += switch
        if boxes > 1:
            nics, wires = _nics(file, gpus, prefix)
            switches += nics
            links += wires
    switches += ["remote"] if boxes > 1 else []
    return Topology(name, tuple(hosts), dict.fromkeys(switches, False), tuple(links))


def _inside(file: _Box, gpus: int, prefix: str) -> tuple[list[Link], list[str]]:
    """The links inside a box, and its switch if it has one."""
    if file.has("links"):
        there, inverse = file.matrix("links", gpus), file.matrix("invbws", gpus)
        size = range(gpus)
        rates = [
            [
                file.number("links", there[to][of]) * file.rate("invbws", inverse[to][of]) if there[to][of] else Fraction(0)
                for to in size
            ]
            for of in size
        ]
        return joined_gpus(rates, prefix), []
    speeds = file.get("node_invbws_list")
    if not isinstance(speeds, list) or len(speeds) not in (1, 2) or (len(speeds) == 2 and gpus != 8):
        raise file.wrong("node_invbws_list must have one number, or two (fast and slow links of an NDv2, which has 8 GPUs)")
    rated = [file.rate("node_invbws_list", inverse) for inverse in speeds]
    if len(rated) == 1:
        switch = f"{prefix}switch"
        return [link for n in range(gpus) for link in wire(f"{prefix}gpu{n}", switch, rated[0])], [switch]
    pairs = [*((pair, rated[0]) for pair in _NDV2_FAST), *((pair, rated[1]) for pair in _NDV2_SLOW)]
    return [link for (a, b), rate in pairs for link in wire(f"{prefix}gpu{a}", f"{prefix}gpu{b}", rate)], []


def _nics(file: _Box, gpus: int, prefix: str) -> tuple[list[str], list[Link]]:
    """A box's NICs, which its GPUs share evenly, and their links."""
    nics = file.count("nics_per_node")
    if gpus % nics:
        raise file.wrong(f"gpus_per_node is {gpus}, which is not a multiple of nics_per_node, {nics}")
    rate = file.rate("remote_invbw", file.get("remote_invbw"))
    delay_us = float(file.number("remote_alpha", file.get("remote_alpha")))
    names = [f"{prefix}nic{n}" for n in range(nics)]
    links = [link for n in range(gpus) for link in wire(f"{prefix}gpu{n}", names[n * nics // gpus], rate)]
    links += (link for name in names for link in wire(name, "remote", rate, delay_us))
    return names, links
