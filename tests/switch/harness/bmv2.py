"""simple_switch_grpc as a switch under test: a process in its own network namespace, P4Runtime on a unix socket."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from netsum_testbed.switches import SwitchProcess

from tests.switch.harness.api import PORTS, WithWires
from tests.switch.harness.namespace import Namespace


class Bmv2UnderTest(WithWires):
    """See `SwitchUnderTest`. Needs root and simple_switch_grpc on PATH."""

    kind = "bmv2"

    def __init__(self, ports: Sequence[int] = PORTS) -> None:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-bmv2-")))
            namespace = Namespace(ports)
            stack.callback(namespace.close)
            inside = ("ip", "netns", "exec", namespace.name)
            self._process = SwitchProcess(self.kind, [f"{port}@s{port}" for port in ports], directory, inside)
            stack.callback(self._process.stop)
            self._process.wait_ready()
            self._wires = {port: stack.enter_context(namespace.open_interface(f"h{port}")) for port in ports}
            self._stack = stack.pop_all()
        self.grpc_address = self._process.address

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
