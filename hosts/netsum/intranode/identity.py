# SPDX-License-Identifier: MIT
"""The identity of a host: ranks that report the same one can share memory."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
NETWORK_NAMESPACE: Final = Path("/proc/self/ns/net")
USER_NAMESPACE: Final = Path("/proc/self/ns/user")


def host_identity() -> str:
    """Return 32 hex digits that are equal in processes that can share memory, and in no others: those of one user (in one user
    namespace), of one boot of one machine, in one network namespace, where their sockets find each other. Containers with
    networks of their own differ. Return "" where memory cannot be shared: on systems other than Linux, and without /proc."""
    if sys.platform != "linux":
        return ""
    try:
        boot = BOOT_ID.read_text().strip()
        namespaces = [os.stat(path) for path in (NETWORK_NAMESPACE, USER_NAMESPACE)]
    except OSError:
        return ""
    parts = [boot, *(f"{found.st_dev}:{found.st_ino}" for found in namespaces), str(os.geteuid())]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
