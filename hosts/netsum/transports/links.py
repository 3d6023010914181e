"""The link to the switch that a descriptor asks for."""

from __future__ import annotations

import errno

from netsum.descriptor import Descriptor, Ends
from netsum.errors import JoinError, NetsumError
from netsum.frames import FrameFormat
from netsum.transports.base import Transport
from netsum.transports.frames import FramesTransport
from netsum.transports.packet import PacketTransport
from netsum.transports.sockets import parse_address
from netsum.transports.udp import UdpTransport


def open_link(descriptor: Ends) -> Transport:
    """Open the link of ``descriptor``. Raises JoinError."""
    link, host, switch = descriptor.link, descriptor.host, descriptor.switch
    try:
        if link.kind == "udp":
            return UdpTransport((host.ip, host.udp_port), (switch.ip, switch.port))
        if link.kind == "frames":
            local, remote = parse_address(link.local or ""), parse_address(link.remote or "")
            return FramesTransport(FrameFormat.of(descriptor), local, remote)
        return PacketTransport(FrameFormat.of(descriptor), link.interface or "")
    except (OSError, ValueError, NetsumError) as error:
        of_a_job = (
            isinstance(descriptor, Descriptor) and descriptor.job != ""
        )  # not of packets made by hand, nor of memory
        if of_a_job and link.kind == "udp" and isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
            raise JoinError(
                f"rank {descriptor.rank} of job {descriptor.job!r} belongs on the host with the address {host.ip}, which this "
                "host does not have: start it there (a job's ranks are on its `members`, in their order)"
            ) from error
        where = {"udp": f"{host.ip}:{host.udp_port}", "frames": link.local, "packet": link.interface}[link.kind]
        raise JoinError(f"cannot open the {link.kind} link at {where}: {error}") from error
