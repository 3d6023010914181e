"""A network namespace of a test's own, with veth pairs whose both ends are inside."""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

_CLONE_NEWNET = 0x40000000
_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_OFFLOADS = ("tso", "gso", "gro", "tx", "rx", "sg")

Result = TypeVar("Result")

_libc = ctypes.CDLL(None, use_errno=True)
_names = itertools.count()


def run(*command: str) -> str:
    """Run a command to its end and return its output; what it says is in the error when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Namespace:
    """Created with the pairs `s1`-`h1`, `s2`-`h2`, ... for the given ports; MTU 9500, no offloads, no IPv6 chatter."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.name = f"netsum-test-{os.getpid()}-{next(_names)}"
        run("ip", "netns", "add", self.name)
        try:
            self.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
            run("ip", "-n", self.name, "link", "set", "lo", "up")
            for port in ports:
                self._add_pair(f"s{port}", f"h{port}")
        except BaseException:
            self.close()
            raise

    def run(self, *command: str) -> str:
        """Run a command inside."""
        return run("ip", "netns", "exec", self.name, *command)

    def call_inside(self, call: Callable[[], Result]) -> Result:
        """Result of a call made inside, by a thread that enters the namespace and ends; sockets stay where they were
        opened."""
        outcome: list[Result | BaseException] = []

        def body() -> None:
            try:
                self._enter()
                outcome.append(call())
            except BaseException as error:  # handed to the thread that asked
                outcome.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        result = outcome[0]
        if isinstance(result, BaseException):
            raise result
        return result

    def open_interface(self, interface: str) -> socket.socket:
        """An AF_PACKET socket on an interface inside."""

        def open_socket() -> socket.socket:
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            sock.bind((interface, _ETH_P_ALL))
            return sock

        return self.call_inside(open_socket)

    def close(self) -> None:
        """Remove the namespace and with it the interfaces."""
        run("ip", "netns", "delete", self.name)

    def _add_pair(self, one: str, other: str) -> None:
        mtu = ("mtu", "9500")
        run("ip", "-n", self.name, "link", "add", one, *mtu, "type", "veth", "peer", "name", other, *mtu)
        for interface in (one, other):
            self.run("ethtool", "-K", interface, *(word for offload in _OFFLOADS for word in (offload, "off")))
            run("ip", "-n", self.name, "link", "set", interface, "up")

    def _enter(self) -> None:
        """Move the calling thread, and only it, into the namespace."""
        descriptor = os.open(Path("/run/netns") / self.name, os.O_RDONLY)
        try:
            if _libc.setns(descriptor, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {self.name}")
        finally:
            os.close(descriptor)
