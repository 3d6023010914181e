# SPDX-License-Identifier: MIT
"""Frames for the tests, byte by byte from the standards; nothing here comes from the code under test but the header codec.

A :class:`Datagram` is right by default; tests make it wrong field by field.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, Self

from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, UDP_PORT

ETHERNET, IPV4, UDP = 14, 20, 8
TYPE_IPV4, TYPE_ARP = 0x0800, 0x0806
TAGS = 0x8100, 0x88A8
"""Ether types of VLAN tags."""
CE = 3
"""The two low bits of ``tos`` of a packet that a congested link has marked (RFC 3168)."""
RIGHT = -1
"""A length or checksum that is computed."""


def internet_checksum(data: bytes) -> int:
    """RFC 1071, as a sum of 16-bit words with the carries folded in."""
    total: int = sum(word for (word,) in struct.iter_unpack(">H", data + b"\0" * (len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def mac(number: int) -> bytes:
    return number.to_bytes(6, "big")


def chunk_bytes(payload: tuple[int, ...]) -> bytes:
    """The payload on the wire."""
    return b"".join(chunk.to_bytes(CHUNK_BYTES, "big") for chunk in payload)


def chunks_of(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + CHUNK_BYTES], "big") for at in range(0, len(data), CHUNK_BYTES))


@dataclass(frozen=True)
class Datagram:
    """An Ethernet frame with IPv4 and UDP. MACs and addresses are ints; ``body`` is what follows the UDP header."""

    eth_dst: int
    eth_src: int
    ip_src: int
    ip_dst: int
    udp_src: int
    udp_dst: int = UDP_PORT
    body: bytes = b""
    version_ihl: int = 0x45
    tos: int = 0
    identification: int = 0
    fragment: int = 0x4000
    ttl: int = 64
    protocol: int = 17
    total_length: int = RIGHT
    ip_checksum: int = RIGHT
    udp_length: int = RIGHT
    udp_checksum: int = 0
    options: bytes = b""
    trailer: bytes = b""  # beyond the datagram, as Ethernet padding is

    def to_bytes(self) -> bytes:
        udp_length = UDP + len(self.body) if self.udp_length == RIGHT else self.udp_length
        total = IPV4 + len(self.options) + UDP + len(self.body) if self.total_length == RIGHT else self.total_length
        udp = self._udp(udp_length, max(self.udp_checksum, 0))
        if self.udp_checksum == RIGHT:
            udp = self._udp(udp_length, udp_checksum(self.ip_src, self.ip_dst, self._udp(udp_length, 0) + self.body))
        ip = self._ip(total, 0 if self.ip_checksum == RIGHT else self.ip_checksum)
        if self.ip_checksum == RIGHT:
            ip = self._ip(total, internet_checksum(ip + self.options))
        ethernet = mac(self.eth_dst) + mac(self.eth_src) + struct.pack(">H", TYPE_IPV4)
        return ethernet + ip + self.options + udp + self.body + self.trailer

    def _udp(self, length: int, checksum: int) -> bytes:
        return struct.pack(">HHHH", self.udp_src, self.udp_dst, length, checksum)

    def _ip(self, total: int, checksum: int) -> bytes:
        return struct.pack(
            ">BBHHHBBHII", self.version_ihl, self.tos, total, self.identification, self.fragment, self.ttl,
            self.protocol, checksum, self.ip_src, self.ip_dst,
        )  # fmt: skip

    def but(self, **fields: Any) -> Self:
        """The datagram with some fields changed."""
        return replace(self, **fields)

    @classmethod
    def parse(cls, frame: bytes) -> Self:
        """Parse a frame with IPv4 (without options) and UDP, with its lengths and checksums."""
        fields = struct.unpack_from(">BBHHHBBHIIHHHH", frame, ETHERNET)
        version_ihl, tos, total, identification, fragment, ttl, protocol, ip_checksum, src, dst = fields[:10]
        at, end = ETHERNET + IPV4 + UDP, ETHERNET + IPV4 + fields[12]
        return cls(
            int.from_bytes(frame[:6], "big"), int.from_bytes(frame[6:12], "big"), src, dst, fields[10], fields[11],
            frame[at:end], version_ihl, tos, identification, fragment, ttl, protocol, total, ip_checksum, fields[12],
            fields[13], b"", frame[max(at, end) :],
        )  # fmt: skip

    @property
    def congested(self) -> bool:
        return self.tos & CE == CE

    @property
    def header(self) -> Header:
        return parse_header(self.body)

    @property
    def payload(self) -> bytes:
        return self.body[HEADER_BYTES:]


def netsum_body(header: Header, payload: tuple[int, ...] = ()) -> bytes:
    return pack_header(header) + chunk_bytes(payload)


def udp_checksum(ip_src: int, ip_dst: int, datagram: bytes) -> int:
    """The checksum over pseudo header, UDP header (with checksum 0) and body; 0 is sent as 0xffff."""
    (length,) = struct.unpack_from(">H", datagram, 4)
    return internet_checksum(struct.pack(">IIBBH", ip_src, ip_dst, 0, 17, length) + datagram) or 0xFFFF


def arp(operation: int, sender: tuple[int, int], target: tuple[int, int], eth_dst: int) -> bytes:
    """An ARP frame; ``sender`` and ``target`` are (MAC, IPv4 address)."""
    ethernet = mac(eth_dst) + mac(sender[0]) + struct.pack(">H", TYPE_ARP)
    ends = b"".join(mac(each[0]) + each[1].to_bytes(4, "big") for each in (sender, target))
    return ethernet + struct.pack(">HHBBH", 1, TYPE_IPV4, 6, 4, operation) + ends
