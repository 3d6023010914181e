"""A network namespace with veth pairs, and a way to work inside it from this process."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from netsum_testbed.errors import TestbedError

Result = TypeVar("Result")

_CLONE_NEWNET: Final = 0x40000000
OFFLOADS: Final = ("tso", "gso", "gro", "tx", "rx")
_PATIENCE: Final = 10.0
"""Seconds within which a link is up."""
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count()


class NamespaceError(TestbedError):
    """A command that sets up a namespace failed; the message quotes it."""


def run_command(*command: str) -> str:
    """Run a command and return its output. Raises :class:`NamespaceError` if it fails or is not installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NamespaceError(f"{command[0]} is not installed (Debian: apt install iproute2 ethtool)") from None
    if done.returncode:
        raise NamespaceError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def call_inside(namespace: Path, function: Callable[[], Result]) -> Result:
    """Call a function in a thread in the network namespace of that file (``/run/netns/NAME``, ``/proc/PID/ns/net``). Sockets
    that it opens and threads that it starts stay inside."""
    outcome: dict[str, Any] = {}

    def enter() -> None:
        try:
            descriptor = os.open(namespace, os.O_RDONLY)
            try:
                if _libc.setns(descriptor, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"setns {namespace}")
            finally:
                os.close(descriptor)
            outcome["result"] = function()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=enter, name=f"inside {namespace}", daemon=True)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    result: Result = outcome["result"]
    return result


class NetworkNamespace:
    """A namespace with the veth pairs ``(switch end, host end)``, up, with that MTU. Needs root.

    Offloads are off: an AF_PACKET reader would see frames without a checksum, or several packets in one.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], mtu: int) -> None:
        self.name = f"netsum-{os.getpid()}-{next(_numbers)}"
        run_command("ip", "netns", "add", self.name)
        try:
            # No IPv6: its neighbour discovery would send unwanted frames.
            settings = [f"net.ipv6.conf.{which}.disable_ipv6=1" for which in ("all", "default")]
            self.run("sysctl", "-qw", *settings)
            run_command("ip", "-n", self.name, "link", "set", "lo", "up")
            for pair in pairs:
                self._add_pair(*pair, str(mtu))
            self._await_links()
        except BaseException:
            self.close()
            raise

    def _add_pair(self, one: str, other: str, mtu: str) -> None:
        add = ("ip", "-n", self.name, "link", "add", one, "mtu", mtu, "type", "veth", "peer", "name", other, "mtu", mtu)
        run_command(*add)
        for interface in (one, other):
            self.run("ethtool", "-K", interface, *(word for name in OFFLOADS for word in (name, "off")))
            run_command("ip", "-n", self.name, "link", "set", interface, "up")

    def _await_links(self) -> None:
        """The kernel drops what is sent on an interface until it has noticed that it is up."""
        deadline = time.monotonic() + _PATIENCE
        while down := [
            link["ifname"]
            for link in json.loads(run_command("ip", "-n", self.name, "-j", "link"))
            if link["ifname"] != "lo" and link["operstate"] != "UP"
        ]:
            if time.monotonic() > deadline:
                raise NamespaceError(f"{', '.join(down)} in namespace {self.name}: not up after {_PATIENCE} s")
            time.sleep(0.005)

    def run(self, *command: str) -> str:
        return run_command("ip", "netns", "exec", self.name, *command)

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function in a thread in the namespace."""
        return call_inside(Path("/run/netns") / self.name, function)

    def close(self) -> None:
        """Remove the namespace and, with it, its interfaces."""
        run_command("ip", "netns", "delete", self.name)
