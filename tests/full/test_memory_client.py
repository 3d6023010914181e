# SPDX-License-Identifier: MIT
"""Clients of memory in the network on real switches: the kernel's UDP on Mininet hosts, and the arrays of every fabric."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from netsum.controller_http import ControllerRequests
from netsum.transports import ImpairedTransport, Impairment
from netsum_controller.config.topologies import star
from netsum_controller.memory.model import RegionSpec
from netsum_testbed.fabric import Fabric
from netsum_testbed.mininet_fabric import MininetFabric

from tests.docs.pages import ROOT
from tests.full.conftest import FABRICS, started

pytestmark = pytest.mark.full
BAD = Impairment(drop=0.03, duplicate=0.03, reorder=0.03, delay=0.001)


@pytest.fixture(params=FABRICS)
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    with started(request.param, star(4)) as fabric:
        fabric.memory.start(["h1", "h2", "h3"])
        yield fabric


def test_arrays_over_bad_links(fabric: Fabric) -> None:
    shape = (300, 700)
    fabric.memory.create(RegionSpec.of(name="r", dtype="float32", shape=shape))
    x = np.random.default_rng(1).random(shape, np.float32)
    with fabric.memory.open("r", "h4", wrap=lambda link: ImpairedTransport(link, BAD, 1)) as region:
        region[...] = x
        region.add((slice(None), slice(5, 600)), x[:, 5:600])
        x[:, 5:600] *= 2
        region.copy(slice(0, 100), slice(150, 250))
        x[:100] = x[150:250].copy()
        found = region.fetch_add((7, slice(0, 50)), 1)
        assert (found == x[7, :50]).all()
        x[7, :50] += 1
        assert (region[...] == x).all()
        assert region.stats.retransmissions
        assert region.compare_swap((0, 0), x[0, 0], 9).done


@pytest.mark.root
def test_the_kernels_udp_of_a_host(switch: str, tmp_path: Path) -> None:
    """A client of thirty lines, whose packets have checksums, and netsum's own: the host knows one address, no topology."""
    program = (ROOT / "examples" / "memory_client.py").read_text("utf-8")
    with MininetFabric(star(3), switch) as fabric:
        fabric.memory.start(["h1", "h2"])
        region = fabric.memory.create(RegionSpec.of(name="counters", dtype="int64", shape=(10_000,)))
        url = fabric.controller.url
        assert url is not None
        told = ControllerRequests("/v1/memory/regions/counters", region.token, url, "counters").request("GET", "")
        path = tmp_path / "counters.json"
        path.write_text(json.dumps(told), "utf-8")

        def on_h3(text: str, *arguments: object) -> str:
            command = [*fabric.prefix("h3"), sys.executable, "-c", text, *map(str, arguments)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        plain = on_h3(program, told["virtual_ip"], told["port"], told["key"], told["base"])
        assert plain == "(0, b'')\n(2,)\n(1, 42, 3)\n"
        ours = "import sys, netsum.memory as m, numpy as np\nwith m.open(descriptor=sys.argv[1]) as a:\n"
        ours += " assert a[:3].tolist() == [1, 42, 3]\n a[...] = np.arange(10_000)\n a.add(..., 1)\n print(a[...].sum())\n"
        assert on_h3(ours, path) == f"{10_000 * 10_001 // 2}\n"
