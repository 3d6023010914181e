# SPDX-License-Identifier: MIT
"""A port on a network interface, through an AF_PACKET socket. Needs CAP_NET_RAW."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import socket
import struct

from netsum_switch.ports import offloads
from netsum_switch.ports.base import (
    MAX_FRAME,
    TURN,
    PortCounters,
    PortError,
    enlarge_buffers,
    is_full,
    log,
)

# <linux/if_packet.h>; the socket module has none of these.
_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_AUXDATA = 8
_PACKET_VNET_HDR = 15
_PACKET_IGNORE_OUTGOING = 23  # Linux 4.20
_PACKET_MR_PROMISC = 1
_TP_STATUS_VLAN_VALID = 1 << 4
_TP_STATUS_VLAN_TPID_VALID = 1 << 6

# struct tpacket_auxdata: status, len, snaplen (u32), mac, net, vlan_tci, vlan_tpid (u16)
_AUXDATA = struct.Struct("=IIIHHHH")
_AUXDATA_SPACE = socket.CMSG_SPACE(_AUXDATA.size)
_ETH_P_8021Q = 0x8100

_SIOCGIFMTU = 0x8921
_HEADER_BYTES = 14

# <linux/ethtool.h>
_SIOCETHTOOL = 0x8946
_ETHTOOL_GSTRINGS, _ETHTOOL_GSSET_INFO, _ETHTOOL_GFEATURES = 0x1B, 0x37, 0x3A
_ETH_SS_FEATURES, _ETH_GSTRING_LEN = 4, 32


class PacketPort:
    """All frames of one interface, in promiscuous mode, except those that this host sends.

    Attributes:
        largest: bytes of a frame of the interface's MTU.
        joins: True if the interface carries several UDP datagrams as one frame; ``joins_tcp``: a part of a TCP stream.
    """

    def __init__(self, number: int, interface: str) -> None:
        """Raises PortError if there is no such interface, or the process may not open raw sockets."""
        self.number = number
        self.name = interface
        self.counters = PortCounters()
        try:
            index = socket.if_nametoindex(interface)
            # Protocol 0 until bound, so that no frame of another interface gets in first.
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        except PermissionError as error:
            raise PortError(f"port {number}: interface {interface} needs root (CAP_NET_RAW); udp: ports do not") from error
        except OSError as error:
            raise PortError(f"port {number}: no interface {interface}: {error.strerror or error}") from error
        try:
            enlarge_buffers(sock)
            sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
            sock.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
            sock.bind((interface, _ETH_P_ALL))
            membership = struct.pack("=iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
            sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
            request = fcntl.ioctl(sock, _SIOCGIFMTU, struct.pack("16si12x", interface.encode(), 0))
            self.largest = int(struct.unpack_from("i", request, 16)[0]) + _HEADER_BYTES
            features = active_features(sock, interface)
            self.joins, self.joins_tcp = "tx-udp-segmentation" in features, "tx-tcp-segmentation" in features
        except OSError as error:
            sock.close()
            raise PortError(f"port {number}: cannot attach to {interface}: {error.strerror}") from error
        self._sock = sock
        self.down = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> list[bytes]:
        frames: list[bytes] = []
        receive = self._sock.recvmsg
        for _ in range(TURN):
            try:
                data, ancillary, flags, _ = receive(offloads.HEADER.size + MAX_FRAME, _AUXDATA_SPACE)
            except BlockingIOError:
                break
            except OSError as error:
                self.lost(error)
                break
            if flags & socket.MSG_TRUNC:
                self.counters.rx_errors += 1
                continue
            header, frame = data[: offloads.HEADER.size], data[offloads.HEADER.size :]
            if ancillary:
                untagged = len(frame)
                frame = _with_vlan_tag(frame, ancillary[0][2])
                header = offloads.moved(header, len(frame) - untagged)
            try:
                frames += offloads.frames_of(header, frame)
            except offloads.OffloadError:
                self.counters.rx_errors += 1
        return self.counters.received(frames)

    def send(self, frame: bytes) -> None:
        counters = self.counters
        try:
            self._sock.sendmsg((offloads.NOTHING, frame))
        except OSError as error:
            counters.tx_dropped += 1
            if error.errno in (errno.ENETDOWN, errno.ENXIO, errno.ENODEV):
                self.lost(error)
            return
        self.down = False
        counters.sent(frame)

    def is_full(self) -> bool:
        return is_full(self._sock)

    def close(self) -> None:
        self._sock.close()

    def lost(self, error: OSError) -> None:
        """Log that the interface is down or gone. The other ports go on; one that is only down resumes when it is up."""
        if not self.down:
            log.warning("port %d: interface %s: %s", self.number, self.name, error.strerror)
        self.down = True


def _with_vlan_tag(frame: bytes, auxdata: bytes) -> bytes:
    """The frame as it was on the wire: the kernel strips an outer 802.1Q tag and reports it separately."""
    status, _, _, _, _, tci, tpid = _AUXDATA.unpack_from(auxdata)
    if not status & _TP_STATUS_VLAN_VALID:
        return frame
    if not status & _TP_STATUS_VLAN_TPID_VALID:
        tpid = _ETH_P_8021Q
    return frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]


def active_features(sock: socket.socket, interface: str) -> set[str]:
    """The features of an interface that are on, by the kernel's names (`ethtool -k`); none where they cannot be read."""

    def call(request: bytes, room: int) -> bytes:
        buffer = ctypes.create_string_buffer(request, len(request) + room)
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sQ", interface.encode(), ctypes.addressof(buffer)))
        return buffer.raw[len(request) :]

    try:
        head = struct.pack("=IIQ", _ETHTOOL_GSSET_INFO, 0, 1 << _ETH_SS_FEATURES)
        (count,) = struct.unpack_from("I", call(head, 4))
        text = call(struct.pack("=III", _ETHTOOL_GSTRINGS, _ETH_SS_FEATURES, count), count * _ETH_GSTRING_LEN)
        words = -(-count // 32)
        blocks = struct.unpack(f"{4 * words}I", call(struct.pack("=II", _ETHTOOL_GFEATURES, words), 16 * words))
    except OSError:
        return set()
    active = sum(blocks[4 * word + 2] << 32 * word for word in range(words))
    names = (text[at : at + _ETH_GSTRING_LEN].rstrip(b"\0").decode() for at in range(0, len(text), _ETH_GSTRING_LEN))
    return {name for number, name in enumerate(names) if active >> number & 1}
