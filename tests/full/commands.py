"""Commands whose last line is JSON, run in this process."""

from __future__ import annotations

import json
from typing import Any

import click
from click.testing import CliRunner


def invoke(command: click.Command, words: str) -> tuple[str, Any]:
    """What a command that must succeed prints, and its last line parsed."""
    ran = CliRunner().invoke(command, words.split())
    assert ran.exit_code == 0, (ran.output, ran.exception)
    return ran.output, json.loads(ran.output.splitlines()[-1])
