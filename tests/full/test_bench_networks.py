"""``netsum bench plan``, ``links``, ``contention`` and ``torus``: what is measured of networks and of plans for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from netsum.peers.schedule_files import load_plan
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.config.topology import load_topology
from netsum_controller.errors import InputError
from netsum_planner.topologies.files import installed, read_topology, to_yaml
from netsum_planner.topologies.shapes import bigraph, star, torus
from netsum_planner.trees.plan import plan_allreduce
from netsum_testbed.bench.contention import bench_contention
from netsum_testbed.bench.links import bench_links, measured
from netsum_testbed.bench.plan import bench_plan, tuned
from netsum_testbed.bench.torus import bench_torus
from netsum_testbed.direct_hosts import DirectHosts, next_hops
from netsum_testbed.errors import TestbedError

from tests.full.commands import invoke

UNEVEN = Path(__file__).parents[2] / "mininet" / "uneven2x2x2.yaml"


@pytest.mark.parametrize("best", [1, 2, 3, 7, 12, 20, 32])
def test_tuning_comes_near_the_best_chunk(best: int) -> None:
    """Of a rate that rises to its peak and falls beyond, within a quarter; and it measures few."""
    measured: list[int] = []

    def rate(blocks: int) -> float:
        measured.append(blocks)
        return blocks / best if blocks <= best else best / blocks

    chosen = tuned(rate, 32)
    assert rate(chosen) >= 0.75
    assert len(measured) <= 12


@pytest.mark.full
def test_a_plan_is_timed_and_tuned(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_allreduce(read_topology(UNEVEN)).to_json()))
    words = f"{file} --topology {UNEVEN} --switch embedded --size 64K --iterations 1 --tune"
    _, told = invoke(bench_plan, words)
    assert list(told["ways"]) == ["plan, its roots", "equal stripes", "plan, between hosts", "ring"]
    assert all(way["GBps"] > 0 for way in told["ways"].values())
    assert told["chunk_bytes"] == load_plan(str(file)).chunk_bytes
    assert told["optimum_GBps"] == pytest.approx(0.0015)
    assert told["ways"]["plan, its roots"]["predicted_GBps"] == pytest.approx(0.00145, rel=0.01)


@pytest.mark.full
@pytest.mark.root
def test_what_a_dead_link_costs_is_predicted_and_timed(tmp_path: Path) -> None:
    """Without one way from leaf2 up, the other carries everything."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_allreduce(read_topology(UNEVEN)).to_json()))
    words = f"{file} --topology {UNEVEN} --switch embedded --size 64K --iterations 3 --cut leaf2_spine2"
    _, told = invoke(bench_plan, words)
    assert told["ways"]["planned anew, without leaf2_spine2"]["predicted_GBps"] == pytest.approx(0.001)
    assert told["ways"]["planned anew, without leaf2_spine2"]["GBps"] > 0


def test_a_link_that_cannot_be_cut_is_named(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    told = plan_allreduce(read_topology(UNEVEN)).to_json()
    words = [str(file), "--topology", str(UNEVEN), "--cut"]
    file.write_text(json.dumps(told))
    with pytest.raises(InputError, match=r"--cut l9: uneven2x2x2 has no such link.*leaf1_spine1"):
        bench_plan.main([*words, "l9"], standalone_mode=False)
    del told["network"]
    file.write_text(json.dumps(told))
    with pytest.raises(InputError, match="no roots can be planned"):
        bench_plan.main([*words, "leaf1_spine1"], standalone_mode=False)


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


def test_hosts_without_a_switch_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "torus.yaml"
    file.write_text(to_yaml(torus((2, 2), 1)))
    with pytest.raises(InputError, match="on one switch each"):
        bench_contention.main([str(file)], standalone_mode=False)


@pytest.mark.full
@pytest.mark.root
def test_ports_count_what_is_computed_and_simulated(tmp_path: Path) -> None:
    """Acknowledgments and headers are in what is measured, and in the simulated only headers."""
    file = tmp_path / "bigraph.yaml"
    file.write_text(to_yaml(bigraph(4, 1)))
    _, told = invoke(bench_contention, f"{file} --switch embedded --size 256K --iterations 1")
    for order, arrays in (("before", 3), ("after", 1.75)):
        assert told[order]["computed"]["arrays"] == arrays
        assert told[order]["simulated"]["arrays"] == pytest.approx(arrays, rel=0.05)
        assert arrays < told[order]["measured"]["arrays"] < 1.3 * arrays
        assert told[order]["measured"]["GBps"] > 0
    between = {"upper1 -> lower1", "upper1 -> lower2", "upper2 -> lower1", "upper2 -> lower2"}
    assert told["before"]["measured"]["link"] in between | {" -> ".join(each.split(" -> ")[::-1]) for each in between}


@pytest.mark.full
@pytest.mark.root
def test_chains_load_every_link_alike() -> None:
    """2 (n - 1) / n of an array over 3 links of each host, and headers. What is read again on a busy machine is less than what
    one ring instead of three would load its links with."""
    _, told = invoke(bench_torus, "2x2x2 --size 1M --iterations 1 --algorithms chain,ring")
    chain, ring = told["rows"]
    ideal = 2 * 7 / 8 / 3
    assert ideal < chain["link_arrays"]["least"] <= chain["link_arrays"]["most"] < 2 * ideal
    assert len(chain["links"]) == 24
    assert ring["link_arrays"]["most"] > 2.5 * ideal
    assert ring["link_arrays"]["least"] < 0.1
    assert (chain["wrong"], ring["wrong"]) == (0, 0)
    assert chain["stored_bytes"] < 1.01 * chain["size"] < 1.7 * ring["size"] < ring["stored_bytes"]


def test_what_is_no_torus_is_refused() -> None:
    for sides in ("2", "2x", "0x2", "2x2x2x2"):
        with pytest.raises(InputError, match="torus has 2 or 3 sides"):
            bench_torus.main([sides], standalone_mode=False)
    with pytest.raises(TestbedError, match="no switch"):
        DirectHosts(star(3, 1), 10)


def test_hosts_forward_along_shortest_paths() -> None:
    topology = torus((3, 3), 1)
    hops = {host: next_hops(topology, host) for host in topology.hosts}
    for host in topology.hosts:
        assert set(hops[host]) == set(topology.hosts) - {host}
        for target in hops[host]:
            path = [host]
            while path[-1] != target:
                path.append(hops[path[-1]][target])
            assert len(path) <= 3
    assert len(set(hops["h1"].values())) == 4, "all links are used"
