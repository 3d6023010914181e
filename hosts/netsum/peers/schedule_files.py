# SPDX-License-Identifier: MIT
"""Schedules read from files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final

from netsum.peers.plan import Mode, PeerPlan, Ranks, Receive, Round, Rows, Send, bare
from netsum.wire.schema import MAX_WORKERS

# A plan that a file describes: JSON, as `netsum plan schedule` writes it (docs/planning.md). It takes the place of an
# algorithm.
#
# The rows of a batch are cut into parts by the parts' shares. Of each part, transfers say which rank sends it to which
# other in which step, and whether that one adds it to its own (``combine``) or keeps it (``copy``). What is sent in a
# step is what the sender had before the step.


VERSION: Final = 1
MAX_STEPS: Final = 10_000
_OPS: Final = {"combine": Mode.COMBINE, "copy": Mode.TAKE}
_TRANSFER: Final = {"step", "from", "to", "op"}


@dataclass(frozen=True)
class Transfer:
    """``behind``: the ranks that get the part by this transfer, from the target or by way of it."""

    step: int
    source: int
    target: int
    mode: Mode
    behind: frozenset[int] = frozenset()


@dataclass(frozen=True)
class PlanFile:
    """``hosts`` has the host of each rank. ``parts`` have shares of the rows, which add up to 1, and transfers, in the order of
    steps. ``chunk_bytes``: how much of an array is summed at a time, if the plan says so. ``roots``: the weights of the
    switches that make results, for a job that a switch combines; ``network``: JSON of the topology that the plan is for, which
    only a planner reads; "" if the file has none."""

    name: str
    hosts: tuple[str, ...]
    parts: tuple[tuple[Fraction, tuple[Transfer, ...]], ...]
    chunk_bytes: int | None = None
    roots: Mapping[str, int] = field(default_factory=dict)
    digest: int = 0
    network: str = ""

    def plan(self, rank: int, _workers: int, dests: Ranks, _sources: Ranks) -> PeerPlan:
        """One rank's part in a batch, as those of :mod:`netsum.peers.schedules`."""
        sends: dict[int, list[Send]] = {}
        receives: dict[int, list[Receive]] = {}
        for rows, (_, transfers) in zip(self._cut(len(dests)), self.parts, strict=True):
            for each in transfers:
                if rank == each.source:
                    known = bare(rows, dests, each.behind) if each.mode is Mode.TAKE else ()
                    sends.setdefault(each.step, []).append(Send(each.target, rows, known))
                if rank == each.target:
                    receives.setdefault(each.step, []).append(Receive(each.source, rows, each.mode))
        steps = sorted({*sends, *receives})
        return PeerPlan.of([Round.of(sends.get(step, ()), receives.get(step, ())) for step in steps])

    def _cut(self, rows: int) -> list[Rows]:
        ends = [0, *(round(rows * whole) for whole in accumulate(share for share, _ in self.parts))]
        return [tuple(range(low, high)) for low, high in pairwise(ends)]


def parse_plan(text: str | bytes) -> PlanFile:
    """The plan of a file's contents. ValueError says what is wrong, and where. Every rank of an accepted plan ends with the whole
    sum, in which each rank is once."""
    try:
        data = json.loads(text)
    except ValueError as error:  # includes bytes that are not text
        raise ValueError(f"not JSON: {error}") from None
    data = _object(data, "the plan", {"version", "hosts", "parts"})
    if data["version"] != VERSION:
        raise ValueError(f"version is {data['version']!r}; this library reads version {VERSION}")
    if data.get("collective", "allreduce") != "allreduce":
        raise ValueError(f"collective is {data['collective']!r}: every call goes along the plan of an allreduce")
    hosts = tuple(_list(data["hosts"], "hosts"))
    if not 1 <= len(hosts) <= MAX_WORKERS or not all(isinstance(host, str) and host for host in hosts):
        raise ValueError(f"hosts must be the host of each rank, 1 to {MAX_WORKERS} names")
    parts = [_part(each, f"parts[{n}]", len(hosts)) for n, each in enumerate(_list(data["parts"], "parts"))]
    if sum(share for share, _ in parts) != 1:
        raise ValueError(f"parts: the shares add up to {sum(share for share, _ in parts)}, must be 1")
    chunk = data.get("chunk_bytes")
    if chunk is not None and not _whole(chunk, 1):
        raise ValueError(f"chunk_bytes is {chunk!r}, must be a whole number from 1")
    roots = _object(data.get("roots") or {}, "roots", set())
    for name, weight in roots.items():
        if not _whole(weight, 1):
            raise ValueError(f"roots.{name} is {weight!r}, must be a whole number from 1")
    network = json.dumps(_object(data["network"], "network", set())) if "network" in data else ""
    text = json.dumps([hosts, data["parts"], chunk], sort_keys=True)
    digest = zlib.crc32(text.encode())
    return PlanFile(str(data.get("topology", "")), hosts, tuple(parts), chunk, roots, digest, network)


