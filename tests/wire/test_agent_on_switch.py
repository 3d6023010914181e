# SPDX-License-Identifier: MIT
"""``netsum packet`` against running switches: raw frames on an interface, what passes watched by a second agent."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabrics import NamespaceFabric

from tests.threads import PATIENCE
from tests.wire.conftest import AGENT

pytestmark = pytest.mark.root


@pytest.fixture(params=["embedded", pytest.param("bmv2", marks=pytest.mark.bmv2)])
def fabric(request: pytest.FixtureRequest) -> Iterator[NamespaceFabric]:
    with NamespaceFabric(star(2), request.param) as fabric:
        yield fabric


def agent(fabric: NamespaceFabric, host: str, *arguments: str) -> subprocess.Popen[str]:
    """``netsum packet`` on a host."""
    command = [*fabric.prefix(host), *AGENT, *arguments]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def told(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return out


def send(fabric: NamespaceFabric, rank: int, *values: str) -> str:
    """Contribute as a rank of the job, through the host's interface."""
    member = fabric.controller.descriptor("pair", rank)
    host = f"h{rank + 1}"
    ends = ["--switch", f"{member.switch.ip},{member.switch.mac}", "--host", f"{member.host.ip},{member.host.mac}"]
    link = ["--udp-port", str(member.host.udp_port), "--interface", fabric.interface(host)]
    who = ["--job-id", str(member.job_id), "--src", str(member.src_id), "--block", str(member.first_block_id)]
    return told(agent(fabric, host, "send", *ends, *link, *who, *values))


@pytest.mark.full
def test_sum_by_hand_watched_from_beside(fabric: NamespaceFabric) -> None:
    fabric.create_job(JobSpec(name="pair", members=("h1", "h2")))
    watcher = agent(fabric, "h2", "sniff", fabric.interface("h2"), "--count", "2", "--json")
    try:
        assert watcher.stderr is not None
        assert watcher.stderr.readline() == f"listening on {fabric.interface('h2')}\n"
        first = send(fabric, 0, "--values", "1,2,3", "--wait", "0.1")
        second = send(fabric, 1, "--values", "10,20,30", "--count", "1", "--wait", "10")
        again = send(fabric, 0, "--values", "1,2,3", "--count", "1", "--wait", "10")
        seen = [json.loads(line) for line in told(watcher).splitlines()]
    finally:
        watcher.kill()
        watcher.wait()
    assert "received" not in first
    for text in (second, again):
        assert "received  result" in text
        assert "11 22 33 0" in text
    assert [packet["lanes"][:3] for packet in seen] == [[10, 20, 30], [11, 22, 33]]
    assert [packet["source"].split(":")[1] == "12000" for packet in seen] == [False, True]
