# SPDX-License-Identifier: MIT
"""Lookups of every kind of table against a search through all entries, after random writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from netsum_switch.errors import TableError
from netsum_switch.table import Entry, Exact, Lpm, Match, Range, Ternary

from tests.switch.core.made import Lookup

WIDTH = 8
VALUES = st.sampled_from((*range(12), 0x80, 0x8F, 0xF0, 0xFF))  # few, so that keys match
MATCHES: dict[str, st.SearchStrategy[Match]] = {
    "exact": st.builds(Exact, VALUES),
    "lpm": st.builds(Lpm, VALUES, st.integers(0, WIDTH)),
    "ternary": st.builds(Ternary, VALUES, VALUES),
    "range": st.tuples(VALUES, VALUES).map(lambda ends: Range(min(ends), max(ends))),
}
KINDS = {
    "exact": [("exact",), ("exact", "exact")],
    "lpm": [("lpm",), ("lpm", "exact"), ("exact", "lpm")],
    "ternary": [("ternary",), ("exact", "ternary"), ("lpm", "ternary")],
    "range": [("range",), ("ternary", "range"), ("range", "exact", "lpm")],
}


def accepts(match: Match, value: int) -> bool:
    if isinstance(match, Exact):
        return value == match.value
    if isinstance(match, Lpm):
        return value >> WIDTH - match.prefix_len == match.value >> WIDTH - match.prefix_len
    if isinstance(match, Ternary):
        return value & match.mask == match.value & match.mask
    return match.low <= value <= match.high


def rank(entry: Entry) -> tuple[int, int]:
    return entry.priority, sum(match.prefix_len for match in entry.match if isinstance(match, Lpm))


@st.composite
def lookups(draw: st.DrawFn) -> Lookup:
    kind = draw(st.sampled_from(sorted(KINDS)))
    fields = draw(st.sampled_from(KINDS[kind]))
    lookup = Lookup(*fields)
    removes = st.booleans()
    written: list[tuple[tuple[Match, ...], int]] = []
    for serial in range(1, draw(st.integers(1, 13))):
        removing: bool = draw(removes)
        if written and removing:
            lookup.table.delete(*written.pop(draw(st.integers(0, len(written) - 1))))
            continue
        match = tuple(draw(MATCHES[field]) for field in fields)
        priority = draw(st.integers(1, 5)) if kind in ("ternary", "range") else 0
        try:
            lookup.table.insert(match, "a", (serial,), priority)
        except TableError:
            continue  # it is there already
        written.append((match, priority))
    return lookup


@given(lookups(), st.data())
def test_the_best_entry_is_found(lookup: Lookup, data: st.DataObject) -> None:
    key = tuple(data.draw(VALUES) for _ in lookup.table.keys)
    found = lookup.find(*key)
    fitting = [entry for entry in lookup.table.entries() if all(map(accepts, entry.match, key))]
    if not fitting:
        assert found == 0
        return
    best = next(entry for entry in fitting if entry.params == (found,))
    if lookup.table.match_type == "lpm":
        assert rank(best) == max(map(rank, fitting))
    else:
        highest = max(entry.priority for entry in fitting)
        assert best is next(entry for entry in fitting if entry.priority == highest)
