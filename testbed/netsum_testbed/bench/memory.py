"""The cost of memory in the network: a device beside an echo of the same bytes, and devices behind a switch."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.request import urlopen

import netsum.memory
import numpy as np
from netsum.descriptor import SwitchAddress
from netsum.memory.array import MemoryArray
from netsum.memory.descriptor import RegionDescriptor
from netsum_controller.memory.model import RegionSpec
from netsum_memory.region import Assignment, Keys, Peer, Region
from prometheus_client.parser import text_string_to_metric_families

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import Child

REGION_BYTES: Final = 4 << 20
GRANULE: Final = 8192
DEVICES: Final = 4
LOADS: Final = ("read", "write", "add")
ROWS_AT_ONCE: Final = 256
"""READs of a skewed load that a client has under way."""
_BASE: Final = 1 << 32


@dataclass(frozen=True)
class MemoryPlan:
    """``sizes``: bytes that an instruction is about; each load runs ``seconds`` in every one of ``turns``."""

    sizes: tuple[int, ...] = (64, 1024, 8192)
    seconds: float = 0.5
    turns: int = 5
    latencies: int = 500


@dataclass
class Measured:
    """One load and size: instructions a second in each turn, and seconds of single ones."""

    size: int
    rates: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    def percentile_us(self, share: float) -> float:
        return float(np.percentile(self.times, 100 * share)) * 1e6

    def to_dict(self) -> dict[str, float]:
        return {
            "per_second": round(self.rate),
            "bytes_per_second": round(self.rate * self.size),
            "p50_us": round(self.percentile_us(0.5), 1),
            "p99_us": round(self.percentile_us(0.99), 1),
        }


class Target:
    """An array with instructions on any number of bytes."""

    def __init__(self, array: MemoryArray, loads: Sequence[str] = LOADS) -> None:
        self.loads = loads
        self._array = array
        self._by_size: dict[int, MemoryArray] = {}

    def _of_size(self, size: int) -> MemoryArray:
        if size not in self._by_size:
            floats = self._array.view(np.float32)
            self._by_size[size] = MemoryArray(self._array.client, floats.descriptor, size, owns_client=False)
        return self._by_size[size]

    def _call(self, load: str, size: int, nbytes: int) -> Callable[[], object]:
        array, items = self._of_size(size), nbytes // 4
        values = np.random.default_rng(1).standard_normal(items).astype(np.float32)
        return {
            "read": lambda: array.read(slice(0, items), out=values),
            "write": lambda: array.write(slice(0, items), values),
            "add": lambda: array.add(slice(0, items), values),
        }[load]

    def rows(self, size: int) -> MemoryArray:
        """The same memory as rows of so many bytes."""
        return self._array.view(np.uint8, (REGION_BYTES // size, size))

    def measure(self, load: str, plan: MemoryPlan, into: Measured) -> None:
        """One turn: many under way, then one by one."""
        size = into.size
        number = min(REGION_BYTES // size, 1024)
        call = self._call(load, size, number * size)
        call()
        began, calls = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < plan.seconds or not calls:
            call()
            calls += 1
        into.rates.append(calls * number / spent)
        single = self._call(load, size, size)
        for _ in range(max(1, plan.latencies // plan.turns)):
            began = time.perf_counter()
            single()
            into.times.append(time.perf_counter() - began)


Figures = Mapping[str, Mapping[str, Mapping[int, Measured]]]
"""By target, load and size."""


def measure_all(targets: Mapping[str, Target], plan: MemoryPlan, progress: Callable[[str], None]) -> Figures:
    """Measure everything in turns, so that other load on the machine affects all alike."""
    found = {
        name: {load: {size: Measured(size) for size in plan.sizes} for load in target.loads}
        for name, target in targets.items()
    }
    for turn in range(plan.turns):
        for size in plan.sizes:
            for name, target in targets.items():
                progress(f"turn {turn + 1} of {plan.turns}: {name}, {size} bytes")
                for load in target.loads:
                    target.measure(load, plan, found[name][load][size])
    return found


@contextmanager
def on_loopback() -> Iterator[Mapping[str, Target]]:
    """A device and the echo, both by the kernel's UDP without a switch."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="netsum-")))
        keys = Keys(1, 2, 3)
        region = Region(1, "bench", _BASE, REGION_BYTES, GRANULE, 1, keys)
        orders, ready = folder / "orders.json", folder / "ready.json"
        orders.write_text(json.dumps({"shards": [Assignment(region, 0, 1, (Peer("h1", "127.0.0.1"),)).to_dict()]}))
        words = ["--host", "h1", "--address", "127.0.0.1:0", "--orders", str(orders), "--ready-file", str(ready)]
        device = Child([sys.executable, "-m", "netsum_memory.cli", *words], output=None)
        stack.callback(device.stop)
        if not device.stdout.readline().startswith("memory device"):
            raise TestbedError(f"the memory device did not start: {device.stdout.read()}")
        echo = Child([sys.executable, "-m", "netsum_testbed.bench.memory_echo"], output=None)
        stack.callback(echo.stop)
        line = echo.stdout.readline().strip()
        if not line.isdigit():
            raise TestbedError(f"the echo did not start: {line} {echo.stdout.read()}")
        port = int(json.loads(ready.read_text())["address"].rpartition(":")[2])
        opened = {
            name: stack.enter_context(_open(port, keys.write)) for name, port in (("device", port), ("echo", int(line)))
        }
        yield {"device": Target(opened["device"]), "echo": Target(opened["echo"], ("read", "write"))}


