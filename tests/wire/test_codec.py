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


def test_header_is_24_bytes_with_the_published_trio_fields_first() -> None:
    assert schema.HEADER_BYTES == 24
    assert sum(field.bits for field in schema.TRIO_FIELDS) == 12 * 8
    widths = [field.bits for field in schema.TRIO_FIELDS]
    assert widths == [8, 32, 4, 1, 1, 1, 1, 8, 8, 16, 2, 2, 12]


@given(headers)
def test_header_packs_to_the_bits_of_the_schema(header: Header) -> None:
    assert pack_header(header) == int(bits_of(header), 2).to_bytes(24, "big")


@given(headers)
def test_header_round_trip(header: Header) -> None:
    assert parse_header(pack_header(header)) == header


@given(st.binary(min_size=24, max_size=40))
def test_any_24_bytes_parse_and_pack_again(data: bytes) -> None:
    assert pack_header(parse_header(data)) == data[:24]


@given(st.binary(max_size=23))
def test_short_header_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(ValueError, match=f"24 bytes, this packet has {len(data)}"):
        parse_header(data)


@pytest.mark.parametrize("lane", list(schema.Lane))
def test_payload_bytes_are_lanes_times_their_width(lane: schema.Lane) -> None:
    header = Header(1, 2, grad_cnt=64, lane=lane)
    assert header.payload_bytes == 64 * lane.bytes == 64 * lane.bits // 8


@given(st.fixed_dictionaries({f.name: st.integers(0, (1 << f.bits) - 1) for f in schema.RECORD_FIELDS}))
def test_record_parses_from_the_bits_of_the_schema(record: dict[str, int]) -> None:
    text = "".join(f"{record[field.name]:0{field.bits}b}" for field in schema.RECORD_FIELDS)
    assert parse_record(int(text, 2).to_bytes(len(text) // 8, "big") + b"behind it") == record


def test_short_record_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="63 bytes, this one has 62"):
        parse_record(bytes(62))


def test_reasons_of_refusal_fit_age_op_and_outcomes_their_row() -> None:
    told = [outcome for outcome in schema.Outcome if outcome.name in ("UNKNOWN_JOB", "UNSUPPORTED")]
    assert all(outcome < 16 for outcome in told)
    assert max(schema.Outcome) < schema.OUTCOMES_PER_JOB
