# SPDX-License-Identifier: MIT
"""docs/pytorch.md: its files are valid and agree with an example. tests/docs/test_hosts_page.py runs its programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml
from netsum import settings
from netsum_controller.config.job_spec import load_job
from netsum_controller.config.topology import load_topology

from tests.docs.pages import ROOT, write_files

PAGE = ROOT / "docs" / "pytorch.md"


def test_its_files_are_valid(tmp_path: Path) -> None:
    write_files(tmp_path, PAGE)
    (command,) = [line for line in PAGE.read_text("utf-8").splitlines() if line.endswith(" > resnet.yaml")]
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    job = load_job(tmp_path / "resnet.yaml")
    assert set(job.members) == set(load_topology(tmp_path / "rack.yaml").hosts)
    pods = yaml.safe_load((ROOT / "examples" / "kubernetes.yaml").read_text("utf-8"))["spec"]
    (container,) = pods["template"]["spec"]["containers"]
    words = container["command"]
    nodes = int(words[words.index("--nnodes") + 1])
    assert nodes == pods["completions"] == pods["parallelism"] == len(job.members)
    values = {each["name"]: each.get("value", "secret") for each in container["env"]}
    found = settings.Environment.read(values)
    assert found.job == job.name
    assert found.token
    assert found.controller
