# SPDX-License-Identifier: MIT
"""The codec against the schema's bits, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire import schema
from netsum.wire.codec import Header, pack_header, parse_header, parse_record

from tests.wire.strategies import fields_of, headers


def bits_of(header: Header) -> str:
    """The header as the schema spells it: field after field, most significant bit first."""
    values = fields_of(header)
    return "".join(f"{values[field.name]:0{field.bits}b}" for field in schema.HEADER_FIELDS)


def test_header_is_40_bytes_with_the_published_trio_fields_first() -> None:
    assert schema.HEADER_BYTES == 40
    assert sum(field.bits for field in schema.TRIO_FIELDS) == 12 * 8
    widths = [field.bits for field in schema.TRIO_FIELDS]
    assert widths == [8, 32, 4, 1, 1, 2, 8, 8, 16, 4, 12]


@given(headers)
def test_header_packs_to_the_bits_of_the_schema(header: Header) -> None:
    assert pack_header(header) == int(bits_of(header), 2).to_bytes(40, "big")


@given(headers)
def test_header_round_trip(header: Header) -> None:
    assert parse_header(pack_header(header)) == header


@given(st.binary(min_size=40, max_size=50))
def test_any_40_bytes_parse_and_pack_to_the_same_header(data: bytes) -> None:
    header = parse_header(data)
    assert parse_header(pack_header(header)) == header


@pytest.mark.parametrize(("wide", "narrow"), [(0, 0), (255, 255), (256, 255), (65535, 255)])
def test_counts_of_the_trio_ml_header_saturate(wide: int, narrow: int) -> None:
    packed = pack_header(Header(1, 2, worker_cnt=wide, lane_cnt=16 * wide + 15 & 0xFFFF))
    assert (packed[7], packed[10] << 8 | packed[11]) == (narrow, 16 * narrow + 15)
    assert packed[18:20] == wide.to_bytes(2, "big")


@given(st.binary(max_size=39))
def test_short_header_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(ValueError, match=f"40 bytes, this packet has {len(data)}"):
        parse_header(data)


@pytest.mark.parametrize("lane", list(schema.Lane))
def test_payload_bytes_are_lanes_times_their_width(lane: schema.Lane) -> None:
    header = Header(1, 2, lane_cnt=64, lane=lane)
    assert header.payload_bytes == 64 * lane.bytes == 64 * lane.bits // 8


@given(st.fixed_dictionaries({f.name: st.integers(0, (1 << f.bits) - 1) for f in schema.RECORD_FIELDS}))
def test_record_parses_from_the_bits_of_the_schema(record: dict[str, int]) -> None:
    text = "".join(f"{record[field.name]:0{field.bits}b}" for field in schema.RECORD_FIELDS)
    assert parse_record(int(text, 2).to_bytes(len(text) // 8, "big") + b"behind it") == record


def test_short_record_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="66 bytes, this one has 65"):
        parse_record(bytes(65))


def test_outcomes_fit_their_row() -> None:
    assert max(schema.Outcome) < schema.OUTCOMES_PER_JOB
