# SPDX-License-Identifier: MIT
"""The link to the switch that a descriptor asks for."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from netsum.descriptor import Ends
from netsum.errors import JoinError, NetsumError
from netsum.frames import FrameFormat
from netsum.transports.base import Transport
from netsum.transports.packet import FramesTransport, PacketTransport
from netsum.transports.sockets import parse_address
from netsum.transports.striped import StripedUdpTransport
from netsum.transports.udp import UdpTransport


def open_link(descriptor: Ends) -> Transport:
    """Open the link of ``descriptor``. Raises JoinError."""
    link, host, switch = descriptor.link, descriptor.host, descriptor.switch
    endpoints: Sequence[str] = getattr(descriptor, "endpoints", ())
    try:
        if link.kind == "udp":
            keyed = getattr(descriptor, "key", "")  # such a member may have any address
            if endpoints:
                return StripedUdpTransport(("", 0), list(map(parse_address, endpoints)), getattr(descriptor, "roots", ()))
            return UdpTransport(("", 0) if keyed else (host.ip, host.udp_port), (switch.ip, switch.port))
        if endpoints:
            raise ValueError(f"the job has {len(endpoints)} switches, each at a UDP endpoint: they are reached by a udp link")
        if link.kind == "frames":
            local, remote = parse_address(link.local or ""), parse_address(link.remote or "")
            return FramesTransport(FrameFormat.of(descriptor), local, remote)
        return PacketTransport(FrameFormat.of(descriptor), link.interface or "")
    except (OSError, ValueError, NetsumError) as error:
        job, rank = getattr(descriptor, "job", ""), getattr(descriptor, "rank", None)
        if job and link.kind == "udp" and isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
            raise JoinError(
                f"rank {rank} of job {job!r} belongs on the host with the address {host.ip}, which this "
                "host does not have: start it there (a job's ranks are on its `members`, in their order)"
            ) from error
        where = {"udp": f"{host.ip}:{host.udp_port}", "frames": link.local, "packet": link.interface}[link.kind]
        raise JoinError(f"cannot open the {link.kind} link at {where}: {error}") from error
