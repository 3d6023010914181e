# SPDX-License-Identifier: MIT
"""The link of a device, and the link that a network with an IP stack needs: the kernel's UDP."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from netsum.frames import FrameFormat, group_mac, parse_frame
from netsum.transports.packet import NO_OFFLOAD, packet_socket, segments_of
from netsum.transports.peer_filter import accept_only
from netsum.transports.sockets import LARGE_SLOT_BYTES
from netsum.transports.udp import prepare_udp, send_from

from netsum_memory.links.batch import SLOT_BYTES, Batch
from netsum_memory.message import Address, Send


class DeviceLink(Protocol):
    """Carries packets from and to many peers. Unreliable, like the network."""

    def receive(self, timeout: float) -> Sequence[tuple[Address, memoryview]]:
        """The packets that wait, with their senders; valid until the next call. Waits up to ``timeout`` seconds for one."""

    def send(self, packets: Sequence[Send]) -> None:
        """Send the packets; those that the network does not take are lost."""

    def know(self, macs: Mapping[str, str]) -> None:
        """Learn MAC addresses by IPv4 address, where the kernel does not know them."""

    def close(self) -> None:
        """Release the socket."""

    @property
    def address(self) -> Address:
        """The address at which others reach the device."""

    @property
    def lost(self) -> Mapping[str, int]:
        """Packets that the network did not take, by reason."""


class KernelLink:
    """A UDP socket."""

    def __init__(self, address: Address) -> None:
        """Raises OSError if the address is not ours, or the port is taken."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            prepare_udp(sock)
            sock.bind(address)
            send_from(sock, sock.getsockname()[0])
            self._batch = Batch(sock, named=True)
        except BaseException:
            sock.close()
            raise
        self.address: Address = sock.getsockname()

    def receive(self, timeout: float) -> Sequence[tuple[Address, memoryview]]:
        return self._batch.receive(timeout)

    def send(self, packets: Sequence[Send]) -> None:
        self._batch.send(packets)

    def know(self, macs: Mapping[str, str]) -> None:
        """The kernel finds them itself."""

    def close(self) -> None:
        self._batch.close()

    @property
    def lost(self) -> Mapping[str, int]:
        return self._batch.lost


# A device without an IP stack of its own: it makes and reads whole frames, on an interface or inside UDP datagrams.


_EVERYBODY: Final = "ff:ff:ff:ff:ff:ff"
"""The destination MAC while the real one is unknown: the switch looks at the IPv4 address."""


class FramesLink:
    """The device's own address is (``mac``, ``address``). It learns others' MAC addresses from what they send."""

    def __init__(self, open_socket: Callable[[], socket.socket], mac: str, address: Address, *, raw: bool = False) -> None:
        """``open_socket`` gives the socket that the frames go through, ready to send and receive, and ``raw`` if it is that of an
        interface. Raises OSError."""
        self.address, self._mac = address, mac
        self._ip = socket.inet_aton(address[0])
        self._lead = NO_OFFLOAD if raw else b""
        self._batch = Batch(open_socket(), named=False, slot_bytes=LARGE_SLOT_BYTES if raw else SLOT_BYTES)
        self._macs: dict[str, str] = {}
        self._formats: dict[Address, FrameFormat] = {}

    def receive(self, timeout: float) -> Sequence[tuple[Address, memoryview]]:
        packets = []
        for _, data in self._batch.receive(timeout):
            head, frame = data[: len(self._lead)], data[len(self._lead) :]
            found = parse_frame(frame, self._ip, self.address[1])
            if found is not None:
                mac, sender, payload = found
                if self._macs.get(sender[0]) != mac:
                    self.know({sender[0]: mac})
                packets += [(sender, each) for each in (segments_of(head, payload) if head else [payload])]
        return packets

    def send(self, packets: Sequence[Send]) -> None:
        self._batch.send(packets, [self._lead + self._format(to).prefix(len(data)) for to, data in packets])

    def _format(self, to: Address) -> FrameFormat:
        form = self._formats.get(to)
        if form is None:
            there = (group_mac(to[0]) or self._macs.get(to[0], _EVERYBODY), *to)
            form = self._formats[to] = FrameFormat((self._mac, *self.address), there)
        return form

    def know(self, macs: Mapping[str, str]) -> None:
        for ip, mac in macs.items():
            if self._macs.get(ip) != mac:
                self._macs[ip] = mac
                self._formats = {to: form for to, form in self._formats.items() if to[0] != ip}

    def close(self) -> None:
        self._batch.close()

    @property
    def lost(self) -> Mapping[str, int]:
        return self._batch.lost


def datagram_frames(local: Address, remote: Address) -> Callable[[], socket.socket]:
    """Opens a wire between ``local`` and a switch port's ``remote``, with a frame in each datagram."""

    def open_socket() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            accept_only(sock, [remote])
            sock.bind(local)
            sock.connect(remote)
        except BaseException:
            sock.close()
            raise
        return sock

    return open_socket


def interface_frames(interface: str) -> Callable[[], socket.socket]:
    """Opens an interface for frames (Linux, needs CAP_NET_RAW)."""
    return lambda: packet_socket(interface)
