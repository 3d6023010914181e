# SPDX-License-Identifier: MIT
"""A memory device behind a switch is killed while clients use it, and goes on from its folder."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from netsum_controller.config.topologies import star
from netsum_controller.memory.model import RegionSpec
from netsum_testbed.fabric import Fabric

from tests.full.conftest import FABRICS, started
from tests.threads import PATIENCE, meanwhile

pytestmark = pytest.mark.full
LANES = 4000
CLIENTS = ("h3", "h4")


@pytest.fixture(scope="module", params=FABRICS)
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    with started(request.param, star(4)) as fabric:
        fabric.memory.start(["h1", "h2"], folders=True)
        yield fabric


@pytest.mark.parametrize(("seed", "replicas"), [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_everything_is_done_once_while_devices_are_killed(fabric: Fabric, seed: int, replicas: int) -> None:
    """Two clients count on the same lanes, over all shards, until the devices have been killed a few times."""
    fabric.memory.wait_reported(["h1", "h2"])  # the test before may have just started them
    name = f"counters{seed}"
    fabric.memory.create(RegionSpec.of(name=name, dtype="int64", shape=(LANES,), replicas=replicas))
    rand = random.Random(seed)
    fetched: dict[str, list[tuple[int, int]]] = {client: [] for client in CLIENTS}
    over, done = threading.Event(), threading.Semaphore(0)

    def count(client: str) -> None:
        own = random.Random(f"{seed} {client}")
        with fabric.memory.open(name, client) as array:
            while not over.is_set():
                lane = own.randrange(0, LANES, LANES // 8)
                fetched[client].append((lane, int(array.fetch_add(lane, 1))))
                done.release()

    with ExitStack() as stack:
        for client in CLIENTS:
            stack.enter_context(meanwhile(partial(count, client), over.set))
        for _ in range(4):
            for _ in range(rand.randrange(20, 300)):
                assert done.acquire(timeout=PATIENCE), "the clients wait in vain"
            killed = [fabric.memory.devices[host] for host in rand.choice([["h1"], ["h2"], ["h1", "h2"]])]
            for device in killed:
                device.kill()
            for device in killed:
                device.start()
    values: dict[int, list[int]] = {}
    for lane, value in fetched["h3"] + fetched["h4"]:
        values.setdefault(lane, []).append(value)
    for lane, seen in values.items():
        assert sorted(seen) == list(range(len(seen))), f"lane {lane}"
    with fabric.memory.open(name, "h3") as array:
        wanted = np.zeros(LANES, np.int64)
        for lane, seen in values.items():
            wanted[lane] = len(seen)
        assert (array[:] == wanted).all()
