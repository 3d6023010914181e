# SPDX-License-Identifier: MIT
"""The planner's commands, run in this process, and the file that they read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from netsum_controller.cli import cli
from netsum_planner.topologies.files import to_yaml
from netsum_planner.topologies.model import Topology


def netsum(*words: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)))


def ran(*words: object) -> Any:
    """The JSON of a command that must succeed."""
    done = netsum(*words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def refused(*words: object) -> str:
    """The error of a command that must fail: the runner is given the exception that the command line would show."""
    done = netsum(*words)
    assert done.exit_code in (1, 2), done.output
    return f"{done.output}{done.exception}"


def written(folder: Path, topology: Topology) -> Path:
    path = folder / f"{topology.name}.yaml"
    path.write_text(to_yaml(topology), "utf-8")
    return path
