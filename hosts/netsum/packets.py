# SPDX-License-Identifier: MIT
"""scapy layers of netsum's packets, made from the schema; the only module of netsum that imports scapy (GPL-2.0-only).

>>> from scapy.layers.inet import IP, UDP
>>> from scapy.layers.l2 import Ether
>>> chunk = Ether() / IP(dst="10.0.0.254") / UDP(sport=20001) / Netsum(job_id=3, block_id=7) / Lanes32(values=[5] * 64)
>>> chunk.show2()

fills in what was left out: UDP port 12000, ``lane_cnt``, ``data_cnt`` and the lane width. A UDP datagram from or to port 12000
is dissected as a :class:`Netsum` header followed by its lanes (:class:`Lanes8` ... :class:`Lanes64`) or, in an empty
contribution, by :class:`Room`. The answer to a record query is a :class:`BlockRecord`. Port 12001 is :class:`Memory`.

This is for people, captures and tests: dissecting a packet takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

from scapy.error import Scapy_Exception
from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    FieldListField,
    FlagsField,
    IntField,
    LongField,
    ShortField,
    XBitField,
    XLongField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw, bind_bottom_up, bind_layers
from scapy.sendrecv import sniff as scapy_sniff
from scapy.utils import PcapReader

from netsum.frames import ETHERNET_BYTES
from netsum.wire import memory, schema
from netsum.wire.codec import VALUE_NAMES, Header, parse_header
from netsum.wire.memory import FLAG_NAMES, MEMORY_NAMES, MemoryHeader, parse_memory
from netsum.wire.schema import Lane

_DEFAULTS: dict[str, int | None] = {"job_id": 1, "block_id": 0, **Header._field_defaults}
_COUNTS = ("worker_cnt", "data_cnt", "lane_cnt", *schema.SATURATED)
# Left to post_build, which knows the payload.
_DEFAULTS |= {"lane_cnt": None, "data_cnt": None, **dict.fromkeys(schema.SATURATED)}


def _layer_fields(
    fields: Sequence[schema.Field],
    defaults: dict[str, int | None],
    value_names: Mapping[str, dict[int, str]] = VALUE_NAMES,
) -> list[Any]:
    """A scapy field for each field of the schema: enums by name, numbers wider than 64 bits in hexadecimal."""
    made: list[Any] = []
    for field in fields:
        default = defaults.get(field.name, 0)
        names = value_names.get(field.name)
        if field.name == "flags":
            made.append(FlagsField(field.name, default, field.bits, FLAG_NAMES))
        elif names:
            made.append(BitEnumField(field.name, default, field.bits, names))
        else:
            kind = XBitField if field.bits > 64 else BitField
            made.append(kind(field.name, default, field.bits))
    return made


_SHIFTS = {field.name: low for field, low in schema.positions(schema.HEADER_FIELDS)}
_MOST = {field.name: (1 << field.bits) - 1 for field in schema.HEADER_FIELDS}
_MAX_LANES = schema.CHUNK_BYTES * schema.MAX_CHUNKS


class Netsum(Packet):
    """Trio-ML header and netsum extension, 40 bytes; the Trio-ML header's own counts follow those of the extension."""

    name = "netsum"
    fields_desc: ClassVar = _layer_fields(schema.HEADER_FIELDS, _DEFAULTS)

    def do_build(self) -> bytes:
        """If the payload is lanes, take ``lane`` from it unless it was set."""
        if isinstance(self.payload, Lanes) and "lane" not in self.fields:
            self.fields["lane"] = int(self.payload.lane)
            self.raw_packet_cache = None
        return super().do_build()

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the counts that were left out (``None``)."""
        value, counts = int.from_bytes(pkt, "big"), {name: self.getfieldval(name) for name in _COUNTS}
        if counts["lane_cnt"] is None:
            counts["lane_cnt"] = 0 if isinstance(self.payload, Room) else len(pay) >> int(self.lane)
        if counts["data_cnt"] is None:
            counts["data_cnt"] = min(1, counts["lane_cnt"])
        for name, wide in schema.SATURATED.items():
            if counts[name] is None:
                counts[name] = min(counts[wide], _MOST[name])
        for name, count in counts.items():
            if self.getfieldval(name) is None:
                value |= count << _SHIFTS[name]
        return value.to_bytes(schema.HEADER_BYTES, "big") + pay

    def guess_payload_class(self, payload: bytes) -> type[Packet]:  # noqa: ARG002 - scapy's fingerprint
        """Lanes of the header's width; room in an empty contribution; otherwise raw bytes."""
        if not self.lane_cnt:
            return Room
        return LANES.get(int(self.lane), Raw)

    def header(self) -> Header:
        return parse_header(bytes(self)[: schema.HEADER_BYTES])


