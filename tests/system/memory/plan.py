# SPDX-License-Identifier: MIT
"""Rounds of the memory check as data: devices, regions, places, and what goes wrong meanwhile, all from a seed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np
from netsum.wire.memory import ADDRESS_STEP, LaneType

from tests.system.faults.scenario import Rates
from tests.system.memory.model import FLOATS, shard_of
from tests.system.memory.places import INTEGERS, LANEWISE, Place, Theme

CLIENTS: Final = 8
DEPTHS: Final = (1, 4, 16)
"""Instructions that a client has in progress."""
DTYPES: Final = (None, "int32", "int64", "float32", "float64")
PLACES: Final = (12, 25)
_SIZES: Final = (16, 64, 8192)
"""Bytes of a piece."""
_LANES: Final[Mapping[str | None, tuple[LaneType, ...]]] = {
    "int32": (LaneType.INT32,),
    "int64": (LaneType.INT64,),
    "float32": (LaneType.FLOAT32,),
    "float64": (LaneType.FLOAT64,),
}


class MemoryEventKind(StrEnum):
    """Kinds of events."""

    KILL_DEVICE = "kill_device"
    HANG_DEVICE = "hang_device"
    MOVE = "move"
    RESTART_SWITCH = "restart_switch"
    RESTART_CONTROLLER = "restart_controller"
    LOSE = "lose"


LONGEST: Final = {
    MemoryEventKind.KILL_DEVICE: 5.0,
    MemoryEventKind.HANG_DEVICE: 5.0,
    MemoryEventKind.MOVE: 0.0,
    MemoryEventKind.RESTART_SWITCH: 1.0,
    MemoryEventKind.RESTART_CONTROLLER: 1.0,
    MemoryEventKind.LOSE: 1.0,
}
"""Seconds. A device that is silent beyond its lease is given up, and comes back later."""


@dataclass(frozen=True)
class Event:
    """Something that happens once ``after`` instructions have been answered, and is over ``seconds`` later. ``what``: the device
    that is killed or stands still, or the region that moves ``to`` these, or that is lost with all its devices, and made anew. If
    it ``waits``, it does until everything is whole after the events before; else until the same device, switch or controller is
    back."""

    after: int
    kind: MemoryEventKind
    what: str = ""
    to: tuple[str, ...] = ()
    seconds: float = 0.0
    waits: bool = True

    @property
    def whom(self) -> str:
        """The target, to which nothing else happens at the same time."""
        return self.what or self.kind.value

    def describe(self) -> str:
        """In a few words."""
        to = f" to {', '.join(self.to)}" if self.to else ""
        lasting = f" for {self.seconds:g} s" if self.seconds else ""
        waiting = ", when all is whole" if self.waits else ""
        return f"after {self.after}: {self.kind.replace('_', ' ')} {self.what}{to}{lasting}{waiting}"


@dataclass(frozen=True)
class RegionPlan:
    """``hosts`` may hold it; ``replicas`` of them hold each shard. If it is ``fragile``, it may be lost: its memory is in RAM,
    and nothing else is on its hosts."""

    name: str
    size: int
    granule: int
    shards: int
    replicas: int
    dtype: str | None
    hosts: tuple[str, ...]
    kind: str = "array"
    options: Mapping[str, Any] = field(default_factory=dict)
    fragile: bool = False

    def describe(self) -> str:
        """In a few words."""
        kind = "" if self.kind == "array" else f"{self.kind} {' '.join(f'{k}={v}' for k, v in self.options.items())} "
        return (
            f"{self.name} {kind}{self.size >> 10}K in {self.shards} by {self.granule >> 10}K x{self.replicas} "
            f"{self.dtype or 'bytes'} on {'+'.join(self.hosts)}{' (fragile)' * self.fragile}"
        )

    def shard_of(self, offset: int) -> int:
        return offset // self.granule & (self.shards - 1)


@dataclass(frozen=True)
class MemoryPlan:
    """One round. ``devices``: whether each has its memory in files. ``rates`` are those of every link, each way. Each client asks
    ``instructions``, at most ``depth`` at a time and one every ``pause`` seconds on average."""

    seed: int
    index: int
    devices: Mapping[str, bool]
    regions: tuple[RegionPlan, ...]
    places: tuple[Place, ...]
    rates: Rates
    events: tuple[Event, ...]
    instructions: int
    depth: int
    pause: float

    def region(self, name: str) -> RegionPlan:
        return next(region for region in self.regions if region.name == name)

    def region_of(self, place: int) -> RegionPlan:
        """The region of the place with that number."""
        return self.region(self.places[place].region)

    def places_in(self, region: str) -> list[int]:
        """The numbers of a region's places."""
        return [number for number, place in enumerate(self.places) if place.region == region]

    def workload_seed(self, client: int) -> str:
        """The seed of a client's instructions."""
        return f"{self.seed} {self.index} {client}"

    def describe(self) -> str:
        """The round in a line."""
        devices = ", ".join(f"{name} ({'file' if files else 'RAM'})" for name, files in self.devices.items())
        regions = ", ".join(each.describe() for each in self.regions)
        events = "; ".join(event.describe() for event in self.events) or "no events"
        lossy = f"loss {self.rates.loss:g}, duplicates {self.rates.duplicate:g}, reordered {self.rates.reorder:g}"
        return (
            f"devices {devices}; regions {regions}; {len(self.places)} places; {CLIENTS} clients with "
            f"{self.instructions} instructions, {self.depth} at a time; {lossy}; {events}"
        )


