"""TACCL's topology JSON (us and us/MB): one box, or several that are joined by their NICs.

With ``links`` and ``invbws``, matrices whose row is the receiver. With two of ``node_invbws_list`` it is TACCL's NDv2, 8 GPUs
with double and single NVLinks; with one, GPUs around a switch. No switch sums.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from netsum_controller.errors import InputError

from netsum_planner.topologies.gpu_servers import joined_gpus
from netsum_planner.topologies.model import Link, Topology, wire

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
                file.number("links", there[to][of]) * file.rate("invbws", inverse[to][of])
                if there[to][of]
                else Fraction(0)
                for to in size
            ]
            for of in size
        ]
        return joined_gpus(rates, prefix), []
    speeds = file.get("node_invbws_list")
    if not isinstance(speeds, list) or len(speeds) not in (1, 2) or (len(speeds) == 2 and gpus != 8):
        raise file.wrong(
            "node_invbws_list must have one number, or two (fast and slow links of an NDv2, which has 8 GPUs)"
        )
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