def load_plan(path: str) -> PlanFile:
    """The plan of a file. ValueError says what is wrong with it."""
    try:
        with open(path, "rb") as file:
            return parse_plan(file.read())
    except OSError as error:
        raise ValueError(f"plan {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"plan {path}: {error}") from None


read_plan: Final = lru_cache(maxsize=16)(load_plan)
"""The same as :func:`load_plan`, but a process reads each file only once."""


def _part(data: Any, where: str, ranks: int) -> tuple[Fraction, tuple[Transfer, ...]]:
    data = _object(data, where, {"share", "transfers"})
    try:
        share = Fraction(data["share"]) if isinstance(data["share"], str) else Fraction(0)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise ValueError(f'{where}.share is {data["share"]!r}, must be a text like "1/2", above 0 and at most 1')
    places = [f"{where}.transfers[{n}]" for n in range(len(_list(data["transfers"], f"{where}.transfers")))]
    known = [_transfer(each, place, ranks) for each, place in zip(data["transfers"], places, strict=True)]
    order = sorted(range(len(known)), key=lambda n: known[n].step)
    transfers = [known[n] for n in order]
    _check(transfers, [places[n] for n in order], where, ranks)
    return share, tuple(_with_behind(transfers))


def _transfer(data: Any, where: str, ranks: int) -> Transfer:
    data = _object(data, where, _TRANSFER)
    if not _whole(data["step"], 0) or data["step"] >= MAX_STEPS:
        raise ValueError(f"{where}.step is {data['step']!r}, must be 0..{MAX_STEPS - 1}")
    for end in ("from", "to"):
        if not _whole(data[end], 0) or data[end] >= ranks:
            raise ValueError(f"{where}.{end} is {data[end]!r}, must be a rank, 0..{ranks - 1}")
    if data["from"] == data["to"]:
        raise ValueError(f"{where}: rank {data['to']} sends to itself")
    if data["op"] not in _OPS:
        raise ValueError(f"{where}.op is {data['op']!r}, must be {' or '.join(_OPS)}")
    return Transfer(data["step"], data["from"], data["to"], _OPS[data["op"]])


def _check(transfers: Sequence[Transfer], places: Sequence[str], where: str, ranks: int) -> None:
    """Follow whose contributions each rank holds, as bits."""
    whole = (1 << ranks) - 1
    held = [1 << rank for rank in range(ranks)]
    before, step = list(held), -1
    for each, place in zip(transfers, places, strict=True):
        if each.step != step:
            before, step = list(held), each.step
        sent = before[each.source]
        if each.mode is Mode.COMBINE:
            if twice := sent & held[each.target]:
                raise ValueError(f"{place}: rank {_first(twice)} would be in rank {each.target}'s sum twice")
            held[each.target] |= sent
        elif sent != whole:
            raise ValueError(
                f"{place}: rank {each.source} copies a sum that is not whole: rank {_first(whole & ~sent)} is not in it"
            )
        else:
            held[each.target] = whole
    for rank, bits in enumerate(held):
        if bits != whole:
            raise ValueError(f"{where}: rank {rank} ends without the whole sum: rank {_first(whole & ~bits)} is not in it")


def _with_behind(transfers: Sequence[Transfer]) -> list[Transfer]:
    found: list[Transfer] = []
    reached: dict[int, frozenset[int]] = {}  # by copies in later steps
    later: list[Transfer] = []
    for each in reversed(transfers):
        for one in [one for one in later if one.step > each.step]:
            reached[one.source] = reached.get(one.source, frozenset()) | one.behind
            later.remove(one)
        known = each
        if each.mode is Mode.TAKE:
            known = replace(each, behind=reached.get(each.target, frozenset()) | {each.target})
            later.append(known)
        found.append(known)
    return found[::-1]


def _first(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _object(data: Any, where: str, required: set[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be an object")
    if missing := sorted(required - data.keys()):
        raise ValueError(f"{where} has no {', '.join(missing)}")
    return data


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"{where} must be a list")
    return data
