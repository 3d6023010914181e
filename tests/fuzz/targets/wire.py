# SPDX-License-Identifier: MIT
"""The wire codec, the scapy layers, frames and a host's window: whatever comes off a wire is read or refused."""

from __future__ import annotations

from netsum.descriptor import Descriptor, HostAddress, SwitchAddress
from netsum.frames import FrameFormat
from netsum.packets import Netsum, dissect, seen
from netsum.wire.codec import Header, pack_header, parse_header, parse_record
from netsum.wire.schema import HEADER_BYTES, RECORD_BITS, RECORD_FIELDS, UDP_PORT

from tests.fuzz.targets.api import FuzzTarget

DESCRIPTOR = Descriptor(
    "resnet", 3, 7, 0, 0, 2, 4, 100, 512, 1500, SwitchAddress("10.0.0.254", "02:6e:73:00:00:fe"),
    HostAddress("10.0.0.1", "02:6e:73:00:00:01", 20001),
)  # fmt: skip
"""The header's one bit that no receiver reads."""


def target() -> FuzzTarget:
    """An input is a packet as it comes: a frame, a UDP payload and a record at once."""
    switch, host = DESCRIPTOR.switch, DESCRIPTOR.host
    ours = FrameFormat.of(DESCRIPTOR)
    theirs = FrameFormat((switch.mac, switch.ip, UDP_PORT), (host.mac, host.ip, host.udp_port))

    def take(data: bytes) -> None:
        _header(data)
        _record(data)
        assert all(len(payload) <= len(data) - 42 for payload in ours.payloads([memoryview(data)]))
        found = seen(dissect(data))
        assert found is None or found.payload in data

    body = pack_header(Header(3, 100, gen_id=5, lane_cnt=64, data_cnt=2, worker_cnt=2)) + bytes(256)
    seeds = [theirs.prefix(len(body)) + body, ours.prefix(len(body)) + body, body, body[:16], b"", bytes(56)]
    return FuzzTarget(take, [*seeds, ours.prefix(16) + body[:16]], 600)


def _header(data: bytes) -> None:
    try:
        header = parse_header(data)
    except ValueError:
        assert len(data) < HEADER_BYTES
        return
    assert len(data) >= HEADER_BYTES
    assert parse_header(pack_header(header)) == header, "what is read is not what was written"
    layer = Netsum(data[:HEADER_BYTES])
    assert layer.header() == header, "scapy and the codec differ"
    assert bytes(layer) == data[:HEADER_BYTES]


def _record(data: bytes) -> None:
    try:
        record = parse_record(data)
    except ValueError:
        assert len(data) < RECORD_BITS // 8
        return
    value = 0
    for field in RECORD_FIELDS:
        value = value << field.bits | record[field.name]
    assert value.to_bytes(RECORD_BITS // 8, "big") == data[: RECORD_BITS // 8]
