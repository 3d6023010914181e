"""simple_switch_grpc as a switch under test: a process in its own network namespace, P4Runtime on a unix socket."""

from __future__ import annotations

import select
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import grpc
from netsum_testbed.switches import has_thrift

from tests.switch.harness.api import ARRIVES, CPU_PORT, DEVICE_ID, PORTS
from tests.switch.harness.namespace import Namespace

# The kernel ends the switch when the tests are killed and cannot.
_DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM")

_STARTS = 120.0  # seconds
_STOPS = 30.0


class Bmv2UnderTest:
    """See `SwitchUnderTest`. Needs root and simple_switch_grpc on PATH."""

    kind = "bmv2"

    def __init__(self, ports: Sequence[int] = PORTS) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="netsum-bmv2-")
        self._namespace = Namespace(ports)
        self._ports = ports
        self._wires: dict[int, socket.socket] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self.grpc_address = f"unix:{self._directory.name}/grpc.sock"
        try:
            self._start(ports)
            self._wires = {port: self._namespace.open_interface(f"h{port}") for port in ports}
        except BaseException:
            self.close()
            raise

    def send(self, port: int, frame: bytes) -> None:
        self._wires[port].send(frame)

    def recv(self, port: int, timeout: float = ARRIVES) -> bytes | None:
        readable, _, _ = select.select([self._wires[port]], [], [], timeout)
        return self._wires[port].recv(65536) if readable else None

    def drain(self) -> None:
        for port in self._wires:
            while self.recv(port, 0.0) is not None:
                pass

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def restart(self) -> None:
        self._stop()
        self._start(self._ports)

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._stop()
        self._namespace.close()
        self._directory.cleanup()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOPS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _start(self, ports: Sequence[int]) -> None:
        interfaces = [word for port in ports for word in ("-i", f"{port}@s{port}")]
        log = Path(self._directory.name) / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*_DIES_WITH_PARENT, "ip", "netns", "exec", self._namespace.name, "simple_switch_grpc", *interfaces, "--no-p4",
                 "--device-id", str(DEVICE_ID), *(["--thrift-port", "9090"] if has_thrift() else []), "--",
                 "--grpc-server-addr", self.grpc_address, "--cpu-port", str(CPU_PORT)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        with grpc.insecure_channel(self.grpc_address) as channel:
            ready = grpc.channel_ready_future(channel)
            try:
                ready.result(timeout=_STARTS)
            except grpc.FutureTimeoutError as error:
                raise RuntimeError(f"simple_switch_grpc does not answer: {log.read_text()}") from error
            finally:
                ready.cancel()
