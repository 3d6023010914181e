# SPDX-License-Identifier: MIT
"""`netsum advise --aggregator-rate`: when an aggregator beside an Ethernet switch pays."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from netsum.descriptor import check_advice
from netsum_planner.training.advise import advise
from netsum_planner.training.coprocessor import (
    BLOCK,
    FRAME,
    RING_EFFICIENCY,
    Cluster,
    advice,
    by_aggregator,
    by_both,
    by_ring,
    estimates,
    pays_from,
    stripes_for,
)

GBIT = 1e9 / 8
WIRES = Cluster(4, 25 * GBIT, 100 * GBIT, switch_us=1e-6, host_us=1e-6, hop_us=1e-6)
"""Nothing but the cables takes time."""
SIZE = 500_000_000

clusters = st.builds(
    Cluster,
    hosts=st.integers(2, 64),
    host_rate=st.sampled_from([1.0, 10.0, 25.0, 100.0]).map(lambda rate: rate * GBIT),
    aggregator_rate=st.sampled_from([1.0, 10.0, 25.0, 100.0, 400.0]).map(lambda rate: rate * GBIT),
    ranks=st.integers(1, 8),
    multicast=st.booleans(),
    stripes=st.integers(1, 32),
)


def test_cables_alone() -> None:
    wire = FRAME / BLOCK
    assert by_aggregator(WIRES, SIZE).seconds == pytest.approx(SIZE * wire / (25 * GBIT), rel=1e-6)
    assert by_aggregator(replace(WIRES, aggregator_rate=25 * GBIT), SIZE).seconds == pytest.approx(4 * SIZE * wire / (25 * GBIT))
    assert by_ring(WIRES, SIZE).seconds == pytest.approx(1.5 * SIZE / (25 * GBIT * RING_EFFICIENCY))
    assert by_ring(replace(WIRES, ranks=2), SIZE).seconds == pytest.approx(1.75 * SIZE / (25 * GBIT * RING_EFFICIENCY))


@pytest.mark.parametrize("hosts", [3, 4, 8, 32])
def test_an_aggregator_pays_from_n_squared_over_2_n_minus_1_of_the_hosts_rate(hosts: int) -> None:
    found = pays_from(replace(WIRES, hosts=hosts), SIZE)
    assert found is not None
    formula = hosts**2 / (2 * (hosts - 1)) * 25 * GBIT * RING_EFFICIENCY * FRAME / BLOCK
    assert found == pytest.approx(formula, rel=1e-6)
    faster, slower = (replace(WIRES, hosts=hosts, aggregator_rate=found * factor) for factor in (1.001, 0.999))
    assert by_aggregator(faster, SIZE).seconds < by_ring(faster, SIZE).seconds
    assert by_aggregator(slower, SIZE).seconds > by_ring(slower, SIZE).seconds


def test_no_cable_is_fast_enough_for_slow_cores() -> None:
    assert pays_from(replace(WIRES, switch_us=100.0), SIZE) is None
    assert by_aggregator(replace(WIRES, switch_us=100.0), SIZE).bound == "the aggregator's cores"
    assert pays_from(replace(WIRES, switch_us=100.0, stripes=1000), SIZE) is not None
    assert by_aggregator(replace(WIRES, host_us=100.0), SIZE).bound == "a host's core"


def test_stripes_fill_the_aggregators_cable() -> None:
    cluster = Cluster(64, 25 * GBIT, 100 * GBIT)
    needed = stripes_for(cluster)
    assert by_aggregator(replace(cluster, stripes=needed), SIZE).bound != "the aggregator's cores"
    assert by_aggregator(replace(cluster, stripes=needed - 1), SIZE).bound == "the aggregator's cores"


@given(clusters, st.integers(1, 1 << 32))
def test_both_at_once_is_the_best_share(cluster: Cluster, size: int) -> None:
    wires = replace(cluster, hop_us=1e-9)
    found = by_both(wires, size)
    shares = [each / 64 for each in range(65)]
    grid = [_by_share(wires, size, share) for share in shares]
    assert found.seconds <= min(grid) * (1 + 1e-6) + 1e-9
    assert found.seconds <= min(by_ring(wires, size).seconds, by_aggregator(wires, size).seconds) * (1 + 1e-6) + 1e-9
    assert 0 <= found.share <= 1


def _by_share(cluster: Cluster, size: int, share: float) -> float:
    """Both at once, by the definition: the hosts' cables carry what both take, all else only the aggregator's share."""
    alone = by_aggregator(replace(cluster, host_rate=1e30), size, share).seconds
    cables = by_aggregator(replace(cluster, aggregator_rate=1e30, switch_us=1e-12, host_us=1e-12), size, share).seconds
    return max(alone, cables + (1 - share) * by_ring(cluster, size).seconds)


@given(clusters)
def test_advice_is_the_share_of_the_fastest_way(cluster: Cluster) -> None:
    found = advice(cluster)
    check_advice(found)
    for power in range(12, 33):
        share = next((share for size, share in reversed(found) if size <= 1 << power), 1.0)
        assert share == pytest.approx(estimates(cluster, 1 << power)[0].share, abs=0.006)
    assert all(one != other for (_, one), (_, other) in pairwise(((0, 1.0), *found)))


@given(clusters)
def test_a_small_call_is_one_round_trip(cluster: Cluster) -> None:
    assert by_aggregator(cluster, 4).seconds < 2 * cluster.hop_us * 1e-6 + 1e-4
    if cluster.hosts * cluster.ranks > 16:
        assert estimates(cluster, 4)[0].way == "aggregator"


def run(*words: str) -> Result:
    return CliRunner().invoke(advise, words)


def test_the_command() -> None:
    words = ("--size", "500M", "--hosts", "4", "--host-rate", "25G", "--aggregator-rate", "100G")
    found = run(*words, "--stripes", "8", "--host-us", "0.5")
    assert found.exit_code == 0, found.output
    figures = json.loads(found.output.splitlines()[-1])["aggregator"]
    assert [each["way"] for each in figures["ways"]] == ["aggregator", "both", "ring"]
    assert figures["fastest_small"] == "aggregator"
    assert "Alone, an aggregator is faster than the ring from a cable of 64.9 Gbit/s on." in found.output
    assert "it needs" not in found.output
    slow = run(*words)
    assert "Alone, an aggregator is slower than the ring whatever its cable's rate" in slow.output
    assert "To fill its cable it needs 8 cores: --stripes 8." in slow.output
    both = run(*words, "--compute-ms", "200")
    assert {"aggregator", "fastest", "ways"} <= json.loads(both.output.splitlines()[-1]).keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--host-rate", "25G"), "say what to forecast: --compute-ms of a step, or --aggregator-rate"),
        (("--aggregator-rate", "1G"), "--aggregator-rate needs --host-rate"),
        (("--aggregator-rate", "1GG"), "'1GG' is not a rate such as 25G or 100M"),
        (("--host-rate", "-1G"), "'-1G' is not a rate"),
        (("--host-rate", "infG"), "'infG' is not a rate"),
        (("--host-rate", "G"), "'G' is not a rate"),
        (("--host-rate", "1G", "--aggregator-rate", "1G", "--stripes", "0"), "0 is not in the range"),
    ],
)
def test_wrong_options(words: tuple[str, ...], message: str) -> None:
    found = run("--size", "1M", *words)
    assert found.exit_code == 2
    assert message in found.output
