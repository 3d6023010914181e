"""ASTRA-sim's network file (``Ring``, ``FullyConnected`` and ``Switch``, one for each dimension; GB/s and ns).

Two NPUs are in the same group of a dimension if they differ only in that coordinate; the first dimension is the fastest. A ring
has both directions, as in ASTRA-sim's analytical backend. No switch sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import product
from math import prod
from typing import Annotated, Self

from netsum_controller.config.problems import Problem, Problems
from netsum_controller.config.yaml_marks import MarkedYaml, validate
from pydantic import BaseModel, ConfigDict, Field, model_validator

from netsum_planner.topologies.model import Link, Topology, wire


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