@dataclass(frozen=True)
class Site:
    """Abilities of a network: the hosts that may have devices, which events are possible, and how many seconds it takes until
    everything is whole after one. ``files``: whether each device has its memory in files; drawn, if nothing is given."""

    hosts: tuple[str, ...]
    settling: float
    kinds: Collection[MemoryEventKind] = tuple(MemoryEventKind)
    files: Mapping[str, bool] | None = None


def make_plan(seed: int, index: int, site: Site, *, instructions: int) -> MemoryPlan:
    """Round ``index`` of the run with that seed."""
    rng = np.random.default_rng([seed, index, 0x3E])
    number = int(rng.integers(2, len(site.hosts) + 1))
    hosts = [str(host) for host in rng.permutation(list(site.hosts))[:number]]
    # RAM is lost with its device, so unreplicated regions lie in files.
    devices = {host: bool(rng.random() < 0.6) for host in hosts}
    devices[hosts[0]] = True
    if site.files is not None:
        devices = dict(site.files)
    regions = _regions(rng, devices, fragile=MemoryEventKind.LOSE in site.kinds and rng.random() < 0.4)
    places = tuple(place for each in regions for place in (_rows if each.kind == "table" else _pieces)(rng, each))
    quiet = rng.random() < 0.2
    rates = Rates() if quiet else Rates(loss=0.05, duplicate=0.05, reorder=0.1, jitter_ms=float(rng.choice([0, 1])))
    events = _events(rng, devices, regions, site, instructions * CLIENTS)
    lasting = 1.0 + sum(event.seconds + site.settling for event in events)
    return MemoryPlan(
        seed=seed,
        index=index,
        devices=devices,
        regions=regions,
        places=places,
        rates=rates,
        events=events,
        instructions=instructions,
        depth=int(rng.choice(DEPTHS)),
        pause=lasting / instructions,
    )


def _regions(rng: np.random.Generator, devices: Mapping[str, bool], *, fragile: bool) -> tuple[RegionPlan, ...]:
    """One to three regions, and perhaps another that may be lost."""
    ram = [host for host, kept in devices.items() if not kept]
    alone = [str(host) for host in rng.permutation(ram)[: int(rng.integers(1, len(ram) + 1))]] if ram else []
    if not fragile:
        alone = []
    others = {host: kept for host, kept in devices.items() if host not in alone}
    made = [_region(rng, f"region{each}", others) for each in range(int(rng.integers(1, 4)))]
    if alone:
        made.append(replace(_region(rng, f"region{len(made)}", dict.fromkeys(alone, True)), fragile=True))
    return tuple(made)


