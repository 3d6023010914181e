# SPDX-License-Identifier: MIT
"""``netsum doctor`` on machines that lack something, and a simple_switch_grpc that is there and does not start."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from netsum_controller.config.topologies import star
from netsum_testbed import doctor, netns
from netsum_testbed.commands import without_mininet
from netsum_testbed.doctor import TOOLS, Finding, examine_machine, examine_software
from netsum_testbed.fabrics import RootlessFabric, fabric_of
from netsum_testbed.switches import BMV2, SwitchStartError, bmv2_trouble, choose_switch

from tests.testbed.conftest import ROOT

FLAGS = "--no-p4 --device-id --grpc-server-addr --cpu-port"


class Machine:
    """A PATH with commands of ours alone; ``sbin`` is a folder beside it."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.sbin = folder / "bin", folder / "sbin"
        self.bin.mkdir()
        self.sbin.mkdir()
        for tool in TOOLS:
            self.add(tool)
        self.add("setpriv", 'shift 3; exec "$@"')  # --pdeathsig TERM --

    def add(self, name: str, script: str = "exit 0", *, hidden: bool = False) -> Path:
        path = (self.sbin if hidden else self.bin) / name
        path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        path.chmod(0o755)
        return path

    def remove(self, *names: str) -> None:
        for name in names:
            (self.bin / name).unlink()

    def findings(self) -> dict[str, Finding]:
        return {each.name: each for each in (*examine_machine(), *examine_software())}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose root we are, with all tools. (What it says of Mininet is this machine's own.)"""
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(made.bin))
    monkeypatch.setattr(doctor, "SBIN", (str(made.sbin),))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "missing_capabilities", list)
    monkeypatch.setattr(netns, "missing_capabilities", list)
    return made


def test_a_path_without_sbin(here: Machine) -> None:
    """As sudo and su leave it on Debian: what is there is not asked for, and the kernel is not blamed."""
    for tool in ("tc", "sysctl", "nft"):
        here.remove(tool)
        here.add(tool, hidden=True)
    found = here.findings()
    assert found["PATH"].state == "missing"
    assert str(here.sbin) in found["PATH"].found
    assert found["PATH"].remedy.startswith(f"export PATH=$PATH:{here.sbin}")
    assert [found[name].state for name in ("tools", "nftables", "rates")] == ["ok"] * 3


def test_tools_that_are_not_installed(here: Machine) -> None:
    here.remove("nft", "tc", "ip")
    found = here.findings()["tools"]
    assert (found.state, found.found) == ("missing", "not installed: ip, tc, nft")
    assert found.remedy == "apt install iproute2 nftables"


def test_a_container_without_capabilities(here: Machine) -> None:
    here.add("unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1")
    found = here.findings()
    assert found["namespaces"].state == "missing"
    assert "Operation not permitted" in found["namespaces"].found
    assert "nftables" not in found, "it cannot be looked at"


