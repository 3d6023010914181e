# SPDX-License-Identifier: MIT
"""A program that ends in Mininet's prompt, in namespaces of its own, which end with it and all its processes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.threads import until

_PROMPT = "mininet> "
_OWN = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


class MininetPrompt:
    """A context manager: begun when the prompt is there. Needs root."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        """``folder``: the one to run in."""
        self._prompts = 0
        self._log = folder / "mininet.log"
        inside = [*_OWN, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                inside, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
            )

    def __enter__(self) -> Self:
        try:
            self._wait_for_prompt()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            error.add_note(self.output)
        self._end()

    def run(self, command: str) -> str:
        """Run a command of the prompt; returns its output."""
        before = len(self.output)
        self._type(command)
        self._wait_for_prompt()  # a command reads what is typed meanwhile
        return self.output[before:].removesuffix(_PROMPT)

    def exit(self) -> None:
        """Leave the prompt, as a user does; Mininet ends the switches."""
        self._type("exit")
        until(lambda: self._process.poll() is not None, "the end of Mininet")
        assert self._process.returncode == 0

    @property
    def output(self) -> str:
        """What was printed so far."""
        return self._log.read_text()

    def _type(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _wait_for_prompt(self) -> None:
        self._prompts += 1

        def is_there() -> bool:
            assert self._process.poll() is None, self.output
            return self.output.count(_PROMPT) >= self._prompts

        until(is_there, "Mininet's prompt")

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()
