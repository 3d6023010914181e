# SPDX-License-Identifier: MIT
"""``make cluster-check`` as a user sees it, on a smaller network."""

from __future__ import annotations

import sys

import pytest

from tests.system.cluster.network import AGGREGATOR, OrdinaryNetwork
from tests.testbed.conftest import Start

pytestmark = pytest.mark.root


def test_the_network() -> None:
    """Servers reach each other, those behind NAT with the router's address; what is filtered does not come."""
    with OrdinaryNetwork(3, routed=1, nat=True) as network:
        for host in network.hosts:
            network.run(host, "ping", "-c", "1", "-w", "600", network.address(AGGREGATOR))
        network.filter("h3", "icmp type echo-request drop")
        with pytest.raises(Exception, match="100% packet loss"):
            network.run("h3", "ping", "-c", "1", "-W", "1", network.address(AGGREGATOR))
        network.unfilter("h3")
        network.run("h3", "ping", "-c", "1", "-w", "600", network.address(AGGREGATOR))


@pytest.mark.full
@pytest.mark.torch
def test_a_small_one(netsum: Start) -> None:
    words = "plain", "reordering", "killed", "forger", "to the aggregator is blocked"
    trials = (part for each in words for part in ("--only", each))
    sizes = ("--hosts", "2", "--ranks", "1", "--steps", "30", "--calls", "2", "--python", sys.executable)
    command = netsum("cluster-check", *trials, *sizes)
    command.ends()
    said = command.json()
    assert len(said["trials"]) == len(words)
    assert (said["losses_equal"], said["wrong"], said["forged_changes"]) == (True, 0, 0)
    assert said["times_gloo_16M"] > 0
    assert said["times_gloo_4K"] > 0
    assert said["times_gloo_16M_one_server"] > 0
    ways = said["ways"]["2x1"]
    assert min(ways["seconds"][name] for name in ("auto", "ring", "aggregator")) > 0
    assert ways["chosen"].startswith("allreduces of 16,777,216 to ")
    assert said["times_better_of_ring_and_aggregator"] == ways["times_better"]
    assert "(host1) to 10.1.0.12:12000 is blocked: it has sent block" in said["trials"]["UDP to the aggregator is blocked"]["why"]
    forged = said["trials"]["a forger on the same bridge"]
    assert min(forged["forged"].values()) > 0


def test_what_cannot_be(netsum: Start) -> None:
    command = netsum("cluster-check", "--only", "nothing", "--python", sys.executable)
    command.ends(2)
    assert "no trial has these words" in command.output
