# SPDX-License-Identifier: MIT
"""Training at the memory on whole networks: devices that die and regions that move in the midst of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum.frames import PREFIX_BYTES
from netsum.memory.embedding import Table
from netsum.memory.parameters import Parameters
from netsum.wire.memory import MEMORY_HEADER_BYTES, SEGMENT_BYTES
from netsum_controller.errors import RejectedError
from netsum_controller.memory.model import RegionSpec
from netsum_memory.optimizer_rules import LocalOptimizer, OptimizerOptions
from netsum_memory.tables import TableOptions
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import open_fabric

from tests.memory.rows import Reference
from tests.memory.test_parameters import gradients, model, same
from tests.threads import together

pytestmark = pytest.mark.full
ELSE = 20_000
"""Bytes of what a device tells the controller, and kernels tell each other, meanwhile."""
OPTIONS = {"optimizer": "adam", "lr": 0.1, "workers": 2}


@pytest.fixture(
    params=[
        "rootless",
        pytest.param("embedded", marks=pytest.mark.root),
        pytest.param("bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
    ],
)
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    rootless = request.param == "rootless"
    with open_fabric("embedded" if rootless else request.param, hosts=5, rootless=rootless) as fabric:
        yield fabric


def step(workers: Sequence[Parameters], number: int, reference: LocalOptimizer) -> None:
    calls = [partial(worker.step, gradients(worker.worker, number)) for worker in workers]
    for made in together(calls):
        assert made == (number, 2), made
    reference.step([gradients(worker, number) for worker in range(2)])


def opened(fabric: Fabric, hosts: Sequence[str] = ("h4", "h5")) -> list[Parameters]:
    def open_on(host: str, worker: int) -> Parameters:
        memory = fabric.memory.open("model", host, call_timeout=60.0)
        return fabric.on_host(host, lambda: Parameters(memory, model(), worker=worker, owns=True))

    made = [open_on(host, worker) for worker, host in enumerate(hosts)]
    for each in made:
        each.begin()
    return made


def train(fabric: Fabric, events: dict[int, Any]) -> None:
    """Steps, before some of which something happens; the parameters are those of one process."""
    workers, local = opened(fabric), model()
    reference = LocalOptimizer(OptimizerOptions.of(OPTIONS), local)
    for number in range(1, 13):
        events.get(number, lambda: None)()
        step(workers, number, reference)
    for worker in workers:
        same(worker.layers, local)
        worker.close()


def parameters(**more: Any) -> RegionSpec:
    return RegionSpec.of(name="model", kind="parameters", dtype="float32", size=1 << 18, options=OPTIONS, **more)


def test_a_device_is_killed_and_comes_back(fabric: Fabric) -> None:
    fabric.memory.start(["h1", "h2"], folders=True)
    fabric.memory.create(parameters())

    def restart() -> None:
        device = fabric.memory.devices["h1"]
        device.kill()
        device.start()

    train(fabric, {3: restart, 7: restart})


def test_a_devices_link_carries_a_steps_parameters_once(fabric: Fabric) -> None:
    """They come in at the switch once, and go out to all; what else comes in answers those who ask again."""
    fabric.memory.start(["h1"])
    options = {**OPTIONS, "workers": 4}
    fabric.memory.create(RegionSpec.of(name="model", kind="parameters", dtype="float32", size=1 << 18, options=options))
    workers, local = opened(fabric, ["h2", "h3", "h4", "h5"]), model()
    reference = LocalOptimizer(OptimizerOptions.of(options), local)
    size, steps, blocks = sum(layer.nbytes for layer in local), 10, workers[0]._blocks.number
    before = from_port(fabric, "h1")
    for number in range(1, steps + 1):
        for made in together([partial(mine.step, gradients(mine.worker, number)) for mine in workers]):
            assert made == (number, 4), made
        reference.step([gradients(worker, number) for worker in range(4)])
    came = from_port(fabric, "h1") - before
    again = sum(mine.memory.stats.retransmissions for mine in workers)
    heads = PREFIX_BYTES + MEMORY_HEADER_BYTES + 4 * SEGMENT_BYTES
    packet = heads + int(workers[0]._blocks.lengths.max())
    assert steps * (size + blocks * heads) <= came <= steps * (size + blocks * heads) + again * packet + ELSE
    for mine in workers:
        same(mine.layers, local)
        assert steps * blocks - again <= mine.memory.stats.shared <= steps * blocks
        assert mine.memory.stats.shared
        mine.close()


def from_port(fabric: Fabric, host: str) -> int:
    """Bytes of frames that have come from a host."""
    place = fabric.topology.hosts[host]
    with fabric.controller.context.client(place.switch) as client:
        return client.read_ports([place.port])[place.port].bytes


def test_a_wrong_option_is_named(fabric: Fabric) -> None:
    fabric.memory.start(["h1"])
    with pytest.raises(RejectedError, match="optimizer is one of sgd, adam"):
        fabric.memory.create(RegionSpec.of(name="x", kind="parameters", size=1 << 16, options={"optimizer": "sdg"}))
    with pytest.raises(RejectedError, match="a table needs the option dim"):
        fabric.memory.create(RegionSpec.of(name="y", kind="table", size=1 << 16))


def test_a_device_dies_for_good_and_its_replica_goes_on(fabric: Fabric) -> None:
    fabric.memory.start(["h1", "h2", "h3"])
    fabric.memory.create(parameters(replicas=2))
    train(fabric, {4: fabric.memory.devices["h1"].kill})


def test_the_region_moves(fabric: Fabric) -> None:
    fabric.memory.start(["h1", "h2", "h3"])
    fabric.memory.create(parameters(devices=("h1", "h2")))
    train(fabric, {3: partial(fabric.controller.move_region, "model", ["h3"])})


def test_a_table_whose_device_dies(fabric: Fabric) -> None:
    """Its replica has all rows, those on disk, too."""
    fabric.memory.start(["h1", "h2"])
    options = {"dim": 8, "optimizer": "adagrad", "lr": 0.1, "ram_rows": 64}
    fabric.memory.create(RegionSpec.of(name="rows", kind="table", size=1 << 17, replicas=2, options=options))
    reference = Reference(TableOptions.of(options))
    with Table(fabric.memory.open("rows", "h4", call_timeout=60.0), owns=True) as table:
        for number in range(12):
            if number == 6:
                fabric.memory.devices["h2"].kill()
            rng = np.random.default_rng(number)
            keys = rng.integers(0, 500, 200).astype(np.uint64)
            pushed = rng.normal(size=(200, 8)).astype(np.float32)
            np.testing.assert_array_equal(table.lookup(keys), reference.lookup(keys))
            table.push(keys, pushed)
            reference.push(keys, pushed)