@pytest.mark.parametrize("name", ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN"])
def test_a_root_without_a_capability(here: Machine, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As in a container: rootless by itself, and the capability is named; no module is missing."""
    monkeypatch.setattr(doctor, "missing_capabilities", lambda: [name])
    monkeypatch.setattr(netns, "missing_capabilities", lambda: [name])
    found = here.findings()
    assert (found["capabilities"].state, found["capabilities"].found) == (
        "missing",
        f"root lacks {name} here: netsum runs rootless",
    )
    assert found["capabilities"].remedy == f"docker run --cap-add {name.removeprefix('CAP_')}, or --privileged"
    assert not {"namespaces", "veth", "nftables", "rates"} & found.keys(), "they would be blamed"
    assert without_mininet() == f"root lacks {name} here"
    assert isinstance(fabric_of(star(2), "embedded"), RootlessFabric)
    here.add(BMV2, "exit 1")
    assert choose_switch("auto") == "embedded"
    with pytest.raises(SwitchStartError, match=f"root lacks {name} here: {BMV2} needs network interfaces"):
        choose_switch("bmv2")


@pytest.mark.root
@pytest.mark.parametrize("name", ["net_admin", "net_raw", "sys_admin"])
def test_capabilities_are_what_the_kernel_says(name: str) -> None:
    code = "from netsum_testbed.netns import missing_capabilities; print(*missing_capabilities())"
    words = ["setpriv", f"--bounding-set=-{name}", f"--inh-caps=-{name}", "--", sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"CAP_{name.upper()}"]


def test_mininet_that_another_python_has(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mininet.net", None)
    found = here.findings()["Mininet"]
    assert found.state == "missing"
    assert "--system-site-packages" in found.remedy
    here.remove("mnexec")
    assert here.findings()["Mininet"].remedy == "apt install mininet"


def test_without_root_nothing_of_that_is_needed(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setitem(sys.modules, "mininet.net", None)
    here.remove(*TOOLS)
    found = here.findings()
    states = {name: found[name].state for name in ("root", "tools", "Mininet", "kernel", "BMv2")}
    assert set(states.values()) == {"optional"}, states
    here.add("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    assert "asks for a password" in here.findings()["root"].found
    here.add("sudo")
    found = here.findings()
    assert (found["root"].state, found["tools"].state) == ("ok", "missing"), "`make` uses it"


def test_receive_buffers_that_hold_less_than_a_window(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "enlarge_buffers", lambda _sock: None)
    monkeypatch.setattr(doctor, "packets_held", lambda _number, _size: 37)
    found = here.findings()["buffers"]
    assert (found.state, found.found) == ("optional", "receive buffers hold 37 of a window's 256 blocks")
    assert "net.core.rmem_max=8388608" in found.remedy
    monkeypatch.setattr(doctor, "packets_held", lambda _number, _size: 256)
    assert here.findings()["buffers"].state == "ok"


def test_ports_that_are_taken(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", {port: "another one"})
        found = here.findings()["ports"]
    assert (found.state, found.found, found.remedy) == ("optional", f"taken: {port}", "another one")


def test_packages_that_are_missing(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DEMO", {"numpy": "numpy", "no_such.module": "no-such", "nor_this": "nor-this"})
    found = here.findings()["packages"]
    assert (found.state, found.found) == ("missing", "not installed: no-such, nor-this")


def test_a_bmv2_that_cannot_start(here: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """`auto` falls back to the embedded switch, and says so."""
    library = "error while loading shared libraries: libbmpi.so.0: cannot open shared object file"
    here.add(BMV2, f"echo '{library}' >&2; exit 1")
    found = here.findings()["BMv2"]
    assert found.state == "missing"
    assert library in found.found
    capsys.readouterr()
    assert choose_switch("auto") == "embedded"
    out, err = capsys.readouterr()
    assert not out
    assert library in err
    assert "the embedded switch takes its place" in err


@pytest.mark.parametrize("thrift", [True, False])
def test_a_bmv2_without_thrift_is_not_given_a_port_for_it(here: Machine, tmp_path: Path, thrift: bool) -> None:
    flags, words = f"{FLAGS} --thrift-port" if thrift else FLAGS, tmp_path / "words"
    here.add(BMV2, f'case "$*" in *--help*) echo "{flags}";; *) echo "$*" > {words};; esac; exit 1')
    assert bmv2_trouble() is not None
    assert words.read_text().startswith("--no-p4 --device-id 1 ")
    assert ("--thrift-port" in words.read_text()) is thrift


def test_a_bmv2_that_is_too_old(here: Machine) -> None:
    here.add(BMV2, "echo --device-id --thrift-port")
    found = here.findings()["BMv2"]
    assert found.state == "missing"
    assert found.found == f"{here.bin / BMV2} does not know --no-p4, --grpc-server-addr, --cpu-port, which netsum needs"


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_the_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Runs on this machine as it is."""
    with pytest.raises(SystemExit) as ended:
        doctor.doctor.main(words, standalone_mode=False)
    said = capsys.readouterr().out
    if words:
        findings = json.loads(said)["findings"]
        assert all(bool(each["remedy"]) is not each["ok"] for each in findings), findings
        states, names = [each["state"] for each in findings], {each["name"] for each in findings}
        assert json.loads(said)["ok"] is not bool(ended.value.code)
        page = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
        assert names <= set(re.findall(r"`([\w ]+)`", page.split("## When something is missing")[1]))
    else:
        *lines, last = said.splitlines()
        states = [line.split()[0] for line in lines]
        assert last.startswith("demo and test cannot both run here: " if ended.value.code else "demo and test can run")
    assert set(states) <= {"ok", "missing", "optional"}
    assert ended.value.code == ("missing" in states)
