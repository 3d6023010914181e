"""Lookups of every kind of table against a search through all entries, after random writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from netsum_switch.action_profile import ActionInfo
from netsum_switch.errors import TableError
from netsum_switch.table import Entry, Exact, KeyInfo, Lpm, Match, Range, Table, Ternary

WIDTH = 4
TOP = (1 << WIDTH) - 1
VALUES = st.integers(0, TOP)
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
def tables(draw: st.DrawFn) -> Table:
    kind = draw(st.sampled_from(sorted(KINDS)))
    fields = draw(st.sampled_from(KINDS[kind]))
    keys = tuple(KeyInfo(f"k{at}", field, WIDTH) for at, field in enumerate(fields))
    table = Table("t", kind, keys, (ActionInfo("set", 0, (("x", 32),)), ActionInfo("nothing", 1, ())), 64)
    removes = st.booleans()
    written: list[tuple[tuple[Match, ...], int]] = []
    for serial in range(draw(st.integers(0, 12))):
        removing: bool = draw(removes)
        if written and removing:
            table.delete(*written.pop(draw(st.integers(0, len(written) - 1))))
            continue
        match = tuple(draw(MATCHES[field]) for field in fields)
        priority = draw(st.integers(1, 5)) if kind in ("ternary", "range") else 0
        try:
            table.insert(match, "set", (serial,), priority)
        except TableError:
            continue  # it is there already
        written.append((match, priority))
    return table


@given(tables(), st.data())
def test_the_best_entry_is_found(table: Table, data: st.DataObject) -> None:
    key = tuple(data.draw(VALUES) for _ in table.keys)
    whole = key[0] if len(key) == 1 else key
    found = table.exact.get(whole) if table.match_type == "exact" else table.lookup(key)
    fitting = [entry for entry in table.entries() if all(map(accepts, entry.match, key))]
    if not fitting:
        assert found is None
        return
    assert found is not None
    best: Entry = found[1]
    assert best in fitting
    if table.match_type == "lpm":
        assert rank(best) == max(map(rank, fitting))
    else:
        highest = max(entry.priority for entry in fitting)
        assert best is next(entry for entry in fitting if entry.priority == highest)
