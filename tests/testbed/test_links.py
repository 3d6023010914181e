# SPDX-License-Identifier: MIT
"""``make links``: the switches count what the formulas say, and never less."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction

import pytest
from click.testing import CliRunner
from netsum.frames import PREFIX_BYTES
from netsum.wire.schema import HEADER_BYTES
from netsum_controller.config.topologies import leaf_spine, tree
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import fabric_of

from tests.switch.harness.launch import KINDS
from tests.system.traffic import command, links
from tests.system.traffic.command import LinkTotals
from tests.system.traffic.costs import COSTS, FRAME_HEADERS, Place, frames, headers
from tests.system.traffic.links import RANKS, SIZE, Line, LinkBytes, below, collectives, network, stripes

BLOCK = 4096
HEADERS = PREFIX_BYTES + HEADER_BYTES
FRAME = BLOCK + HEADERS
SUM = 64 * FRAME + 256 + HEADERS
"""An allreduce on a link, and the agreement."""


def test_the_formulas() -> None:
    by_name = {cost.collective: cost for cost in COSTS}
    here, there = Place(4, 2, with_root=True), Place(4, 2, with_root=False)
    assert by_name["allreduce"].up.share(here) == 1
    assert (by_name["broadcast"].up.share(here), by_name["broadcast"].up.share(there)) == (1, 0)
    assert (by_name["all_gather"].up.share(here), by_name["all_gather"].down.share(here)) == (2, 4)
    assert (by_name["gather"].up.share(here), by_name["gather"].up.share(there)) == (1, 2)
    assert (by_name["scatter"].up.share(here), by_name["scatter"].up.share(there)) == (Fraction(3, 4), 0)
    assert by_name["all_to_all"].up.share(here) == Fraction(3, 2)
    assert frames(by_name["allreduce"], 4, SIZE, BLOCK) == 65
    assert SIZE + headers(by_name["allreduce"], 4, SIZE, BLOCK, FRAME_HEADERS) == SUM
    assert headers(by_name["barrier"], 4, SIZE, BLOCK, FRAME_HEADERS) == 256 + HEADERS


@pytest.fixture(autouse=True)
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retransmissions are allowed for below, so no call need be made twice."""
    monkeypatch.setattr(links, "TRIES", 1)


@pytest.fixture(scope="module", params=KINDS)
def leaves(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """Two leaves of four hosts under one root."""
    with fabric_of(tree(2, 4), request.param, rootless=request.param == "embedded") as fabric:
        yield fabric


def check(way: LinkBytes) -> None:
    """As many bytes as the formula says; more only in packets that were sent again (a packet is a block at most)."""
    assert way.expected <= way.measured <= way.expected + way.again * FRAME


@pytest.mark.full
def test_collectives_on_a_tree(leaves: Fabric) -> None:
    names = ("allreduce", "broadcast", "all_gather", "gather", "scatter", "all_to_all", "barrier")
    costs = [cost for cost in COSTS if cost.collective in names]
    with network(leaves, ["h1", "h2", "h5", "h6"]) as made:
        lines = list(collectives(made, costs))
    assert [(line.collective, line.link) for line in lines[:3]] == [
        ("allreduce", "h1 - leaf1"),
        ("allreduce", "leaf1 - root"),
        ("allreduce", "leaf2 - root"),
    ]
    for line in lines:
        check(line.up)
        assert (line.down is None) == line.link.startswith("h1")
        if line.down is not None:
            check(line.down)


@pytest.mark.parametrize("hosts", [2, pytest.param(4, marks=pytest.mark.full)])
def test_an_uplink_carries_one_array_whatever_is_below(leaves: Fabric, hosts: int) -> None:
    with network(leaves, [*list(leaves.topology.hosts)[:hosts], "h5"]) as made:
        line = below(made, "leaf1")
    assert line.hosts == hosts
    assert line.sent >= hosts * SUM
    assert line.up.expected == SUM
    check(line.up)
    check(line.down)


@pytest.mark.root
@pytest.mark.bmv2
@pytest.mark.full
def test_roots_carry_their_share() -> None:
    """Of 16 stripes one spine has 12: so many of the bytes go there, up and down, but for what is sent again."""
    with (
        fabric_of(leaf_spine(2, 2, 1), "bmv2") as fabric,
        network(fabric, ["h1", "h2"], roots={"spine1": 3, "spine2": 1}) as made,
    ):
        found = list(stripes(made, "3 : 1", 4 * SIZE))
    assert [(each.link, each.due) for each in found] == [
        ("leaf1 - spine1", 0.75), ("leaf1 - spine2", 0.25), ("leaf2 - spine1", 0.75), ("leaf2 - spine2", 0.25),
    ]  # fmt: skip
    for each in found:
        assert each.up >= each.due * 4 * SIZE
        assert each.down >= each.due * 4 * SIZE
        assert (each.up_share > 0.5) == (each.due > 0.5)


@pytest.mark.full
def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one topology, and with few hosts: the tables, and the JSON line."""
    monkeypatch.setattr(command, "NETWORKS", {"tree": command.NETWORKS["tree"]})
    monkeypatch.setattr(command, "BELOW", (1, 2))
    monkeypatch.setattr(command, "STRIPED", SIZE)
    ran = CliRunner().invoke(command.links, ["--switch", "embedded", "--rootless"])
    assert ran.exit_code == 0, ran.output
    last = json.loads(ran.output.splitlines()[-1])
    assert (last["switch"], last["wrong"], last["size"]) == ("embedded", 0, SIZE)
    assert len(last["collectives"]) == 3 * len(COSTS)
    assert [each["hosts"] for each in last["below"]] == [1, 2]
    assert {each["weights"] for each in last["stripes"]} == {"1 : 1", "3 : 1"}
    assert f"n = {RANKS} ranks, S = {SIZE:,}" in ran.output


def test_less_than_the_formula_is_wrong() -> None:
    report = LinkTotals("embedded")
    report.collectives.append(Line("tree", "allreduce", "leaf1 - root", LinkBytes("S", 10, 10, 0), None))
    assert (report.failures, report.exit_code) == (0, 0)
    report.collectives.append(Line("tree", "allreduce", "leaf2 - root", LinkBytes("S", 10, 10, 0), LinkBytes("S", 10, 9, 0)))
    assert (report.failures, report.exit_code) == (1, 1)
