# SPDX-License-Identifier: MIT
"""UDP sockets that receive only from certain addresses, and no errors.

A connected socket also receives only from one address, but any ICMP message about it, from any sender, becomes an error of its
next system call: an untrusted sender could end a member with one packet.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from collections.abc import Iterable
from typing import Final

Address = tuple[str, int]

_SO_ATTACH_FILTER: Final = 26
_INSTRUCTION: Final = struct.Struct("=HBBI")
_LOAD_WORD, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_SOURCE_ADDRESS: Final = 0xFFF00000 + 12  # 12 bytes behind the beginning of the IPv4 header
_SOURCE_PORT: Final = 0  # a UDP socket's filter begins at the UDP header
_WHOLE: Final = 0xFFFF


def accept_only(sock: socket.socket, addresses: Iterable[Address]) -> None:
    """Have the kernel drop packets from elsewhere before they take up room in the socket's buffer. Call it before the socket is
    bound, and again when the (numeric) addresses change. Linux only; does nothing elsewhere. Raises OSError if one of them is
    not an IPv4 address."""
    if sys.platform != "linux":
        return
    program = b""
    for host, port in addresses:
        (ip,) = struct.unpack(">I", socket.inet_aton(host))
        program += _INSTRUCTION.pack(_LOAD_WORD, 0, 0, _SOURCE_ADDRESS)
        program += _INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, 3, ip)
        program += _INSTRUCTION.pack(_LOAD_HALF, 0, 0, _SOURCE_PORT)
        program += _INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, 1, port)
        program += _INSTRUCTION.pack(_RETURN, 0, 0, _WHOLE)
    program += _INSTRUCTION.pack(_RETURN, 0, 0, 0)
    text = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // _INSTRUCTION.size, ctypes.addressof(text))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)
