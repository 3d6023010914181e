"""Link rates: what a host may send a switch, where its link is a veth (tc's token bucket filter, at the host's end).

A packet counts as 4 KiB at least: what a software switch does with one costs as much for a small one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from netsum_testbed.netns import NamespaceError

BURST: Final = "64kb"
QUEUE: Final = "1mb"
"""A window of 64 blocks four times; what is more is lost at the host."""
LEAST: Final = "4096"
"""Bytes that a packet counts as at least."""


def limit_rate(run: Callable[..., str], interface: str, mbps: int) -> None:
    """Let no more out of an interface than so many Mbit/s. ``run`` runs a command where the interface is.

    Raises :class:`NamespaceError` when this machine cannot.
    """
    words = ("rate", f"{mbps}mbit", "burst", BURST, "limit", QUEUE, "mpu", LEAST)
    try:
        run("tc", "qdisc", "add", "dev", interface, "root", "tbf", *words)
    except NamespaceError as error:
        raise NamespaceError(
            f"cannot limit the rate of a link (it takes tc and a kernel with TBF; without, leave rate_mbps out): {error}"
        ) from error
