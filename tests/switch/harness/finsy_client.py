# SPDX-License-Identifier: MIT
"""finsy, in the Python that has it: a process that runs statements, each as a coroutine, on one connected switch."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

from tests.switch.harness.api import DEVICE_ID
from tests.switch.harness.controller import PROGRAMS

PYTHON = Path(__file__).parents[3] / ".venv-finsy" / "bin" / "python"

_DRIVER = """
import asyncio, json, sys
from pathlib import Path
import finsy as fy

async def main():
    _, address, device, p4info, program = sys.argv
    options = fy.SwitchOptions(p4info=Path(p4info), p4blob=Path(program), p4force=True, device_id=int(device))
    async with fy.Switch("sw", address, options) as sw:
        names = {"fy": fy, "sw": sw, "asyncio": asyncio}
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            exec(json.loads(line), names)
            try:
                result = await names["step"]()
            except fy.P4ClientError as error:
                result = {"error": str(error)}
            print(json.dumps(result), flush=True)

asyncio.run(main())
"""


class Finsy:
    """Connected, with the contract program pushed. The statements know the package as `fy` and the switch as `sw`; `state` is
    theirs to keep."""

    def __init__(self, address: str) -> None:
        config = (str(PROGRAMS / "contract.p4info.txtpb"), str(PROGRAMS / "contract.json"))
        self._process = subprocess.Popen(
            [str(PYTHON), "-c", _DRIVER, address, str(DEVICE_ID), *config],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.run("global state; state = {}")

    def run(self, code: str) -> Any:
        """Run statements; returns what they return, or ``{"error": ...}`` if the switch refused something."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        source = "async def step():\n" + textwrap.indent(textwrap.dedent(code).strip(), "    ")
        self._process.stdin.write(json.dumps(source) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "finsy has ended"
        return json.loads(line)

    def close(self) -> None:
        """Disconnect, and end the process."""
        self._process.communicate()
        assert self._process.returncode == 0
