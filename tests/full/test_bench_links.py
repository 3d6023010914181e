# SPDX-License-Identifier: MIT
"""``netsum bench links``: what each link of a testbed carries."""

from __future__ import annotations

from pathlib import Path

import pytest
from netsum_bench.links import bench_links, measured
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.config.topology import load_topology
from netsum_planner.topologies.files import installed, read_topology
from netsum_testbed.errors import TestbedError

from tests.full.commands import invoke

UNEVEN = Path(__file__).parents[2] / "mininet" / "topologies" / "uneven2x2x2.yaml"


def paths(rate: float) -> dict[tuple[str, str], float]:
    """So many bytes per second in every direction of UNEVEN."""
    return {(link.source, link.target): rate for link in installed(load_topology(UNEVEN)).links}


def test_rates_have_two_digits() -> None:
    found = measured(installed(load_topology(UNEVEN)), {**paths(1_003_999), ("h1", "leaf1"): 2_151_234})
    assert {float(link.rate) for link in found.links} == {0.001, 0.0022}


def test_a_link_that_carried_nothing_is_named() -> None:
    with pytest.raises(TestbedError, match="leaf1 -> spine2"):
        measured(installed(load_topology(UNEVEN)), {**paths(1.0), ("leaf1", "spine2"): 0.0})


def test_one_host_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(leaf_spine(1, 1, 1).to_yaml())
    with pytest.raises(TestbedError, match="two hosts"):
        bench_links.main([str(file)], standalone_mode=False)


@pytest.mark.full
@pytest.mark.root
@pytest.mark.parametrize("switch", ["embedded", pytest.param("bmv2", marks=pytest.mark.bmv2)])
def test_the_slow_link_is_found(switch: str, tmp_path: Path) -> None:
    written = tmp_path / "measured.yaml"
    _, told = invoke(bench_links, f"{UNEVEN} --switch {switch} --seconds 1 -o {written}")
    mbps = told["mbps"]
    assert mbps["leaf1 -> spine2"] == pytest.approx(4, rel=0.1)
    assert mbps["leaf1 -> spine1"] == pytest.approx(8, rel=0.1)
    assert set(mbps) == {f"{one} -> {other}" for one, other in read_topology(written).rates}