def _region(rng: np.random.Generator, name: str, devices: Mapping[str, bool]) -> RegionPlan:
    files = [host for host, kept in devices.items() if kept]
    replicas = int(rng.choice([1, 1, 2, 2, 3]))
    hosts = files if replicas == 1 else list(devices)
    some = [str(host) for host in rng.permutation(hosts)]
    chosen = some[: max(replicas, int(rng.integers(1, len(some) + 1)))]
    size = 1 << int(rng.integers(16, 21))
    granule = min(1 << int(rng.integers(13, 17)), size)
    shards = 1 << int(rng.integers(0, min(4, (size // granule).bit_length() - 1) + 1))
    dtype = DTYPES[int(rng.integers(len(DTYPES)))]
    kind = str(rng.choice(["array", "array", "parameters", "table"]))
    if kind != "array":
        dtype = "float32" if kind == "parameters" else None
    options = {"parameters": _optimizer, "table": _table}[kind](rng) if kind != "array" else {}
    replicas = min(replicas, len(chosen))
    return RegionPlan(name, size, granule, shards, replicas, dtype, tuple(chosen), kind, options)


def _optimizer(rng: np.random.Generator) -> dict[str, Any]:
    """Options of a region of parameters. Powers of these betas are exact for a while, so no rounding of theirs is in question."""
    workers = int(rng.integers(1, CLIENTS + 1))
    nesterov = bool(rng.random() < 0.3)
    return {
        "optimizer": str(rng.choice(["sgd", "sgd", "adam", "adamw"])),
        "lr": float(rng.choice([0.5, 0.1])),
        "momentum": 0.5 if nesterov else float(rng.choice([0.0, 0.5])),
        "dampening": 0.0 if nesterov else float(rng.choice([0.0, 0.25])),
        "nesterov": nesterov,
        "weight_decay": float(rng.choice([0.0, 0.125])),
        "beta1": 0.5,
        "beta2": 0.75,
        "eps": 1e-8,
        "workers": workers,
        "quorum": int(rng.integers(1, workers + 1)) if rng.random() < 0.3 else 0,
        "mean": bool(rng.random() < 0.5),
        "block": int(rng.choice([64, 256])),
    }


def _table(rng: np.random.Generator) -> dict[str, Any]:
    """Options of a table. Few rows are in RAM, so that there are evictions."""
    return {
        "dim": int(rng.choice([1, 3, 7])),
        "ram_rows": int(rng.choice([1, 8, 32])),
        "optimizer": str(rng.choice(["sgd", "adagrad", "rowwise_adagrad"])),
        "lr": float(rng.choice([0.5, 0.1])),
        "eps": 1e-10,
        "initial": float(rng.choice([0.0, 0.05])),
        "seed": int(rng.integers(100)),
    }


def _rows(rng: np.random.Generator, region: RegionPlan) -> list[Place]:
    """Places of one to three rows of one shard; no row is in two."""
    by_shard: dict[int, list[int]] = {}
    for key in rng.integers(0, 2**64, 120, dtype=np.uint64).tolist():
        by_shard.setdefault(shard_of(key, region.shards), []).append(key)
    length = LaneType.FLOAT32.bytes * int(region.options["dim"])
    made = []
    for _ in range(int(rng.integers(*PLACES))):
        keys = by_shard[int(rng.choice([shard for shard, keys in by_shard.items() if len(keys) >= 3]))]
        some = tuple(keys.pop() for _ in range(int(rng.integers(1, 4))))
        made.append(Place(region.name, some, length, (LaneType.FLOAT32,), Theme.ROWS))
    return made


def _pieces(rng: np.random.Generator, region: RegionPlan) -> list[Place]:
    """Places that do not overlap, at random in the region, with its first and last bytes among them."""
    steps = [int(step) for step in rng.permutation(region.size // ADDRESS_STEP)]
    made = []
    for _ in range(int(rng.integers(*PLACES))):
        if region.kind == "parameters" and rng.random() < 0.6:
            if steps:
                made.append(_block(rng, region, steps.pop() * ADDRESS_STEP))
            continue
        theme, lanes = LANEWISE[int(rng.integers(len(LANEWISE)))], _lanes(rng, region)
        if theme is Theme.CHAIN and lanes[0] in FLOATS:
            # A chain of floats depends on its order: there would be more orders than can be tried.
            theme = Theme.EVERYTHING
        several = theme is Theme.CHAIN or (theme is Theme.EVERYTHING and rng.random() < 0.5)
        pieces = int(rng.integers(2, 4)) if several else 1
        if len(steps) < pieces:
            break
        length = ADDRESS_STEP if theme is Theme.BLOCK and rng.random() < 0.7 else min(int(rng.choice(_SIZES)), 64)
        if theme is Theme.CHAIN and rng.random() < 0.5:
            length = 256  # so that zeros are left out
        ends = [int(rng.choice([0, ADDRESS_STEP - length])) for _ in range(pieces)]
        starts = tuple(steps.pop() * ADDRESS_STEP + end for end in ends)
        made.append(Place(region.name, starts, length, lanes, theme))
    return made


def _block(rng: np.random.Generator, region: RegionPlan, at: int) -> Place:
    """A block of parameters, whole or not."""
    block = int(region.options["block"])
    length = block if rng.random() < 0.7 else LaneType.FLOAT32.bytes * int(rng.integers(1, block // 4))
    end = int(rng.choice([0, ADDRESS_STEP - block]))
    return Place(region.name, (at + end,), length, (LaneType.FLOAT32,), Theme.STEPS, workers=int(region.options["workers"]))


def _lanes(rng: np.random.Generator, region: RegionPlan) -> tuple[LaneType, ...]:
    if region.dtype is not None:
        return _LANES[region.dtype]
    return INTEGERS if rng.random() < 0.7 else (LaneType.FLOAT32, LaneType.FLOAT64)[int(rng.integers(2)) :][:1]


def _events(
    rng: np.random.Generator, devices: Mapping[str, bool], regions: Sequence[RegionPlan], site: Site, total: int
) -> tuple[Event, ...]:
    kinds = [kind for kind in MemoryEventKind if kind in site.kinds and kind is not MemoryEventKind.LOSE]
    if not kinds:
        return ()
    chosen = [kinds[int(rng.integers(len(kinds)))] for _ in range(int(rng.integers(0, 5)))]
    afters = sorted(int(rng.integers(max(1, 3 * total // 4))) for _ in chosen)
    for number in range(1, len(afters)):
        if rng.random() < 0.4:  # in the middle of what has just begun
            afters[number] = afters[number - 1]
    fragile = {host for region in regions if region.fragile for host in region.hosts}
    no_aging = [region for region in regions if not region.fragile]
    others = {host: kept for host, kept in devices.items() if host not in fragile}
    made = [_event(rng, kind, after, others, no_aging) for kind, after in zip(chosen, afters, strict=True)]
    for region in regions:
        if region.fragile:
            made.append(Event(int(rng.integers(max(1, total // 2))), MemoryEventKind.LOSE, region.name, seconds=0.5))
    made.sort(key=lambda event: event.after)
    # While memory is lost and made anew, nothing else happens.
    return tuple(
        replace(event, waits=True) if number and made[number - 1].kind is MemoryEventKind.LOSE else event
        for number, event in enumerate(made)
    )


def _event(
    rng: np.random.Generator, kind: MemoryEventKind, after: int, devices: Mapping[str, bool], regions: Sequence[RegionPlan]
) -> Event:
    seconds, waits = round(float(rng.uniform(0, LONGEST[kind])), 2), bool(rng.random() < 0.5)
    if kind is MemoryEventKind.MOVE:
        region = regions[int(rng.integers(len(regions)))]
        able = [host for host, files in devices.items() if files or region.replicas > 1]
        hosts = [str(host) for host in rng.permutation(able)]
        least = min(region.replicas, len(hosts))
        return Event(after, kind, region.name, tuple(hosts[: int(rng.integers(least, len(hosts) + 1))]), waits=waits)
    if kind in (MemoryEventKind.KILL_DEVICE, MemoryEventKind.HANG_DEVICE):
        host = str(rng.choice(list(devices)))
        # Two devices that lost their memory could be a shard's only ones.
        waits = waits or (kind is MemoryEventKind.KILL_DEVICE and not devices[host])
        return Event(after, kind, host, seconds=seconds, waits=waits)
    return Event(after, kind, seconds=seconds, waits=waits)