class Lanes(Packet):
    """Gradients: big-endian unsigned integers, biased when they are summed."""

    lane: ClassVar[Lane]


def _lanes_of(packet: Packet) -> int:
    """The number of lanes: what the header counts or, without a header, as many as possible."""
    under = packet.underlayer
    return int(under.lane_cnt or 0) if isinstance(under, Netsum) else _MAX_LANES


def _values(kind: type[Any]) -> list[Any]:
    """The one field of a payload: its lanes, each a scapy field of this kind."""
    return [FieldListField("values", [], kind("", 0), count_from=_lanes_of, max_count=_MAX_LANES)]


class Lanes8(Lanes):
    name = "8-bit lanes"
    lane = Lane.L8
    fields_desc: ClassVar = _values(ByteField)


class Lanes16(Lanes):
    name = "16-bit lanes"
    lane = Lane.L16
    fields_desc: ClassVar = _values(ShortField)


class Lanes32(Lanes):
    name = "32-bit lanes"
    lane = Lane.L32
    fields_desc: ClassVar = _values(IntField)


class Lanes64(Lanes):
    name = "64-bit lanes"
    lane = Lane.L64
    fields_desc: ClassVar = _values(LongField)


LANES: dict[int, type[Lanes]] = {int(kind.lane): kind for kind in (Lanes8, Lanes16, Lanes32, Lanes64)}
"""The payload layer of each lane width."""


class Room(Raw):
    """Chunks of zeros after an empty contribution, which make the packet large enough to carry the result back."""

    name = "room"


class Query(Packet):
    """Head of a PacketOut or PacketIn: a query for the block record of one slot."""

    name = "netsum record query"
    fields_desc: ClassVar = _layer_fields(schema.QUERY_FIELDS, {})


class BlockRecord(Packet):
    """A block record, as a query brings it back."""

    name = "netsum block record"
    fields_desc: ClassVar = _layer_fields(schema.RECORD_FIELDS, {})


_MEMORY_DEFAULTS: dict[str, int | None] = {**MemoryHeader._field_defaults, "segments": None, "length": None}


