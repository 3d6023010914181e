# SPDX-License-Identifier: MIT
"""A switch as a process in its own network namespace, P4Runtime on a unix socket: either kind, on the same command line."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from netsum_testbed.switches import SwitchProcess

from tests.switch.harness.api import CPU_PORT, DEVICE_ID, PORTS, WithWires
from tests.switch.harness.namespace import Namespace


class ProcessUnderTest(WithWires):
    """See `SwitchUnderTest`. Needs root and, for `bmv2`, simple_switch_grpc on PATH.

    Attributes:
        folder: the switch's own, which is removed at the end.
        log: the file of what it prints.
    """

    def __init__(
        self,
        kind: str,
        ports: Sequence[int] = PORTS,
        more: Sequence[str] = (),
        cpu_port: int = CPU_PORT,
        device_id: int = DEVICE_ID,
    ) -> None:
        """``more``: general options, in which `{folder}` stands for that folder."""
        self.kind = kind
        self.ports = tuple(ports)
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"netsum-{kind}-")))
            self.namespace = Namespace(ports)
            stack.callback(self.namespace.close)
            inside = ("ip", "netns", "exec", self.namespace.name)
            options = [word.format(folder=self.folder) for word in more]
            interfaces = [f"{port}@s{port}" for port in ports]
            self._process = SwitchProcess(
                kind, interfaces, self.folder, inside, more=options, device_id=device_id, cpu_port=cpu_port
            )
            stack.callback(self._process.stop)
            self._process.wait_ready()
            self._wires = {port: stack.enter_context(self.namespace.open_interface(f"h{port}")) for port in ports}
            self._stack = stack.pop_all()
        self.grpc_address = self._process.address
        self.log = self._process.log

    def send(self, port: int, frame: bytes) -> None:
        self._wires[port].send(frame)

    @property
    def is_alive(self) -> bool:
        return self._process.exit_code is None

    def restart(self) -> None:
        self._process.stop()
        self._process.start()

    def close(self) -> None:
        self._stack.close()


class Bmv2UnderTest(ProcessUnderTest):
    """simple_switch_grpc."""

    def __init__(self, ports: Sequence[int] = PORTS) -> None:
        super().__init__("bmv2", ports)
