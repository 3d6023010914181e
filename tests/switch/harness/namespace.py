# SPDX-License-Identifier: MIT
"""A network namespace of a test's own, with veth pairs whose both ends are inside."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from netsum_testbed.netns import NetworkNamespace

_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23


class Namespace(NetworkNamespace):
    """Created with the pairs `s1`-`h1`, `s2`-`h2`, ... for the given ports."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__([(f"s{port}", f"h{port}") for port in ports], 9500)

    def open_interface(self, interface: str) -> socket.socket:
        """An AF_PACKET socket on an interface inside."""

        def open_socket() -> socket.socket:
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            sock.bind((interface, _ETH_P_ALL))
            return sock

        return self.call(open_socket)
