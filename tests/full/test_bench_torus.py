"""``netsum bench torus``."""

from __future__ import annotations

import pytest
from netsum_controller.errors import InputError
from netsum_planner.topologies.shapes import star, torus
from netsum_testbed.bench.torus import bench_torus
from netsum_testbed.direct_hosts import DirectHosts, next_hops
from netsum_testbed.errors import TestbedError

from tests.full.commands import invoke


@pytest.mark.full
@pytest.mark.root
def test_chains_load_every_link_alike() -> None:
    """2 (n - 1) / n of an array over 3 links of each host; and headers, in packets of 8 KiB less than 5 % with those of TCP."""
    _, told = invoke(bench_torus, "2x2x2 --size 1M --iterations 1 --algorithms chain,ring")
    chain, ring = told["rows"]
    ideal = 2 * 7 / 8 / 3
    assert ideal < chain["link_arrays"]["least"] <= chain["link_arrays"]["most"] < 1.2 * ideal
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
