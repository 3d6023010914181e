# SPDX-License-Identifier: MIT
"""The switch processes: which kinds are installed, how they start, and when they are ready."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

import grpc
from netsum.wire.schema import CPU_PORT
from netsum_controller.config.topology import Tls
from netsum_controller.p4runtime.channel import open_channel

from netsum_testbed.errors import TestbedError
from netsum_testbed.free_ports import free_port
from netsum_testbed.netns import no_interfaces
from netsum_testbed.processes import STARTS, Child

BMV2: Final = "simple_switch_grpc"
THRIFT_PORT: Final = 9090
_NEEDED: Final = ("--no-p4", "--device-id", "--grpc-server-addr", "--cpu-port")


class SwitchStartError(TestbedError):
    """A switch is not installed or did not get ready; the message quotes its log."""


def usable_switches() -> list[str]:
    """Kinds of switch that work here: ``bmv2`` if simple_switch_grpc is on PATH, starts, and we can make its interfaces; and
    ``embedded``. That it is there and does not start, or that root lacks a capability, is said on standard error."""
    reason = no_interfaces()
    if reason and os.geteuid() == 0:
        print(f"*** {reason}: running rootless (`netsum doctor` says more) ***", file=sys.stderr, flush=True)
    if reason or shutil.which(BMV2) is None:
        return ["embedded"]
    if trouble := bmv2_trouble():
        words = f"*** {trouble}; the embedded switch takes its place (`netsum doctor` says more) ***"
        print(words, file=sys.stderr, flush=True)
        return ["embedded"]
    return ["bmv2", "embedded"]


def choose_switch(wish: str) -> str:
    """Resolve ``auto`` to the first of :func:`usable_switches`."""
    if wish == "auto":
        return usable_switches()[0]
    if wish == "bmv2" and shutil.which(BMV2) is None:
        raise SwitchStartError(f"{BMV2} is not on PATH; install p4lang-bmv2 or use --switch embedded")
    if wish == "bmv2" and (reason := no_interfaces()):
        raise SwitchStartError(f"{reason}: {BMV2} needs network interfaces; use --switch embedded")
    return wish


def bmv2_trouble() -> str | None:
    """The reason why the simple_switch_grpc on PATH cannot be used here, or None if it starts."""
    lacking = [name for name in _NEEDED if name not in bmv2_help()]
    if 0 < len(lacking) < len(_NEEDED):  # one that lacks all cannot show its help: its own words, below, say why
        return f"{shutil.which(BMV2)} does not know {', '.join(lacking)}, which netsum needs"
    with tempfile.TemporaryDirectory(prefix="netsum-") as folder, ExitStack() as stack:
        try:
            process = SwitchProcess("bmv2", [], Path(folder), thrift_port=free_port())
            stack.callback(process.stop)
            process.wait_ready()
        except TestbedError as error:
            return " ".join(str(error).split())
    return None


def switch_version(kind: str) -> str:
    if kind.startswith("embedded"):
        return f"netsum-switch, on Python {sys.version.split()[0]}"
    done = subprocess.run([BMV2, "--version"], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[-1]


def bmv2_help() -> str:
    """The output of simple_switch_grpc's help; "" if it is not on PATH, or says nothing."""
    path = shutil.which(BMV2)
    return "" if path is None else _help_of(path)


@cache
def _help_of(path: str) -> str:
    done = subprocess.run([path, "--help"], capture_output=True, text=True, check=False, errors="replace")
    return done.stdout + done.stderr


def has_thrift() -> bool:
    """True if simple_switch_grpc was built with Thrift; without, it refuses the option for its port."""
    return "--thrift-port" in bmv2_help()


def _tls_words(tls: Tls | None) -> list[str]:
    if tls is None:
        return []
    if tls.server_cert is None or tls.server_key is None:
        raise SwitchStartError("the topology's `tls` has no `server_cert` and `server_key` to start the switch with")
    words = ["--grpc-server-ssl", "--grpc-server-cacert", tls.ca, "--grpc-server-cert", tls.server_cert]
    return [*words, "--grpc-server-key", tls.server_key, "--grpc-server-with-client-auth"]


def switch_command(
    kind: str,
    interfaces: Sequence[str],
    address: str,
    device_id: int,
    more: Sequence[str] = (),
    tls: Tls | None = None,
    cpu_port: int = CPU_PORT,
) -> list[str]:
    """The command line of a switch that serves P4Runtime at ``address``. ``interfaces``: arguments of its ``-i``, such as
    ``PORT@INTERFACE``."""
    program = [BMV2] if kind == "bmv2" else [sys.executable, "-m", "netsum_switch.cli"]
    words = [word for interface in interfaces for word in ("-i", interface)]
    target = ["--grpc-server-addr", address, "--cpu-port", str(cpu_port), *_tls_words(tls)]
    return [*program, "--no-p4", "--device-id", str(device_id), *more, *words, "--", *target]


class SwitchProcess(Child):
    """A running switch with P4Runtime on a unix socket in ``directory``; ``prefix`` precedes its command line."""

    def __init__(
        self,
        kind: str,
        interfaces: Sequence[str],
        directory: Path,
        prefix: Sequence[str] = (),
        tls: Tls | None = None,
        more: Sequence[str] = (),
        name: str = "s1",
        device_id: int = 1,
        thrift_port: int = THRIFT_PORT,
        cpu_port: int = CPU_PORT,
    ) -> None:
        """``interfaces``: arguments of the switch's ``-i``, such as ``PORT@INTERFACE``. ``tls``: the topology's, which must have
        the server's certificate; clients then need one too. ``more``: options of this switch only. Switches of one
        directory need different names, those of one namespace also different Thrift ports."""
        self.kind = kind
        self._tls = tls
        self.address = f"unix:{directory}/{name}.sock"
        self.log = directory / f"switch.{name}.log"
        options = [*more, "--thrift-port", str(thrift_port)] if kind != "bmv2" or has_thrift() else more
        command = switch_command(kind, interfaces, self.address, device_id, options, tls, cpu_port)
        super().__init__([*prefix, *command], output=self.log)

    def wait_ready(self) -> None:
        """Wait until it answers on P4Runtime, on a busy machine after seconds; if it does not, raise :class:`SwitchStartError`
        with its output."""
        deadline = time.monotonic() + STARTS
        with open_channel(self.address, self._tls) as channel:
            # A call, not channel_ready_future, which tries to connect once and waits forever if that connection breaks.
            capabilities = channel.unary_unary("/p4.v1.P4Runtime/Capabilities")
            for attempt in count():
                try:
                    capabilities(b"", timeout=min(0.5 * 2**attempt, 8.0), wait_for_ready=True)
                    return
                except grpc.RpcError as error:
                    if error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
                        return  # any answer will do
                if self.exit_code is not None or time.monotonic() > deadline:
                    said = self.log.read_text(errors="replace").strip()
                    raise SwitchStartError(f"the {self.kind} switch did not start: {said or 'it says nothing'}")

    def start(self) -> None:
        """Start it again after it ended, on the same wires and address, without program or jobs. Returns when it answers."""
        self._start()
        self.wait_ready()
