"""docs/launching.md: its files are valid and agree with each other, and the variables that it names are read."""

from __future__ import annotations

from pathlib import Path

import yaml
from netsum import settings
from netsum_controller.config.job_spec import load_job
from netsum_controller.config.topology import load_topology

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "launching.md"
TEXT = PAGE.read_text("utf-8")


def test_its_files_are_valid(tmp_path: Path) -> None:
    files = {}
    for block in blocks(PAGE):
        kind, _, name = block.title.partition("=")
        if kind == "from":
            assert block.text in (ROOT / name).read_text("utf-8")
            continue
        files[name] = tmp_path / name
        files[name].write_text(block.text, "utf-8")
    job = load_job(files["resnet.yaml"])
    assert set(job.members) == set(load_topology(files["rack.yaml"]).hosts)
    pods = yaml.safe_load(files["kubernetes.yaml"].read_text("utf-8"))["spec"]
    (container,) = pods["template"]["spec"]["containers"]
    words = container["command"]
    nodes = int(words[words.index("--nnodes") + 1])
    assert nodes == pods["completions"] == pods["parallelism"] == len(job.members)
    values = {each["name"]: each.get("value", "secret") for each in container["env"]}
    found = settings.Environment.read(values)
    assert found.job == job.name
    assert found.token
    assert found.controller