def _open(port: int, key: int) -> MemoryArray:
    address = SwitchAddress("127.0.0.1", "00:00:00:00:00:00", port)
    return netsum.memory.open(
        descriptor=RegionDescriptor("bench", 1, _BASE, REGION_BYTES, key, address, granule=GRANULE)
    )


def behind(fabric: Fabric, stack: ExitStack) -> Mapping[str, Target]:
    """Regions of the same size on the same devices: interleaved, in one piece a device, and interleaved with backups."""
    hosts = list(fabric.topology.hosts)[:DEVICES]
    fabric.memory.start(hosts, options=("--metrics", "0"))
    regions = {
        "interleaved": {"granule": GRANULE, "shards": 4 * DEVICES},
        "not interleaved": {"granule": REGION_BYTES // DEVICES, "shards": DEVICES},
        "two replicas": {"granule": GRANULE, "shards": 4 * DEVICES, "replicas": 2},
    }
    targets = {}
    for number, (name, how) in enumerate(regions.items()):
        spec = RegionSpec.of(name=f"bench{number}", size=REGION_BYTES, devices=tuple(hosts), **how)
        fabric.memory.create(spec)
        client = list(fabric.topology.hosts)[DEVICES + number]
        array = fabric.memory.open(spec.name, client)
        stack.callback(array.close)
        targets[name] = Target(array)
    return targets


@dataclass(frozen=True)
class Skewed:
    """READs of granules by Zipf's law, of which the first is asked for most often."""

    per_second: float
    shares: tuple[float, ...]
    """Shares of all READs by device, the busiest first."""

    def to_dict(self) -> dict[str, Any]:
        return {"per_second": round(self.per_second), "shares": [round(share, 3) for share in self.shares]}


def measure_skewed(fabric: Fabric, target: Target, seconds: float) -> Skewed:
    """Each device's share of a load that prefers neighboring granules."""
    rows = target.rows(GRANULE)
    rng = np.random.default_rng(1)
    weights = 1 / np.arange(1, len(rows) + 1)
    weights /= weights.sum()
    before, began, asked = _reads(fabric), time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        rows.read(rng.choice(len(rows), ROWS_AT_ONCE, p=weights))
        asked += ROWS_AT_ONCE
    reads = [after - earlier for after, earlier in zip(_reads(fabric), before, strict=True)]
    shares = sorted((number / sum(reads) for number in reads), reverse=True)
    return Skewed(asked / spent, tuple(shares))


def _reads(fabric: Fabric) -> list[float]:
    """READs by device so far."""
    return [fabric.inside(lambda host=host: _reads_of(fabric, host)) for host in fabric.memory.devices]  # type: ignore[misc]


def _reads_of(fabric: Fabric, host: str) -> float:
    port = fabric.memory.devices[host].metrics
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:  # the loopback, and a number
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return sum(
        sample.value
        for sample in samples
        if sample.name == "netsum_memory_instructions_total" and sample.labels["instruction"] == "read"
    )
