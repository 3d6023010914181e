# SPDX-License-Identifier: MIT
"""The ends of a fabric's links, and limits of their rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from netsum.core.endpoint_factory import open_transport
from netsum.descriptor import Descriptor, MemberLink
from netsum.frames import PREFIX_BYTES
from netsum.transports.base import Transport
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS

from netsum_testbed.netns import NamespaceError, call_inside

# Where the ends of a fabric's links are, and how any process opens a host's end.


@dataclass(frozen=True)
class LinkEnd:
    """An interface, and the prefix of a command that makes it run in its namespace."""

    prefix: Sequence[str]
    interface: str


@dataclass(frozen=True)
class Opening:
    """The way to open a host's transport from any process on this machine: in the namespace of a file, if given, and on an
    interface, if it replaces the descriptor's link."""

    namespace: str | None = None
    interface: str | None = None

    def open(self, descriptor: Descriptor) -> Transport:
        """The transport for an epoch's descriptor."""
        if self.interface is not None:
            descriptor = replace(descriptor, link=MemberLink("packet", interface=self.interface))
        if self.namespace is None:
            return open_transport(descriptor)
        return call_inside(Path(self.namespace), lambda: open_transport(descriptor))


# Link rates: limits what a host may send a switch over a veth (tc's token bucket filter, at the host's end). A packet
# counts as at least 4 KiB, since a small one costs a software switch as much.
#
# Or makes an end of a veth that of a real link: packets have their own sizes, a queue holds a number of them, and if it grows
# they are marked. Not every kernel has a queue that marks (RED, fq_codel), so nftables does it by a virtual one:
# packets beyond a burst at a rate below the link's are marked (a phantom queue: Alizadeh et al., "Less is more", NSDI
# 2012).


BURST: Final = "64kb"
QUEUE: Final = "2mb"
"""Two windows of 256 blocks; more is lost at the host."""
LEAST: Final = "4096"
"""The minimum number of bytes that a packet counts as."""


SMALL_BURST: Final = "10kb"
"""The burst of a link after a pause: a packet of the largest MTU."""
VIRTUAL: Final = 0.8
"""Rate of the virtual queue, as a part of the link's: a fifth of the packets of a full link are marked."""
FRAME_BYTES: Final = PREFIX_BYTES + HEADER_BYTES + CHUNK_BYTES * MAX_CHUNKS
"""Of a block of 4096 bytes, with its headers: what a packet counts as in the virtual queue."""


def limit_rate(run: Callable[..., str], interface: str, mbps: int) -> None:
    """Limit what leaves an interface to ``mbps`` Mbit/s. ``run`` runs a command in the interface's namespace.

    Raises :class:`NamespaceError` if this machine cannot.
    """
    words = ("rate", f"{mbps}mbit", "burst", BURST, "limit", QUEUE, "mpu", LEAST)
    try:
        run("tc", "qdisc", "add", "dev", interface, "root", "tbf", *words)
    except NamespaceError as error:
        raise NamespaceError(
            f"cannot limit the rate of a link (it takes tc and a kernel with TBF; without, leave rate_mbps out): {error}"
        ) from error


def make_link(run: Callable[..., str], interface: str, mbps: int, queue: int, ecn: int | None) -> None:
    """Make what leaves an interface leave at this rate, from a queue of ``queue`` packets; those that allow it are marked (CE)
    after a burst of ``ecn``.

    Raises :class:`NamespaceError` if this machine cannot.
    """
    try:
        whole = ("handle", "1:", "tbf", "rate", f"{mbps}mbit", "burst", SMALL_BURST, "limit", QUEUE)
        run("tc", "qdisc", "add", "dev", interface, "root", *whole)
        run("tc", "qdisc", "add", "dev", interface, "parent", "1:1", "handle", "10:", "pfifo", "limit", str(queue))
        if ecn is not None:
            run("nft", _marking(interface, int(mbps * 125_000 * VIRTUAL / FRAME_BYTES), ecn))
    except NamespaceError as error:
        raise NamespaceError(
            "cannot make a link with a queue (it takes tc with TBF and, for ecn, nftables with egress hooks; leave queue and ecn "
            f"out): {error}"
        ) from error


def _marking(interface: str, packets: int, burst: int) -> str:
    # By packets: nftables' limit of bytes lets a second's worth pass at once.
    hook = f'type filter hook egress device "{interface}" priority 0;'
    rule = f"limit rate over {packets}/second burst {burst} packets ip ecn ect0 ip ecn set ce;"
    return f"table netdev ecn_{interface} {{ chain out {{ {hook} {rule} }}; }}"
