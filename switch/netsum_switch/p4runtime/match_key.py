# SPDX-License-Identifier: MIT
"""Converts match keys between FieldMatch messages and the core's match objects.

The order of the checks and their texts are the reference's.
"""

from __future__ import annotations

from typing import Any

from netsum_switch.p4runtime.p4info import KeyField, MatchKind, TableSpec
from netsum_switch.p4runtime.status import decode, encode, invalid
from netsum_switch.table import Exact, Lpm, Match, Range, Ternary

MatchKey = tuple[Match, ...]

# The default entry's key in the store of what controllers attach to entries.
DEFAULT_KEY: tuple[MatchKey, int] = ((), -1)


def read_key(spec: TableSpec, entry: Any) -> tuple[MatchKey, int]:
    """Match key and priority of a TableEntry message; `DEFAULT_KEY` for the default entry. Raises RpcError
    (INVALID_ARGUMENT), which says what is wrong."""
    if entry.is_default_action:
        if entry.match:
            raise invalid("Non-empty key for default entry")
        if entry.priority:
            raise invalid("Non-zero priority for default entry")
        return DEFAULT_KEY
    key = read_match(spec, entry)
    if not spec.needs_priority:
        if entry.priority != 0:
            raise invalid("Non-zero priority for non-ternary match")
        return key, 0
    if entry.priority == 0:
        raise invalid("Zero priority for ternary match")
    if entry.priority < 0:
        raise invalid("A priority cannot be negative")
    return key, entry.priority


def read_match(spec: TableSpec, entry: Any) -> MatchKey:
    """Match key of a TableEntry message. Raises RpcError (INVALID_ARGUMENT), which says what is wrong."""
    if len(entry.match) > len(spec.key):
        raise invalid("Too many fields in match key")
    given = {match.field_id: match for match in reversed(entry.match)}
    key = tuple(_read_field(field, given.get(field.id)) for field in spec.key)
    if sum(field.id in given for field in spec.key) != len(entry.match):
        raise invalid("Unknown field in match key")
    return key


def write_key(spec: TableSpec, key: MatchKey, priority: int, entry: Any) -> None:
    """Fill `match` and `priority` of a TableEntry message; "don't care" fields are left out."""
    if priority > 0:
        entry.priority = priority
    for field, match in zip(spec.key, key, strict=True):
        _write_field(field, match, entry)


def _read_field(field: KeyField, match: Any | None) -> Match:
    if match is None:
        return _dont_care(field)
    form = match.WhichOneof("field_match_type")
    if form != field.kind.name.lower():
        raise invalid("Invalid match type")
    if field.kind is MatchKind.EXACT:
        return Exact(decode(match.exact.value, field.width))
    if field.kind is MatchKind.LPM:
        return _read_lpm(field, match.lpm)
    if field.kind is MatchKind.TERNARY:
        return _read_ternary(field, match.ternary)
    if field.kind is MatchKind.RANGE:
        return _read_range(field, match.range)
    return Ternary(decode(match.optional.value, field.width), (1 << field.width) - 1)


def _dont_care(field: KeyField) -> Match:
    if field.kind is MatchKind.EXACT:
        raise invalid("Missing non-ternary field in match key")
    if field.kind is MatchKind.LPM:
        return Lpm(0, 0)
    if field.kind is MatchKind.RANGE:
        return Range(0, (1 << field.width) - 1)
    return Ternary(0, 0)


def _read_lpm(field: KeyField, match: Any) -> Match:
    value, prefix_len = decode(match.value, field.width), match.prefix_len
    if prefix_len < 0:
        raise invalid("Prefix length cannot be < 0")
    if prefix_len > field.width:
        raise invalid("Prefix length cannot be > bitwidth")
    if prefix_len == 0:
        raise invalid("Invalid reprsentation of 'don't care' LPM match, omit match field instead of using a prefix length of 0")
    if value & (1 << field.width - prefix_len) - 1:
        raise invalid("Invalid LPM value, incorrect number of trailing zeros")
    return Lpm(value, prefix_len)


def _read_ternary(field: KeyField, match: Any) -> Match:
    value, mask = decode(match.value, field.width), decode(match.mask, field.width)
    if mask == 0:
        raise invalid("Invalid representation of 'don't care' ternary match, omit match field instead of using 0 mask")
    if value & ~mask:
        raise invalid("Invalid ternary value, make sure value & mask == value")
    return Ternary(value, mask)


def _read_range(field: KeyField, match: Any) -> Match:
    low, high = decode(match.low, field.width), decode(match.high, field.width)
    if low == 0 and high == (1 << field.width) - 1:
        raise invalid(
            "Invalid representation of 'don't care' range match, omit match field instead of using low=0 and high=2**bitwidth-1"
        )
    if low > high:
        raise invalid("Invalid range value, make sure low <= high")
    return Range(low, high)


def _write_field(field: KeyField, match: Match, entry: Any) -> None:
    if isinstance(match, Exact):
        entry.match.add(field_id=field.id).exact.value = encode(match.value)
    elif isinstance(match, Lpm):
        if match.prefix_len:
            lpm = entry.match.add(field_id=field.id).lpm
            lpm.value, lpm.prefix_len = encode(match.value), match.prefix_len
    elif isinstance(match, Range):
        if match.low or match.high != (1 << field.width) - 1:
            range_ = entry.match.add(field_id=field.id).range
            range_.low, range_.high = encode(match.low), encode(match.high)
    elif match.mask:
        if field.kind is MatchKind.OPTIONAL:
            entry.match.add(field_id=field.id).optional.value = encode(match.value)
        else:
            ternary = entry.match.add(field_id=field.id).ternary
            ternary.value, ternary.mask = encode(match.value), encode(match.mask)
