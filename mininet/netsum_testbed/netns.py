# SPDX-License-Identifier: MIT
"""A network namespace with veth pairs, and a way to work inside it from this process."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from netsum_testbed.errors import TestbedError

Result = TypeVar("Result")

_CLONE_NEWNET: Final = 0x40000000
OFFLOADS: Final = ("tso", "gso", "gro", "tx", "rx")
LARGE_FRAMES: Final = "tx on sg on tso on tx-udp-segmentation on"
"""Settings of ethtool with which a link takes up to 64 KB of UDP datagrams, or of a TCP stream, as one frame. Its end must know
how to read it, as the embedded switch does."""
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

    Offloads are off: an AF_PACKET reader would see frames without a checksum, or several packets in one. The pairs that are in
    ``large`` carry large frames, which both ends must read. Each of ``bridges`` joins ends of pairs.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        mtu: int,
        large: Collection[tuple[str, str]] = (),
        bridges: Sequence[Sequence[str]] = (),
    ) -> None:
        self.name = f"netsum-{os.getpid()}-{next(_numbers)}"
        run_command("ip", "netns", "add", self.name)
        try:
            # No IPv6: its neighbor discovery would send unwanted frames.
            settings = [f"net.ipv6.conf.{which}.disable_ipv6=1" for which in ("all", "default")]
            self.run("sysctl", "-qw", *settings)
            run_command("ip", "-n", self.name, "link", "set", "lo", "up")
            for pair in pairs:
                self._add_pair(*pair, str(mtu), LARGE_FRAMES.split() if pair in large else ())
            for number, ends in enumerate(bridges, 1):
                run_command("ip", "-n", self.name, "link", "add", f"b{number}", "mtu", str(mtu), "type", "bridge")
                for end in ends:
                    run_command("ip", "-n", self.name, "link", "set", end, "master", f"b{number}")
                run_command("ip", "-n", self.name, "link", "set", f"b{number}", "up")
            self._await_links()
        except BaseException:
            self.close()
            raise

    def _add_pair(self, one: str, other: str, mtu: str, offloads: Sequence[str]) -> None:
        add = ("ip", "-n", self.name, "link", "add", one, "mtu", mtu, "type", "veth", "peer", "name", other, "mtu", mtu)
        run_command(*add)
        for interface in (one, other):
            self.run("ethtool", "-K", interface, *(word for name in OFFLOADS for word in (name, "off")))
            if offloads:
                self.run("ethtool", "-K", interface, *offloads)
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


# What this kernel can do, tried out in a network namespace that goes at once. Needs root.


VETH: Final = "ip link add nsprobe0 type veth peer name nsprobe1"
"""A pair of interfaces: the wires of the fabrics."""

HTB: Final = f"{VETH} && tc qdisc add dev nsprobe0 root handle 5:0 htb default 1"
"""Mininet's limits of link rates."""

EGRESS: Final = f"""\
{VETH} && nft -f - <<'.'
table netdev probe {{ chain out {{ type filter hook egress device "nsprobe0" priority 0;
  udp dport 12000 numgen random mod 100 < 10 counter drop; }}; }}
.
"""
"""Losing packets at random: nftables' netdev egress hook (Linux 5.16, CONFIG_NETFILTER_EGRESS) with ``numgen random``
(CONFIG_NFT_NUMGEN)."""


_CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21}
"""The capabilities that root needs for namespaces, interfaces and raw frames, with the bit of each; a container's root may
lack them."""


def missing_capabilities(status: Path = Path("/proc/self/status")) -> list[str]:
    """Those of the three that this process lacks."""
    (effective,) = (line.split()[1] for line in status.read_text("utf-8").splitlines() if line.startswith("CapEff:"))
    return [name for name, bit in _CAPABILITIES.items() if not int(effective, 16) >> bit & 1]


def no_interfaces() -> str | None:
    """The reason why we cannot make network interfaces, and so run rootless; None if we can."""
    if os.geteuid() != 0:
        return "we are not root"
    missing = missing_capabilities()
    return f"root lacks {' and '.join(missing)} here" if missing else None


def complaint(script: str, path: str | None = None) -> str | None:
    """The error when a shell script is run in a network namespace of its own, or None if nothing does. ``path``: a PATH
    for it, if not ours."""
    environment = os.environ if path is None else {**os.environ, "PATH": path}
    words = ["unshare", "-n", "sh", "-c", script]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    except FileNotFoundError:
        return "unshare is not on PATH"
    if not done.returncode:
        return None
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return said[0] if said else f"exit code {done.returncode}"