class Memory(Packet):
    """A packet of memory in the network: the header, and the segments as ``path``. ``segments`` and, in front of a payload,
    ``length`` are filled in if they are left out."""

    name = "netsum memory"
    fields_desc: ClassVar = [
        *_layer_fields(memory.MEMORY_FIELDS, _MEMORY_DEFAULTS, MEMORY_NAMES),
        FieldListField("path", [], XLongField("", 0), count_from=lambda packet: packet.segments, max_count=memory.MAX_SEGMENTS),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        head, path = pkt[: memory.MEMORY_HEADER_BYTES], pkt[memory.MEMORY_HEADER_BYTES :]
        value = int.from_bytes(head, "big")
        left_out = {"segments": len(self.path), "length": len(pay)}
        for field, low in schema.positions(memory.MEMORY_FIELDS):
            if field.name in left_out and self.getfieldval(field.name) is None:
                value |= left_out[field.name] << low
        return value.to_bytes(len(head), "big") + path + pay

    def header(self) -> MemoryHeader:
        return parse_memory(bytes(self))


bind_bottom_up(UDP, Netsum, sport=schema.UDP_PORT)
bind_layers(UDP, Netsum, dport=schema.UDP_PORT)  # and what a packet made by hand gets
bind_bottom_up(UDP, Memory, sport=memory.MEMORY_PORT)
bind_layers(UDP, Memory, dport=memory.MEMORY_PORT)
bind_layers(Query, BlockRecord)


class Seen(NamedTuple):
    """One netsum packet off the wire. ``source`` and ``destination`` are ``ip:port``, ``time`` seconds since 1970."""

    time: float
    source: str
    destination: str
    header: Header
    payload: bytes
    packet: Packet


def frame_ports(ports: Sequence[int]) -> None:
    """From now on, dissect datagrams from or to these UDP ports as the Ethernet frames that they carry: the links of a rootless
    fabric are UDP sockets on loopback."""
    for port in ports:
        bind_layers(UDP, Ether, sport=port)
        bind_layers(UDP, Ether, dport=port)


def seen(packet: Packet) -> Seen | None:
    """The netsum packet in ``packet``; ``None`` if there is none."""
    layer = packet.getlayer(Netsum)
    if layer is None or layer.underlayer is None or layer.underlayer.underlayer is None:
        return None
    udp, ip = layer.underlayer, layer.underlayer.underlayer
    raw = layer.original or bytes(layer)
    source, destination = f"{ip.src}:{udp.sport}", f"{ip.dst}:{udp.dport}"
    payload = raw[schema.HEADER_BYTES :][: max(0, (udp.len or len(raw) + 8) - 8 - schema.HEADER_BYTES)]
    return Seen(float(packet.time), source, destination, parse_header(raw), payload, packet)


def dissect(frame: bytes) -> Packet:
    """An Ethernet frame as scapy's packet; :class:`scapy.packet.Raw` if there are too few bytes."""
    packet: Packet = Raw(frame) if len(frame) < ETHERNET_BYTES else Ether(frame)
    return packet


def read_capture(path: Path) -> Iterator[Seen]:
    """The netsum packets of a pcap or pcapng file, in order. Raises :class:`OSError` if the file cannot be read, and
    :class:`ValueError` if it is not a capture."""
    try:
        # Opened here, because scapy leaves a file open that is not a capture. It takes open files, although its types deny it.
        with path.open("rb") as file, PcapReader(cast("str", file)) as capture:
            for packet in capture:
                found = seen(packet)
                if found is not None:
                    yield found
    except (Scapy_Exception, EOFError) as error:
        raise ValueError(f"{path} is not a pcap or pcapng file: {error}") from error


def sniff(
    interface: str,
    see: Callable[[Seen], None],
    *,
    count: int = 0,
    timeout: float | None = None,
    ready: Callable[[], None] | None = None,
) -> None:
    """Call ``see`` for each netsum packet on ``interface``, for ``count`` packets or ``timeout`` seconds. ``ready`` is called
    once packets are being captured. Raises :class:`PermissionError` without root or CAP_NET_RAW, and :class:`OSError` if there
    is no such interface."""
    left = count

    def handle(packet: Packet) -> bool:
        nonlocal left
        found = seen(packet)
        if found is not None:
            see(found)
            left -= 1
        return count > 0 and left == 0

    scapy_sniff(iface=interface, store=False, timeout=timeout, stop_filter=handle, started_callback=ready)


def as_text(packet: Packet) -> str:
    return str(packet.show(dump=True))


__all__ = [
    "IP",
    "LANES",
    "UDP",
    "BlockRecord",
    "Ether",
    "Lanes8",
    "Lanes16",
    "Lanes32",
    "Lanes64",
    "Memory",
    "Netsum",
    "Query",
    "Room",
    "Seen",
    "as_text",
    "dissect",
    "frame_ports",
    "read_capture",
    "seen",
    "sniff",
]
