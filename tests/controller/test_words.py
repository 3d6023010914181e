# SPDX-License-Identifier: MIT
"""Wrong values in every place of every kind of file: each is named with its line and its path, in our words, all at once."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from netsum_controller.config.job_spec import load_job, parse_job
from netsum_controller.config.topology import parse_topology
from netsum_controller.config.yaml_files import parse_yaml, validate
from netsum_controller.errors import InputError
from pydantic_core._pydantic_core import list_all_errors

from tests.system.faults.scenario import Scenario

JOB = """
name: resnet
members: [h1, h2]
window: 64
chunks: 16
token: long-enough
late: degrade
block_exp: 50
quorum: 2
tenant: vision
priority: 3
roots: {s1: 1}
algorithm: switch
"""
TOPOLOGY = """
name: two
switches:
  s1:
    device_id: 1
    p4runtime: "127.0.0.1:9559"
    ip: 10.0.0.254
    mac: "02:6e:73:00:00:fe"
    cpu_port: 510
    tls: {ca: ca.pem, cert: a.pem, key: a.key, server_name: s, server_cert: b.pem, server_key: b.key}
  s2: {device_id: 2, ip: 10.0.0.253, mac: "02:6e:73:00:00:fd"}
hosts:
  h1:
    ip: 10.0.0.1
    mac: "02:6e:73:00:00:01"
    switch: s1
    port: 1
    rate_mbps: 10
    mtu: 9000
    frames: "127.0.0.1:9101"
    switch_frames: "127.0.0.1:9001"
links:
  l1: {switches: [s1, s2], ports: [10, 11], rate_mbps: 5, mtu: 9000, frames: ["127.0.0.1:1", "127.0.0.1:2"]}
tenants:
  vision: {slots: 64, job_ids: 2, members: 8}
"""
SCENARIO = """
seed: 17
where: hosts
links:
  0: {up: {loss: 0.05, burst: 4, delay_ms: 1, jitter_ms: 1}, down: {duplicate: 0.02, reorder: 0.1}}
events:
- {after: 3, kind: stall, rank: 1, seconds: 0.2}
"""
KINDS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "job": (JOB, parse_job),
    "topology": (TOPOLOGY, parse_topology),
    "scenario": (SCENARIO, lambda text, source: validate(Scenario, parse_yaml(text, source))),
}
JUNK = [
    None, True, -1, 0, 2**70, 10**400, 1.5, float("nan"), float("inf"), -float("inf"), "", "two", "a/b", "é\n", "x" * 300,
    [], [[]], [1, 2, 3], ["a"], {}, {"a": 1}, {1: 2}, {"a": {"b": {}}}, yaml.safe_load("2001-02-03"), b"\x00\xff",
]  # fmt: skip

PHRASES = {
    part
    for error in list_all_errors()
    for part in re.split(r"\{\w+\}", error["message_template_python"])
    if len(part.strip()) > 12
}
"""Pydantic's words, which must not reach users, apart from values."""


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside the document."""
    if path:
        yield path
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from places(value, (*path, key))


def changed(data: Any, paths: Iterable[tuple[Any, ...]], change: Callable[[Any, Any], None]) -> Any:
    data = copy.deepcopy(data)
    for path in paths:
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        change(inner, path[-1])
    return data


def ruins(data: Any) -> Iterator[Any]:
    """The data with something wrong: one setting too few, some too many, or junk for all values that are equally deep."""
    yield from JUNK
    for path in places(data):
        yield changed(data, [path], lambda inner, key: inner.pop(key))
        if isinstance(path[-1], str):
            yield changed(data, [path], lambda inner, key: inner.update({f"{key}_": 1, 7: 7, None: 1}))
    for depth in range(1, max(map(len, places(data))) + 1):
        level = [path for path in places(data) if len(path) == depth]
        for junk in JUNK:
            yield changed(data, level, lambda inner, key, junk=junk: inner.__setitem__(key, junk))  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
def test_no_word_of_pydantic_reaches_a_user(kind: str) -> None:
    text, parse = KINDS[kind]
    data = yaml.safe_load(text)
    parse(text, "file.yaml")  # is right as it stands
    refused = 0
    for ruin in ruins(data):
        try:
            parse(yaml.safe_dump(ruin, sort_keys=False), "file.yaml")
        except InputError as error:
            refused += 1
            for line in error.args:
                assert re.fullmatch(r"file\.yaml:( |\d+: ).+", line), line
                assert "cannot be used here" not in line, line
                assert not [phrase for phrase in PHRASES if phrase in line], line
    assert refused > 2 * len(list(places(data)))


def test_all_that_is_wrong_comes_at_once_with_its_line() -> None:
    """Types, values, settings unknown or given twice, what cannot be read, and what other parts contradict."""
    text = """\
