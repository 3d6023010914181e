# SPDX-License-Identifier: MIT
"""The scapy layers against the codec, field by field."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.packets import (
    IP,
    LANES,
    UDP,
    BlockRecord,
    Ether,
    Lanes32,
    Netsum,
    Query,
    Room,
    as_text,
    dissect,
    read_capture,
    seen,
)
from netsum.wire.codec import Header, pack_header, parse_record
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, HEADER_BYTES, QUERY_FIELDS, RECORD_BITS, RECORD_FIELDS, Lane
from scapy.packet import Raw
from scapy.utils import wrpcap

from tests.wire.strategies import fields_of, frame_of, headers, lanes_of, udp_frame, well_formed


def scapy_fields(layer: Netsum) -> Header:
    """The layer's own field values, as the codec names them."""
    values = {name: layer.getfieldval(name) for name in Header._fields}
    return Header(**values)


@given(headers)
def test_scapy_reads_what_the_codec_writes(header: Header) -> None:
    layer = Netsum(pack_header(header))
    assert scapy_fields(layer) == header
    assert layer.header() == header


@given(headers)
def test_codec_reads_what_scapy_writes(header: Header) -> None:
    assert bytes(Netsum(**fields_of(header))) == pack_header(header)


@pytest.mark.parametrize("seed", range(20))
def test_frames_dissect_to_the_same_header_and_lanes_and_build_again(seed: int) -> None:
    header, payload = well_formed(random.Random(seed))
    frame = frame_of(header, payload)
    packet = dissect(frame)
    assert scapy_fields(packet[Netsum]) == header
    if header.lane_cnt:
        assert packet[LANES[header.lane]].values == lanes_of(header, payload)
    elif payload:
        assert packet[Room].load == payload
    assert bytes(packet) == frame
    # Rebuilt from its fields, without the bytes that scapy keeps.
    fresh = packet.copy()
    for layer in (fresh, fresh[IP], fresh[UDP], fresh[Netsum], fresh[Netsum].payload):
        layer.raw_packet_cache = None
    assert bytes(fresh) == frame


@pytest.mark.parametrize("lane", list(Lane))
def test_what_is_left_out_is_filled_in(lane: Lane) -> None:
    count = CHUNK_BYTES // lane.bytes
    packet = Ether() / IP(src="10.0.0.1", dst="10.0.0.254") / UDP(sport=20001) / Netsum() / LANES[lane](values=[1] * count)
    built = dissect(bytes(packet))
    assert built[UDP].dport == 12000
    header = built[Netsum].header()
    assert (header.lane, header.lane_cnt, header.data_cnt, header.worker_cnt) == (lane, count, 1, 1)


def test_4096_lanes_are_more_than_grad_cnt_can_say() -> None:
    built = Netsum(bytes(Netsum() / LANES[Lane.L8](values=[7] * 4096)))
    assert (built.grad_cnt, built.lane_cnt) == (4095, 4096)
    assert built.payload.values == [7] * 4096


def test_empty_contribution_keeps_its_room_uncounted() -> None:
    header = Netsum(bytes(Netsum() / Room(bytes(512)))).header()
    assert (header.lane_cnt, header.data_cnt) == (0, 0)


def test_fields_that_are_set_are_sent_as_they_are() -> None:
    header = Netsum(bytes(Netsum(lane_cnt=5, data_cnt=9, version=3) / Raw(b"xyz"))).header()
    assert (header.lane_cnt, header.data_cnt, header.version) == (5, 9, 3)


def test_short_payload_is_kept_as_it_came() -> None:
    frame = udp_frame(pack_header(Header(1, 2, lane_cnt=64, data_cnt=1)) + b"\x01\x02\x03")
    packet = dissect(frame)
    assert bytes(packet) == frame
    found = seen(packet)
    assert found is not None
    assert found.payload == b"\x01\x02\x03"


def test_results_are_told_by_their_source_port() -> None:
    packet = dissect(udp_frame(pack_header(Header(9, 1)), source_port=12000, destination_port=20001))
    found = seen(packet)
    assert found is not None
    assert (found.source, found.destination) == ("10.0.0.1:12000", "10.0.0.254:20001")


def test_other_traffic_is_not_ours() -> None:
    assert seen(dissect(udp_frame(b"hello", destination_port=53))) is None


def test_names_are_shown_for_values_that_have_them() -> None:
    text = as_text(dissect(frame_of(Header(3, 7, op=2, lane=0, status=9, dest=EVERYONE), b"")))
    for line in ("op        = MAX", "lane      = 8 bits", "status    = REFUSED", "dest      = every member"):
        assert line in text


@given(st.binary(min_size=7 + RECORD_BITS // 8, max_size=7 + RECORD_BITS // 8))
def test_record_layer_is_the_codecs_record(data: bytes) -> None:
    query = Query(data)
    assert {field.name: query.getfieldval(field.name) for field in QUERY_FIELDS} == {
        "kind": data[0],
        "slot": int.from_bytes(data[1:3], "big"),
        "cookie": int.from_bytes(data[3:5], "big"),
        "closed": int.from_bytes(data[5:7], "big"),
    }
    record = query[BlockRecord]
    assert {field.name: record.getfieldval(field.name) for field in RECORD_FIELDS} == parse_record(data[7:])


def test_capture_is_read_in_order_and_without_other_traffic(tmp_path: Path) -> None:
    frames = [frame_of(Header(1, block), b"") for block in (5, 6)]
    capture = tmp_path / "mixed.pcap"
    wrpcap(str(capture), [Ether(frames[0]), Ether(udp_frame(b"other", destination_port=53)), Ether(frames[1])])
    assert [found.header.block_id for found in read_capture(capture)] == [5, 6]


def test_capture_that_is_none_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "text.pcap"
    path.write_text("this is not a capture, only text")
    with pytest.raises(ValueError, match=r"text\.pcap is not a pcap"):
        list(read_capture(path))


def test_doc_example_builds() -> None:
    chunk = Ether() / IP(dst="10.0.0.254") / UDP(sport=20001) / Netsum(job_id=3, block_id=7) / Lanes32(values=[5] * 64)
    assert len(bytes(chunk)) == 14 + 20 + 8 + HEADER_BYTES + CHUNK_BYTES
