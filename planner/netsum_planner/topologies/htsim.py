"""htsim's ``.topo`` files: fat-trees of two or three tiers (Gbit/s and ns). Switches sum: ask for the optimum with and without.

``Nodes``, ``Tiers`` and ``Podsize``, then for each ``Tier`` the speed of the links down from its switches, how many links its
switches have down and up, and ``Bundle``, how many of those go to the same switch. Queues do not matter here.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from netsum_controller.errors import InputError

from netsum_planner.topologies.model import Link, Topology, wire

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
