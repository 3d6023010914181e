"""What a device is served over, and the link that a network with an IP stack needs: the kernel's UDP."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Protocol

from netsum.transports.multicast import send_from
from netsum.transports.udp import prepare_udp

from netsum_memory.links.batch import Batch
from netsum_memory.message import Address, Send


class Link(Protocol):
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
        """Where others reach the device."""

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
