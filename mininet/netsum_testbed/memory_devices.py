# SPDX-License-Identifier: MIT
"""Memory devices on a fabric's hosts, and regions opened there."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import netsum.memory
from netsum.memory.array import MemoryArray
from netsum.transports.base import Transport
from netsum.transports.factory import open_link
from netsum_controller.memory.model import Region, RegionSpec

from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import interrupts_deferred
from netsum_testbed.processes import STARTS, Child

if TYPE_CHECKING:
    from netsum_testbed.fabric import Fabric

_POLL: Final = 0.02


class MemoryDevice(Child):
    """A running ``netsum-memory``, which can be killed, and started again on what its folder has kept."""

    def __init__(self, host: str, command: Sequence[str], environment: dict[str, str], directory: Path) -> None:
        self.host = host
        self._ready = directory / f"memory.{host}.json"
        self._ready.unlink(missing_ok=True)
        words = ["--ready-file", str(self._ready)]
        super().__init__([*command, *words], output=directory / f"memory.{host}.log", environment=environment)

    def start(self) -> None:
        """Start it again, without waiting. Call it from a thread that lives as long as it is needed."""
        self._ready.unlink(missing_ok=True)
        self._start()

    def wait_ready(self) -> None:
        """Return when it answers. Raises :class:`TestbedError` with its last words if it does not."""
        deadline = time.monotonic() + STARTS
        while not self._ready.exists():
            if self.exit_code is not None or time.monotonic() > deadline:
                raise TestbedError(f"the memory device on {self.host} did not start: {self.last_words()}")
            time.sleep(_POLL)

    @property
    def metrics(self) -> int:
        """The port of its metrics, if it was told to have any."""
        return int(json.loads(self._ready.read_text())["metrics"])


class FabricMemory:
    """The memory of a fabric: its ``devices`` by host, and the regions' tokens."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self.devices: dict[str, MemoryDevice] = {}
        self.tokens: dict[str, str] = {}

    def start(self, hosts: Sequence[str], *, folders: bool = False, options: Sequence[str] = ()) -> None:
        """Start a device on each of these hosts; with ``folders`` their memory is in files of the fabric's directory. Returns
        when all have reported to the controller. They are stopped with the fabric."""
        fabric = self._fabric
        url = fabric.url_on_hosts()
        environment = {"NETSUM_MEMORY_TOKEN": fabric.controller.device_token, "NETSUM_CONTROLLER": url}
        for host in hosts:
            place = fabric.topology.hosts[host]
            program = [sys.executable, "-m", "netsum_memory.cli", "--host", host, "--address", place.ip, *options]
            folder = ["--folder", str(fabric.directory / f"memory.{host}")] if folders else []
            command = [*fabric.prefix(host), *program, *folder, *fabric.device_link(host)]
            self.devices[host] = MemoryDevice(host, command, environment, fabric.directory)
            fabric.closes(self.devices[host].stop)
        for host in hosts:
            self.devices[host].wait_ready()
        self.wait_reported(hosts)

    def wait_reported(self, hosts: Sequence[str]) -> None:
        """Return when the controller knows that these devices are there."""
        deadline = time.monotonic() + STARTS
        while not all(self._is_alive(host) for host in hosts):
            if time.monotonic() > deadline:
                silent = ", ".join(host for host in hosts if not self._is_alive(host))
                raise TestbedError(f"the controller receives nothing from the memory devices on {silent}")
            time.sleep(_POLL)

    def _is_alive(self, host: str) -> bool:
        device = self._fabric.controller.context.memory.state().devices.get(host)
        return device is not None and device.alive

    def create(self, spec: RegionSpec) -> Region:
        """Create a region and remember its token for :meth:`open`."""
        with interrupts_deferred():
            region = self._fabric.controller.create_region(spec)
        if region.token is not None:
            self.tokens[region.name] = region.token
        return region

    def open(self, name: str, host: str, *, wrap: Callable[[Transport], Transport] | None = None, **options: Any) -> MemoryArray:
        """Open a region as a client on ``host``, in this process; ``wrap`` wraps the transport."""
        fabric = self._fabric

        def transport(descriptor: Any) -> Transport:
            opened = fabric.on_host(host, lambda: open_link(descriptor))
            return opened if wrap is None else wrap(opened)

        return netsum.memory.open(
            name,
            controller=fabric.controller.url,
            token=self.tokens[name],
            host=host,
            transport=transport,
            link=fabric.client_link(host),
            **options,
        )