name: 9
switches:
  s1: {device_id: 1, ip: 10.0.0.254, mac: "02:6e:73:00:00:fe"}
  s2: {device_id: one, ip: 10.0.0.253, mac: "02:6e:73:00:00:fd"}
hosts:
  h1: {ip: 10.0.0.1, mac: "02:6e:73:00:00:01", switch: s1, port: 1, mtuu: 9000}
  h2: {ip: 10.0.0.2, mac: 7, switch: s1, port: 600}
  h3: {ip: 10.0.0.254, mac: "02:6e:73:00:00:03", switch: s9, port: 1}
  h4: {ip: 10.0.0.4, mac: "02:6e:73:00:00:03", switch: s2, port: 1}
links:
  l1: {switches: [s1, s1], ports: [10]}
  l1: {switches: [s1, s2], ports: [10, !!int x]}
tenants: []
"""
    with pytest.raises(InputError) as caught:
        parse_topology(text, "t.yaml")
    assert str(caught.value).splitlines() == [
        "t.yaml:1: name: must be text (it is 9; put quotes around it)",
        "t.yaml:4: switches.s2.device_id: must be a whole number (it is 'one')",
        "t.yaml:6: hosts.h1.mtuu: there is no such setting",
        """t.yaml:7: hosts.h2.mac: a MAC address must be a string like "02:6e:73:00:00:01"; quote it, or YAML may read a """
        "number (it is 7)",
        "t.yaml:7: hosts.h2.port: must be 509 or less (it is 600)",
        "t.yaml:8: hosts.h3.switch: there is no switch 's9' (there are: s1, s2)",
        "t.yaml:8: hosts.h3.ip: 10.0.0.254 is already that of switches.s1",
        "t.yaml:9: hosts.h4.mac: 02:6e:73:00:00:03 is already that of hosts.h3",
        "t.yaml:12: links.l1: is given twice",
        "t.yaml:12: links.l1.ports.1: not valid YAML: 'x' cannot be read as int",
        "t.yaml:13: tenants: must be a mapping of names to values",
    ]
    with pytest.raises(InputError) as caught:
        parse_job("name: a\nmembers: [h1]\nlate: wait\nblock_exp: 5\nquorum: 3\npriority: 8\ntoken: a b\n", "j.yaml")
    assert str(caught.value).splitlines() == [
        "j.yaml:4: block_exp: is for jobs with `late: degrade`; this one waits for every member (it is 5)",
        "j.yaml:5: quorum: is for jobs with `late: degrade`; this one waits for every member (it is 3)",
        "j.yaml:6: priority: must be 7 or less (it is 8)",
        "j.yaml:7: token: must have 8 characters or more",
    ]


def test_an_option_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: a\nmembers: [h1]\nwindow: 0\n")
    with pytest.raises(InputError) as caught:
        load_job(file, {"priority": 9, "block_exp": 5.0})
    assert sorted(str(caught.value).splitlines()) == [
        f"{file}:3: window: must be 1 or more (it is 0)",
        "option --block-exp: block_exp: is for jobs with `late: degrade`; this one waits for every member (it is 5.0)",
        "option --priority: priority: must be 7 or less (it is 9)",
    ]
