"""Free UDP and TCP ports of the loopback, for sockets that another process opens.

They lie below the kernel's ephemeral ports, so that the kernel gives none away before it is opened.
"""

from __future__ import annotations

import errno
import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from netsum_testbed.errors import TestbedError

LOOPBACK: Final = "127.0.0.1"
_GIVEN: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL: Final = 32768
_SPAN: Final = 12_000
_TRIES: Final = 1000


def hold_address(stack: ExitStack) -> str:
    """``127.0.0.1:PORT``, held until the stack is closed."""
    first = int(_GIVEN.read_text().split()[0]) if _GIVEN.exists() else _USUAL
    first = first if first > _SPAN + 1024 else _USUAL
    for _ in range(_TRIES):
        port = random.randrange(first - _SPAN, first)
        try:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                stack.enter_context(socket.socket(socket.AF_INET, kind)).bind((LOOPBACK, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        return f"{LOOPBACK}:{port}"
    raise TestbedError(f"no port from {first - _SPAN} to {first - 1} is free on {LOOPBACK}")
