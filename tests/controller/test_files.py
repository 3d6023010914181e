# SPDX-License-Identifier: MIT
"""Topology and job files: what is right is read, what is wrong is quoted with its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from netsum_controller.config.job_spec import JobSpec, load_job, parse_job
from netsum_controller.config.topology import load_topology, parse_topology
from netsum_controller.errors import InputError

from tests.controller.conftest import TOPOLOGY

JOB = "name: resnet\nmembers: [h1, h2]\nwindow: 65\n"


def refusal(parse: Callable[[str, str], object], text: str) -> str:
    """The first line of the error about a file with that text."""
    with pytest.raises(InputError) as caught:
        parse(text, "file.yaml")
    lines = str(caught.value).split("\n")
    assert all(line.startswith("file.yaml:") for line in lines)
    return lines[0]


def test_topology_round_trip() -> None:
    topology = parse_topology(TOPOLOGY)
    assert parse_topology(topology.to_yaml()) == topology
    filled = topology.filled({"s1": {"p4runtime": "unix:/x"}}, {"h1": {"frames": "127.0.0.1:9101"}})
    assert filled.switches["s1"].p4runtime == "unix:/x"
    assert filled.hosts["h1"].frames == "127.0.0.1:9101"
    assert topology.switches["s1"].p4runtime is None
    quotas = parse_topology(TOPOLOGY + "tenants: {vision: {slots: 0, members: 8}, speech: {}}\n")
    assert parse_topology(quotas.to_yaml()) == quotas
    assert quotas.filled({"s1": {"p4runtime": "unix:/x"}}).tenants == quotas.tenants


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("port: 2", "port: 1", "6: hosts.h2.port: port 1 of s1 is already that of hosts.h1"),
        ("port: 2", "port: two", "6: hosts.h2.port: must be a whole number (it is 'two')"),
        ("port: 2", "port: 510", "6: hosts.h2.port: "),
        ("switch: s1, port: 2", "switch: s9, port: 2", "6: hosts.h2.switch: there is no switch 's9'"),
        ("00:00:02", "00:00:zz", "6: hosts.h2.mac: not a MAC address"),
        ('"02:6e:73:00:00:02"', "12", "6: hosts.h2.mac: a MAC address must be a string"),
        ("02:6e:73:00:00:02", "03:6e:73:00:00:02", "6: hosts.h2.mac: a group"),
        ("00:00:02", "00:00:fe", "6: hosts.h2.mac: 02:6e:73:00:00:fe is already that of switches.s1"),
        ("10.0.0.3", "10.0.0", "7: hosts.h3.ip: not an IPv4 address"),
        ("10.0.0.3", "fe80::3", "7: hosts.h3.ip: not an IPv4 address like 10.0.0.1; netsum is IPv4 only"),
        ("10.0.0.3", "10.0.0.1", "7: hosts.h3.ip: 10.0.0.1 is already that of hosts.h1"),
        ("port: 2", "port: 2, frames: '[::1]:9101'", "6: hosts.h2.frames: an address of IPv6, and netsum is IPv4 only"),
        ("device_id: 1", "device_id: 1, cpu_port: 7", "3: switches.s1.cpu_port: must be 510"),
        ("device_id: 1", "device_id: 1, p4runtime: nowhere", "3: switches.s1.p4runtime: not an address"),
        ("device_id: 1", "device_id: 1, tls: {ca: a, cert: b}", "3: switches.s1.tls: cert and key go together"),
        ("device_id: 1, ", "", "3: switches.s1.device_id: is missing"),
        ("mtu: 9000}\n  h2", "mtuu: 9000}\n  h2", "5: hosts.h1.mtuu: there is no such setting"),
        ("  h2:", "  h1:", "6: hosts.h1: is given twice"),
        ("{device_id", "device_id", "3: not valid YAML"),
        ("hosts:", "hosts: 3\nguests:", "4: hosts: must be a mapping"),
        ("hosts:", "tenants: {a: {slots: 9000}}\nhosts:", "4: tenants.a.slots: must be 8192 or less (it is 9000)"),
        ("hosts:", "tenants: {a: {members: -1}}\nhosts:", "4: tenants.a.members: must be 0 or more (it is -1)"),
        ("hosts:", "tenants: {a: {jobs: 3}}\nhosts:", "4: tenants.a.jobs: there is no such setting"),
        ("hosts:", "tenants: {a/b: {}}\nhosts:", "4: tenants.a/b: a name is a letter"),
        ("hosts:", "tenants: {}\nhosts:", "4: tenants: "),
    ],
)
def test_bad_topology(old: str, new: str, error: str) -> None:
    assert old in TOPOLOGY
    assert refusal(parse_topology, TOPOLOGY.replace(old, new, 1)).startswith(f"file.yaml:{error}")


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("window: 65", "window: 0", "3: window: "),
        ("window: 65", "window: 5000", "3: window: "),
        ("window: 65", "windows: 65", "3: windows: there is no such setting"),
        ("window: 65", "chunks: 17", "3: chunks: "),
        ("window: 65", "token: short", "3: token: "),
        ("window: 65", "token: 'has a space'", "3: token: must be printable"),
        ("[h1, h2]", "[]", "2: members: "),
        ("[h1, h2]", "[h1, 2]", "2: members.1: "),
        ("window: 65", "late: never", "3: late: must be 'wait' or 'degrade' (it is 'never')"),
        ("window: 65", "block_exp: 20", "3: block_exp: is for jobs with `late: degrade`"),
        ("window: 65", "quorum: 1", "3: quorum: is for jobs with `late: degrade`"),
        ("window: 65", "late: degrade\nquorum: 3", "4: quorum: is 3, and the job has 2 members"),
        ("window: 65", "late: degrade\nquorum: 0", "4: quorum: "),
        ("window: 65", "late: degrade\nquorum: 1.5", "4: quorum: "),
        ("window: 65", "late: degrade\nblock_exp: 0.5", "4: block_exp: must be 1 or more (it is 0.5)"),
        ("window: 65", "late: degrade\nblock_exp: .nan", "4: block_exp: "),
        ("window: 65", "late: degrade\nblock_exp: 1e9", "4: block_exp: "),
        ("window: 65", "late: degrade\nblock_exp: yes", "4: block_exp: "),
        ("window: 65", "tenant: a/b", "3: tenant: a name is a letter"),
        ("name: resnet", "name: 9", "1: name: "),
        ("name: resnet", "name: a/b", "1: name: a name is a letter"),
    ],
)
def test_bad_job(old: str, new: str, error: str) -> None:
    assert old in JOB
    assert refusal(parse_job, JOB.replace(old, new)).startswith(f"file.yaml:{error}")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", " the file is empty"),
        ("a: &x [*x]", " nested too deeply"),
        ("{1: 2, [3]: 4}", "1: a key must be a plain word"),
        ("a: 'b", "1: not valid YAML"),
        ("a: 1\n--- \nb: 2", ""),
        ("a: 2001-99-99", "1: a: not valid YAML: '2001-99-99' cannot be read as timestamp"),
        ("b: !!int", "1: b: not valid YAML: '' cannot be read as int"),
        ("a: !!bool maybe", "1: a: not valid YAML: 'maybe' cannot be read as bool"),
        ("\x07", " not valid YAML"),
    ],
)
def test_bad_yaml(text: str, error: str) -> None:
    assert refusal(parse_job, text).startswith(f"file.yaml:{error}")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nope\.yaml: No such file"):
        load_topology(tmp_path / "nope.yaml")
    (tmp_path / "latin").write_bytes(b"name: caf\xe9")
    with pytest.raises(InputError, match="not UTF-8"):
        load_job(tmp_path / "latin")


@pytest.mark.parametrize(("window", "slots"), [(1, 2), (2, 4), (3, 8), (64, 128), (65, 256), (4096, 8192)])
def test_slots_are_twice_the_window_rounded_up(window: int, slots: int) -> None:
    assert JobSpec(name="a", members=("h1",), window=window).slots == slots


@pytest.mark.parametrize(
    ("late", "block_exp_us", "least_workers"),
    [
        ("", 0, 0),
        ("late: wait", 0, 0),
        ("late: degrade", 50_000, 2),
        ("late: degrade\nblock_exp: 2.5", 2500, 2),
        ("late: degrade\nblock_exp: 7\nquorum: 3", 7000, 3),
    ],
)
def test_late(late: str, block_exp_us: int, least_workers: int) -> None:
    spec = parse_job(f"name: a\nmembers: [h1, h2, h3]\n{late}\n")
    assert (spec.block_exp_us, spec.least_workers) == (block_exp_us, least_workers)
