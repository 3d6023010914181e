# SPDX-License-Identifier: MIT
"""p4runtime-shell, in the Python that has it: it pins a protobuf of its own, and keeps its connection in globals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.switch.harness.api import DEVICE_ID
from tests.switch.harness.controller import PROGRAMS

ROOT = Path(__file__).parents[3]
_APART = ROOT / ".venv-shell"
PYTHON = str(_APART / "bin" / "python") if (_APART / ".ready").exists() else sys.executable
"""scripts/environment makes the folder; else the extra `shell` may be beside netsum."""

_DRIVER = """
import json, sys
from p4runtime_sh import shell
from p4runtime_sh.shell import *
from p4runtime_sh.p4runtime import P4RuntimeWriteException
out, sys.stdout = sys.stdout, sys.stderr  # the shell prints what it does
_, address, device, p4info, program = sys.argv
shell.setup(device_id=int(device), grpc_addr=address, election_id=(0, 1), config=shell.FwdPipeConfig(p4info, program))
for line in sys.stdin:
    result = None
    code, value = json.loads(line)
    try:
        exec(code, globals())
        result = eval(value, globals())
    except P4RuntimeWriteException as error:
        result = {"error": str(error)}
    print(json.dumps(result), file=out, flush=True)
shell.teardown()
"""


class P4Shell:
    """A process with the shell's names, connected to a switch to which it has pushed the contract program."""

    def __init__(self, address: str) -> None:
        config = (str(PROGRAMS / "contract.p4info.txtpb"), str(PROGRAMS / "contract.json"))
        self._process = subprocess.Popen(
            [PYTHON, "-c", _DRIVER, address, str(DEVICE_ID), *config],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str, value: str = "None") -> Any:
        """Run statements; returns an expression's value, or ``{"error": ...}`` if the switch refused a write."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([code, value]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the shell has ended"
        return json.loads(line)

    def close(self) -> None:
        """Disconnect, and end the process."""
        self._process.communicate()
        assert self._process.returncode == 0
