"""A table whose entries lie in flat memory too, where compiled code looks them up (`tables`).

What is written waits aside until `refresh`, which the pipeline calls when no packet is under way; so packets see all of a batch
or nothing, however long it took to write.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from netsum_switch.match import Exact, Lpm, Match, Range, mask_of
from netsum_switch.native.hash_index import HashIndex
from netsum_switch.native.layout import TableWord, limb_count
from netsum_switch.native.memory import Memory, Staged
from netsum_switch.native.module import Places, TablePlan
from netsum_switch.table import Entry, Table

_SMALLEST = 8
_COUNTS = 16  # bytes of a row's counter
_NO_ACTION = (1 << 64) - 1
_HASHED = ("exact", "lpm")
_REFERENCES: tuple[Places, ...] = (((8, 32),), ((8, 32),))  # of an entry that names a member or group: its handle


class NativeEntry(Entry):
    """An entry whose counter compiled code counts."""

    __slots__ = ("table",)

    def __init__(
        self,
        table: NativeTable,
        match: tuple[Match, ...],
        priority: int,
        action: str,
        params: tuple[int, ...],
        slot: int,
    ) -> None:
        self.table = table
        self.slot = slot
        super().__init__(match, priority, action, params, slot=slot)

    @property
    def packets(self) -> int:
        return self.table.count(self.slot, 0)

    @packets.setter
    def packets(self, value: int) -> None:
        self.table.set_count(self.slot, 0, value)

    @property
    def bytes(self) -> int:
        return self.table.count(self.slot, 1)

    @bytes.setter  # noqa: A003 - the name of the counter
    def bytes(self, value: int) -> None:
        self.table.set_count(self.slot, 1, value)


class NativeTable(Table):
    """A table of the native engine."""

    def __init__(self, plan: TablePlan, context: Memory, changed: Callable[[NativeTable], None], *args: Any) -> None:
        super().__init__(*args)
        self._plan = plan
        self._context = context
        self._changed = changed
        self._room = _SMALLEST
        self._rows = Staged(_SMALLEST * plan.row)
        self._counts = Memory(_SMALLEST * _COUNTS)
        self._new_counts: dict[tuple[int, int], int] = {}  # what waits, by slot and which
        self._left: set[int] = set()  # slots whose entries packets still see
        self._hashes: dict[int, HashIndex] = {}  # by prefix length; an exact table has one
        self._in_place: tuple[Staged, ...] = ()  # what the context points to, while what follows it waits
        self._rule_bytes: dict[Entry, bytes] = {}
        if self.match_type == "exact":
            self._hashes[0] = HashIndex(plan.key_words)

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        super().set_default(action, params)
        self._changed(self)

    def reset_default(self) -> None:
        super().reset_default()
        self._changed(self)

    def refresh(self) -> None:
        """Put in place what has changed."""
        self._write_row(0, self.default[0])
        self._rows.put()
        for each in self._hashes.values():
            each.slots.put()
        index, limit = self._look_up_by()
        index.put()
        if self._counts.size < self._room * _COUNTS:
            counts = Memory(self._room * _COUNTS)
            counts.data[: self._counts.size] = self._counts.data[: self._counts.size]
            self._counts = counts
        for (slot, which), value in self._new_counts.items():
            self._counts.set_number(_COUNTS * (slot + 1) + 8 * which, value)
        self._new_counts.clear()
        self._left.clear()
        self._point(TableWord.ROWS, self._rows.address)
        self._point(TableWord.COUNTS, self._counts.address)
        self._point(TableWord.INDEX, index.address)
        self._point(TableWord.LIMIT, limit)
        self._in_place = self._rows, index, *(each.slots for each in self._hashes.values())

    def _look_up_by(self) -> tuple[Staged, int]:
        """What compiled code looks in, and the number that belongs to it."""
        if self.match_type == "exact":
            index = self._hashes[0]
            return index.slots, index.last
        if self.match_type == "lpm":
            return Staged(0, self._lengths_in_order()), sum(len(each) > 0 for each in self._hashes.values())
        return Staged(0, b"".join(self._rule_bytes[rule[5][1]] for rule in self._rules)), len(self._rules)

    def count(self, slot: int, which: int) -> int:
        """An entry's packets (0) or bytes (1)."""
        waiting = self._new_counts.get((slot, which))
        return self._counts.number(_COUNTS * (slot + 1) + 8 * which) if waiting is None else waiting

    def set_count(self, slot: int, which: int, value: int) -> None:
        if value != self.count(slot, which):
            self._new_counts[slot, which] = value
            self._changed(self)

    def _point(self, word: TableWord, value: int) -> None:
        self._context.set_number(8 * (self._plan.word + word), value)

    # Rows

    def _new_entry(
        self, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...], slot: int
    ) -> Entry:
        if slot + 1 >= self._room:
            self._room *= 2
            self._rows = Staged(self._room * self._plan.row, self._rows.data)
        if slot in self._left:  # the entry that was here may still count
            self._new_counts |= {(slot, 0): 0, (slot, 1): 0}
        return NativeEntry(self, match, priority, action, params, slot)

    def _write_row(self, row: int, code: tuple[Any, ...]) -> None:
        parameters = _REFERENCES if row and self.profile is not None else self._plan.parameters
        write_row(self._rows, row * self._plan.row, parameters, code)

    # Looking up

    def _link(self, entry: Entry, code: tuple[Any, ...]) -> None:
        super()._link(entry, code)
        self._write_row(entry.slot + 1, code)
        if self.match_type in _HASHED:
            self._hash_of(entry).insert(self._key(entry), entry.slot + 1)
        else:
            self._rule_bytes[entry] = self._rule_of(entry)
        self._changed(self)

    def _unlink(self, entry: Entry) -> None:
        super()._unlink(entry)
        self._left.add(entry.slot)
        if self.match_type in _HASHED:
            self._hash_of(entry).delete(self._key(entry))
        else:
            self._rule_bytes.pop(entry)
        self._changed(self)

    def _key(self, entry: Entry) -> tuple[int, ...]:
        """The limbs of an entry's key; of a prefix the rest is 0."""
        pairs = zip(entry.match, self.keys, strict=True)
        return tuple(limb for one, key in pairs for limb in _limbs(mask_of(one, key.width)[0], key.width))

    def _hash_of(self, entry: Entry) -> HashIndex:
        """The hash table that an entry belongs to."""
        length = next((one.prefix_len for one in entry.match if isinstance(one, Lpm)), 0)
        if length not in self._hashes:
            self._hashes[length] = HashIndex(self._plan.key_words)
        return self._hashes[length]

    def _lengths_in_order(self) -> bytes:
        """The prefix lengths in use, longest first: for each, where to look and which bits of the key count."""
        records = []
        for length in sorted(self._hashes, reverse=True):
            index = self._hashes[length]
            if not len(index):
                continue
            words = [index.slots.address, index.last]
            for key in self.keys:
                kind = Lpm(0, length) if key.match_type == "lpm" else Exact(0)
                words += _limbs(mask_of(kind, key.width)[1], key.width)
            records.append(struct.pack(f"<{len(words)}Q", *words))
        return b"".join(records)

    def _rule_of(self, entry: Entry) -> bytes:
        masks, values, ends = [], [], []
        for one, key in zip(entry.match, self.keys, strict=True):
            size = 8 * limb_count(key.width)
            value, mask = mask_of(one, key.width)
            masks.append(mask.to_bytes(size, "little"))
            values.append(value.to_bytes(size, "little"))
            if isinstance(one, Range):
                ends += [one.low.to_bytes(size, "little"), one.high.to_bytes(size, "little")]
        return b"".join([(entry.slot + 1).to_bytes(8, "little"), *masks, *values, *ends])


def write_row(rows: Staged, start: int, parameters: Sequence[Places], code: tuple[Any, ...]) -> None:
    """Write an action and its parameters."""
    index, _, *params = code
    rows.set_number(start, _NO_ACTION if index == -1 else index)
    places = parameters[index] if index != -1 else ()
    for (at, bits), value in zip(places, params, strict=True):
        rows.set_number(start + at, value, 8 * limb_count(bits))


def _limbs(value: int, width: int) -> tuple[int, ...]:
    return tuple(value >> 64 * at & (1 << 64) - 1 for at in range(limb_count(width)))
