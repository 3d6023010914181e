# SPDX-License-Identifier: MIT
"""Ctrl-C at any moment of a command: one line, exit code 130."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.test_imports import loaded_by

KILL = "os.kill(os.getpid(), signal.SIGINT)"
MOMENTS = {
    "while it is imported": f"{KILL}\ndef main(): pass",
    "in an extension module that makes another error of it": f"""
try:
    {KILL}
    for _ in range(100): pass
except KeyboardInterrupt:
    raise ImportError("the extension cannot be loaded")
def main(): pass
""",
    "while it runs": f"def main(): {KILL}; return sum(range(100))",
    "while Python ends": f"import atexit\natexit.register(lambda: {KILL})\ndef main(): print('result')",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_is_one_line(moment: str, tmp_path: Path) -> None:
    (tmp_path / "command.py").write_text(f"import os, signal\n{MOMENTS[moment]}\n", "utf-8")
    code = "import sys; from netsum_cli import run; sys.exit(run('prog', 'command'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "prog: interrupted\n")
    assert done.stdout == ("result\n" if moment == "while Python ends" else "")


def test_what_ignores_interrupts_goes_on_doing_so(tmp_path: Path) -> None:
    """As `nohup` and a script's `&` start it."""
    (tmp_path / "command.py").write_text(f"import os, signal\n{KILL}\ndef main(): {KILL}; return 3\n", "utf-8")
    ignore = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    code = f"{ignore}; from netsum_cli import run; sys.exit(run('prog', 'command'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")


def test_the_commands_start_with_nothing_that_loads_long() -> None:
    assert loaded_by("import netsum_cli") == {"netsum_cli"}
