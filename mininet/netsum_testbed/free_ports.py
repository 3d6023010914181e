# SPDX-License-Identifier: MIT
"""Free UDP and TCP ports of the loopback, for sockets that another process opens.

They lie below the kernel's ephemeral ports, so that the kernel gives none away before it is opened. Until then a name in the
kernel's abstract namespace keeps other processes of ours from choosing the same (Linux only; nothing is left behind).
"""

from __future__ import annotations

import errno
import os
import random
import socket
import sys
from collections import deque
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from netsum_testbed.errors import TestbedError

LOOPBACK: Final = "127.0.0.1"
_GIVEN: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL: Final = 32768
_SPAN: Final = 12_000
_TRIES: Final = 1000
_RECENT: Final = 512
_claims: deque[int] = deque()
"""Descriptors that claim the ports chosen last: any before them have long been opened, or given up."""


def hold_address(stack: ExitStack) -> str:
    """``127.0.0.1:PORT``, held until the stack is closed."""
    return f"{LOOPBACK}:{_hold(stack, 1)}"


def free_port(count: int = 1) -> int:
    """The first of ``count`` ports in a row that are free now."""
    with ExitStack() as stack:
        return _hold(stack, count)


def _hold(stack: ExitStack, count: int) -> int:
    first = int(_GIVEN.read_text().split()[0]) if _GIVEN.exists() else _USUAL
    first = first if first > _SPAN + 1024 else _USUAL
    for _ in range(_TRIES):
        port = random.randrange(first - _SPAN, first - count + 1)
        with ExitStack() as held:
            try:
                for each in range(port, port + count):
                    _claim(each)
                    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                        held.enter_context(socket.socket(socket.AF_INET, kind)).bind((LOOPBACK, each))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            stack.enter_context(held.pop_all())
            return port
    raise TestbedError(f"no port from {first - _SPAN} to {first - 1} is free on {LOOPBACK}")


def _claim(port: int) -> None:
    """OSError (EADDRINUSE) if another process has it."""
    if sys.platform != "linux":
        return
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as claim:
        claim.bind(f"\0netsum.port.{port}")
        _claims.append(claim.detach())
    if len(_claims) > _RECENT:
        os.close(_claims.popleft())
