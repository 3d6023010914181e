"""The controller as a process, ``netsum serve``, which can be killed, stopped, and started again."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from netsum_controller.config.topology import Topology

from netsum_testbed.errors import TestbedError
from netsum_testbed.processes import STARTS, Child

_SERVE: Final = "import sys; from netsum_controller.cli import main; sys.exit(main())"


class ServedController(Child):
    """The controller on the state file ``directory/state.db``, always at the same ``url``. It answers as soon as it is made."""

    def __init__(self, topology: Topology, directory: Path) -> None:
        file, state = directory / "topology.yaml", directory / "state.db"
        file.write_text(topology.to_yaml(), "utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = free.getsockname()
        port = self._address[1]
        self.url = f"http://127.0.0.1:{port}"
        words = ["--topology", str(file), "--state", str(state), "-v", "serve", "--port", str(port)]
        super().__init__([sys.executable, "-c", _SERVE, *words], output=directory / "controller.log")
        self._wait_ready()

    def start(self) -> None:
        """Start it (again); returns when it answers. Call it from a thread that lives as long as it is needed."""
        self._start()
        self._wait_ready()

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + STARTS
        while True:
            try:
                socket.create_connection(self._address, timeout=1.0).close()
                return
            except OSError as error:
                if self.exit_code is not None or time.monotonic() > deadline:
                    self.stop()
                    raise TestbedError(f"the controller does not answer ({error}): {self.last_words()}") from None
                time.sleep(0.02)

    def hang(self, *, hang: bool) -> None:
        """Stop it with all its connections open, or let it go on. After :meth:`kill` this does nothing."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGSTOP if hang else signal.SIGCONT)
