# SPDX-License-Identifier: MIT
"""The readers of what people write: topologies, jobs, scenarios of faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from netsum_controller.config.job_spec import parse_job
from netsum_controller.config.topology import parse_topology
from netsum_controller.config.yaml_files import parse_yaml, validate
from netsum_controller.errors import InputError

from tests.fuzz.targets.api import FuzzTarget
from tests.system.faults.scenario import Scenario

Model = TypeVar("Model")

_TOPOLOGY = b"""\
name: star2
switches:
  s1: {device_id: 1, p4runtime: "127.0.0.1:9559", ip: 10.0.0.254, mac: "02:6e:73:00:00:fe"}
hosts:
  h1: {ip: 10.0.0.1, mac: "02:6e:73:00:00:01", switch: s1, port: 1, mtu: 9000}
"""
_JOB = b"""\
name: resnet
members: [h1, h2]
window: 64
chunks: 16
late: degrade
block_exp: 50
quorum: 2
"""
_SCENARIO = b"""\
seed: 17
where: hosts
links:
  0:
    up: {loss: 0.05, burst: 4}
    down: {duplicate: 0.02, reorder: 0.1, delay_ms: 0.5, jitter_ms: 1}
events:
  - {after: 3, kind: stall, rank: 1, seconds: 0.2}
  - {after: 5, kind: restart_switch, seconds: 0.5}
"""
_ODD = (b"a: &a [*a]", b"? [1]\n: 2", b"{a: 1, a: 2}", b"!!python/object:os.system x", b"- " * 300, b"%YAML 9.9\n---\n",
        b"a: 2001-02-30", b"a: 1e400\n<<: {b: 1}", b"\xff\xfe", b"a: !!int x", b"hosts: {<<: 1}")  # fmt: skip


def target() -> FuzzTarget:
    """An input is the text of a file."""

    def take(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        _read_or_refused(parse_job, text)
        topology = _read_or_refused(parse_topology, text)
        assert topology is None or parse_topology(topology.to_yaml()) == topology
        scenario = _read_or_refused(_scenario, text)
        assert scenario is None or Scenario.model_validate_json(scenario.to_line()) == scenario

    files = [path.read_bytes() for path in sorted(Path("mininet/topologies").glob("*.yaml"))]
    return FuzzTarget(take, [_TOPOLOGY, _JOB, _SCENARIO, *files, *_ODD], 2048)


def _scenario(text: str, source: str) -> Scenario:
    return validate(Scenario, parse_yaml(text, source))


def _read_or_refused(read: Callable[[str, str], Model], text: str) -> Model | None:
    """The file as read, or None when it was refused: each reason is one line that names the file."""
    try:
        return read(text, "file.yaml")
    except InputError as error:
        reasons = error.args
    for reason in reasons:
        assert reason.startswith("file.yaml"), reason
        assert "\n" not in reason, reason
    return None
