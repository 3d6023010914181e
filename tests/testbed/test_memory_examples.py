# SPDX-License-Identifier: MIT
"""`netsum run --memory`: the examples that train at the memory; and files that make no sense."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from netsum_controller.errors import InputError
from netsum_testbed.errors import TestbedError
from netsum_testbed.launch import load_memory, run

from tests.testbed.conftest import ROOT, Netsum, Start


def check_digits(command: Netsum) -> None:
    command.ends()
    assert "0| parameters: the same bits as those of one process" in command.lines
    assert re.search(r"^0\| step 150: accuracy 9[678]\.\d%$", command.output, re.MULTILINE), command.output


@pytest.mark.full
def test_digits_rootless(netsum: Start) -> None:
    memory = str(ROOT / "examples" / "memory_digits.yaml")
    check_digits(netsum("run", "-n", "4", "--rootless", "--memory", memory, str(ROOT / "examples" / "memory_digits.py")))


@pytest.mark.full
def test_digits_in_mininet(netsum: Start, switch: str) -> None:
    memory = str(ROOT / "examples" / "memory_digits.yaml")
    script = str(ROOT / "examples" / "memory_digits.py")
    check_digits(netsum("run", "-n", "4", "--switch", switch, "--memory", memory, script))


@pytest.mark.full
def test_a_table_of_ten_times_the_ram(netsum: Start) -> None:
    memory = str(ROOT / "examples" / "memory_embedding.yaml")
    script = str(ROOT / "examples" / "memory_embedding.py")
    command = netsum("run", "-n", "2", "--rootless", "--memory", memory, script)
    command.ends()
    hits = [float(found) for found in re.findall(r"rows/s, ([\d.]+)% of lookups in RAM", command.output)]
    assert len(hits) == 2
    assert all(30 < found < 70 for found in hits)
    ((ours, alone),) = re.findall(r"loss at the end: ([\d.]+), in one process ([\d.]+)", command.output)
    assert abs(float(ours) - float(alone)) < 0.03


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("devices: 0\nregions: [{name: x, size: 65536}]\n", r":1: .*devices"),
        ("regions: []\n", r":1: .*regions"),
        ("devices: 1\nregions:\n  - name: x\n    size: 65536\n    kind: list\n", r":5: .*kind"),
        ("device: 1\nregions: [{name: x, size: 65536}]\n", r":1: .*device"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "memory.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=word):
        load_memory(path)


def test_hosts_for_the_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "memory.yaml"
    path.write_text("devices: 2\nregions: [{name: x, size: 65536}]\n")
    monkeypatch.setattr("netsum_testbed.launch.end_on_signals", lambda: None)
    words = ["--topology", str(ROOT / "mininet" / "topologies" / "star4.yaml"), "--memory", str(path), "true"]
    with pytest.raises(TestbedError, match="4 ranks and 2 memory devices need a host each, and it has 4 hosts"):
        run.main(words, standalone_mode=False)
