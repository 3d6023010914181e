# SPDX-License-Identifier: MIT
"""A p4info's ids and names: what the P4Runtime specification says of them ("ID Allocation for P4Info Objects"), checked before
the p4info is used, since objects with one id hide one another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from netsum_p4runtime import p4info_pb2

from netsum_switch.p4runtime.status import invalid

_Prefix = p4info_pb2.P4Ids.Prefix

# The sections of a p4info and the first byte of their objects' ids.
_KINDS = {
    "actions": _Prefix.ACTION, "tables": _Prefix.TABLE, "value_sets": _Prefix.VALUE_SET,
    "controller_packet_metadata": _Prefix.CONTROLLER_HEADER, "action_profiles": _Prefix.ACTION_PROFILE,
    "counters": _Prefix.COUNTER, "direct_counters": _Prefix.DIRECT_COUNTER, "meters": _Prefix.METER,
    "direct_meters": _Prefix.DIRECT_METER, "registers": _Prefix.REGISTER, "digests": _Prefix.DIGEST,
}  # fmt: skip

# What an object numbers itself: section, field, and the words for one of it.
_PARTS = (
    ("tables", "match_fields", "match field"),
    ("tables", "action_refs", "action"),
    ("actions", "params", "parameter"),
    ("controller_packet_metadata", "metadata", "metadata field"),
)


def check_ids(p4info: Any) -> None:
    """Check that ids and names tell the objects of a P4Info message apart, and that ids are of their objects' kinds. Raises
    RpcError (INVALID_ARGUMENT), which names the objects."""
    owners: dict[int, str] = {}
    for section, prefix in _KINDS.items():
        names: set[str] = set()
        for each in getattr(p4info, section):
            _check(each.preamble, section, prefix, owners, names)
    _check_aliases(p4info)
    for section, part, word in _PARTS:
        for each in getattr(p4info, section):
            name = each.preamble.name
            _check_numbers(f"{_one_of(section)} {name}", word, [one.id for one in getattr(each, part)])


def _one_of(section: str) -> str:
    return section.removesuffix("s").replace("_", " ")


def _check(preamble: Any, section: str, prefix: int, owners: dict[int, str], names: set[str]) -> None:
    what = f"{_one_of(section)} {preamble.name}"
    if preamble.id >> 24 != prefix:
        raise _wrong(f"the id {preamble.id:#010x} of {what} does not begin with {prefix:#04x}, as those of {section} do")
    if (other := owners.setdefault(preamble.id, what)) is not what:
        raise _wrong(f"{other} and {what} have the same id, {preamble.id:#010x}: give each its own")
    if preamble.name in names:
        raise _wrong(f"two {section} have the name {preamble.name}: give each its own")
    names.add(preamble.name)


def _check_aliases(p4info: Any) -> None:
    """Aliases are unique among the objects of a kind."""
    for section in _KINDS:
        known: dict[str, str] = {}
        for each in getattr(p4info, section):
            alias, name = each.preamble.alias, each.preamble.name
            if alias and known.setdefault(alias, name) != name:
                raise _wrong(f"{_one_of(section)} {known[alias]} and {name} have the same alias, {alias}: give each its own")


def _check_numbers(owner: str, word: str, ids: Iterable[int]) -> None:
    seen: set[int] = set()
    for number in ids:
        if number in seen:
            raise _wrong(f"{owner} has two {word}s with the id {number}: give each its own")
        seen.add(number)


def _wrong(text: str) -> Exception:
    return invalid(f"Error when importing p4info: {text}")
