"""Jobs side by side: what is measured, and that no sum is wrong beside a job that misbehaves."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from netsum_controller.config.topologies import star
from netsum_testbed.bench.command import bench
from netsum_testbed.bench.fairness import NEIGHBORS, Case, Setting, SteadyJob, Summary, jain
from netsum_testbed.bench.flood import Kind
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabrics import NamespaceFabric, open_fabric
from netsum_testbed.links import limit_rate
from netsum_testbed.netns import NamespaceError, run_command

from tests.full.commands import invoke

QUICK = "--workers 1 --sizes 16K --seconds 0.2 --repetitions 1 --rate-mbps 400"
NEW = (Kind.VALID, Kind.WRONG, Kind.PLAIN)
"""Those that no other test runs."""


@pytest.mark.root
@pytest.mark.full
def test_no_sum_is_wrong_beside_whoever_it_is(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEIGHBORS, "fairness", ("alone", *NEW))
    monkeypatch.setitem(NEIGHBORS, "priorities", ("alone", "lower"))
    (_, found), (_, classes) = (
        invoke(bench, f"{name} --switch {switch} {QUICK}") for name in ("fairness", "priorities")
    )
    cases = {**found[switch], **classes[switch]}
    assert tuple(cases) == ("alone", *NEW, "lower")
    for case in cases.values():
        assert case["calls_per_s"] > 0
        assert case["wrong"] == 0
    assert all(cases[kind]["neighbour_pps"] > 0 for kind in NEW)
    assert 0.5 <= cases["lower"]["jain"] <= 1.0
    assert found["rate_mbps"] == 400


def test_a_rank_that_fails_is_said() -> None:
    with (
        open_fabric("embedded", hosts=2, rootless=True) as fabric,
        pytest.raises(TestbedError, match=r"rank 0 of job one failed: .*Error"),
    ):
        SteadyJob(fabric, "one", 0, Setting(workers=1, size=0), 0.1).results()


@pytest.mark.root
def test_a_host_sends_no_more_than_its_rate() -> None:
    topology = star(2).filled(hosts={"h1": {"rate_mbps": 80}})
    with NamespaceFabric(topology, "embedded") as fabric:

        def shaped(host: str) -> list[tuple[str, int]]:
            said = fabric._namespace.run("tc", "-j", "qdisc", "show", "dev", fabric.interface(host))
            return [(each["kind"], each["options"].get("rate")) for each in json.loads(said)]

        assert shaped("h1") == [("tbf", 80_000_000 // 8)]
        assert "tbf" not in dict(shaped("h2"))


@pytest.mark.root
def test_a_rate_that_this_machine_cannot_do() -> None:
    with pytest.raises(NamespaceError, match=r"cannot limit the rate of a link .* leave rate_mbps out\): tc qdisc add"):
        limit_rate(run_command, "nosuch0", 80)


@pytest.mark.parametrize(
    "options", [["switches", "--rate-mbps", "9"], ["fairness", "--table", "x"], ["priorities", "--flood"]]
)
def test_what_does_not_go_together(options: list[str]) -> None:
    ran = CliRunner().invoke(bench, options)
    assert (ran.exit_code, "--" in ran.output) == (2, True)


def test_jain() -> None:
    assert jain([5.0, 5.0]) == pytest.approx(1.0)
    assert jain([7.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([2.0, 1.0]) == pytest.approx(0.9)
    assert jain([0.0, 0.0]) == 1.0


def test_a_slowdown_is_that_of_its_turn() -> None:
    """The machine may do other things in between: a case is compared with the one alone that was next to it."""
    alone = [Case("alone", rate, 0) for rate in (100.0, 10.0, 40.0)]
    cases = [Case("equal", rate, wrong, neighbour_rate=rate) for rate, wrong in ((50.0, 0), (5.0, 2), (10.0, 0))]
    found = Summary.of(cases, alone)
    assert (found.rate, found.slowdown, found.wrong, found.jain) == (10.0, 2.0, 2, 1.0)
