"""Link rates: limits what a host may send a switch over a veth (tc's token bucket filter, at the host's end).

A packet counts as at least 4 KiB, since a small one costs a software switch as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from netsum_testbed.netns import NamespaceError

BURST: Final = "64kb"
QUEUE: Final = "1mb"
"""Four windows of 64 blocks; more is lost at the host."""
LEAST: Final = "4096"
"""The minimum number of bytes that a packet counts as."""


def limit_rate(run: Callable[..., str], interface: str, mbps: int) -> None:
    """Limit what leaves an interface to so many Mbit/s. ``run`` runs a command in the interface's namespace.

    Raises :class:`NamespaceError` if this machine cannot.
    """
    words = ("rate", f"{mbps}mbit", "burst", BURST, "limit", QUEUE, "mpu", LEAST)
    try:
        run("tc", "qdisc", "add", "dev", interface, "root", "tbf", *words)
    except NamespaceError as error:
        raise NamespaceError(
            f"cannot limit the rate of a link (it takes tc and a kernel with TBF; without, leave rate_mbps out): {error}"
        ) from error
