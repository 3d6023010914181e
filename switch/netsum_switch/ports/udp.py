"""A port whose frames travel as UDP datagrams: one datagram is one whole Ethernet frame. Needs no privilege."""

from __future__ import annotations

import socket
from collections.abc import Callable

from netsum_switch.ports.base import MAX_FRAME, TURN, PortCounters, PortError, enlarge_buffers

Address = tuple[str, int]


class UdpPort:
    """Bound to `local`; sends to `peer` or, without one, to the source of the last datagram received."""

    def __init__(self, number: int, local: Address, peer: Address | None = None) -> None:
        """Bind.

        Raises:
            PortError: the address cannot be bound.
        """
        self.number = number
        self.counters = PortCounters()
        self._peer = peer
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            sock.bind(local)
        except OSError as error:
            sock.close()
            raise PortError(f"port {number}: cannot bind UDP {local[0]}:{local[1]}: {error.strerror}") from error
        enlarge_buffers(sock)
        self._sock = sock
        # Asking for the sender too costs a third more.
        self._receive: Callable[[int], bytes] = sock.recv if peer is not None else self._receive_and_learn
        self.address: Address = sock.getsockname()
        self.name = f"udp:{self.address[0]}:{self.address[1]}"

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> list[bytes]:
        frames: list[bytes] = []
        receive = self._receive
        size = 0
        for _ in range(TURN):
            try:
                frame = receive(MAX_FRAME)
            except BlockingIOError:
                break
            except OSError:  # an ICMP error for an earlier datagram: the port stays open
                self.counters.rx_errors += 1
                continue
            size += len(frame)
            frames.append(frame)
        self.counters.rx_packets += len(frames)
        self.counters.rx_bytes += size
        return frames

    def send(self, frame: bytes) -> None:
        counters = self.counters
        if self._peer is None:  # nothing has come in yet, so there is no wire
            counters.tx_dropped += 1
            return
        try:
            self._sock.sendto(frame, self._peer)
        except OSError:  # a full buffer, or a frame larger than a datagram
            counters.tx_dropped += 1
            return
        counters.tx_packets += 1
        counters.tx_bytes += len(frame)

    def _receive_and_learn(self, size: int) -> bytes:
        frame, self._peer = self._sock.recvfrom(size)
        return frame

    def close(self) -> None:
        self._sock.close()
