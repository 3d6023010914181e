# SPDX-License-Identifier: MIT
"""The end of commands: the last line as JSON, and the exit code."""

from __future__ import annotations

import json
from typing import Any

import click
from click.testing import CliRunner


def invoke(command: click.Command, words: str) -> tuple[str, Any]:
    """The output of a command that must succeed, and its last line parsed."""
    ran = CliRunner().invoke(command, words.split())
    assert ran.exit_code == 0, (ran.output, ran.exception)
    return ran.output, json.loads(ran.output.splitlines()[-1])


def shell_code(returncode: int) -> int:
    """The exit code that a shell shows.

    Once a KeyboardInterrupt has passed through ``exec`` of a text, as dataclasses use it, CPython kills itself by SIGINT at the
    end, whatever exit code the program chose. A shell shows 130 either way.
    """
    return returncode if returncode >= 0 else 128 - returncode
