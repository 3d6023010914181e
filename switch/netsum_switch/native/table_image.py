"""A table whose entries lie in flat memory too, where compiled code looks them up (`tables`).

What is written waits aside until `refresh`, which the pipeline calls when no packet is under way; so packets see all of a batch
or nothing, however long it took to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netsum_switch.match import Match, Range, mask_of
from netsum_switch.native.layout import TableWord
from netsum_switch.native.memory import Memory, Staged
from netsum_switch.native.module import TablePlan
from netsum_switch.native.tables import DELETED, hash_of
from netsum_switch.table import Entry, Table

_SMALLEST = 8
_COUNTS = 16  # bytes of a row's counter
_NO_ACTION = (1 << 64) - 1


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
        self._index = Staged(0)
        self._in_place: tuple[Staged, ...] = ()  # what the context points to, while what follows it waits
        self._used = 0  # places of the hash table that are not free
        self._rule_bytes: dict[Entry, bytes] = {}
        self._set_index(_SMALLEST if self.match_type == "exact" else 0)

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        super().set_default(action, params)
        self._changed(self)

    def reset_default(self) -> None:
        super().reset_default()
        self._changed(self)

    def refresh(self) -> None:
        """Put in place what has changed."""
        self._write_row(0, self.default[0])
        rules = 0
        if self.match_type != "exact" and self.keys:
            rules = len(self._rule_bytes)
            self._index = Staged(0, b"".join(self._rule_bytes[entry] for entry in self._in_order()))
        self._rows.put()
        self._index.put()
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
        self._point(TableWord.INDEX, self._index.address)
        self._point(TableWord.LIMIT, self._places - 1 if self.match_type == "exact" else rules)
        self._in_place = self._rows, self._index

    def count(self, slot: int, which: int) -> int:
        """An entry's packets (0) or bytes (1)."""
        waiting = self._new_counts.get((slot, which))
        return self._counts.number(_COUNTS * (slot + 1) + 8 * which) if waiting is None else waiting

    def set_count(self, slot: int, which: int, value: int) -> None:
        if value != self.count(slot, which):
            self._new_counts[slot, which] = value
            self._changed(self)

    def _in_order(self) -> list[Entry]:
        if self.match_type == "lpm":
            return [code[1] for _, _, codes in self._lengths for code in codes.values()]
        return [rule[5][1] for rule in self._rules]

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
        index, _, *params = code
        start = row * self._plan.row
        self._rows.set_number(start, _NO_ACTION if index == -1 else index)
        places = self._plan.parameters[index] if index != -1 else ()
        for (at, bits), value in zip(places, params, strict=True):
            self._rows.set_number(start + at, value, (bits + 63) // 64 * 8)

    # Looking up

    def _link(self, entry: Entry, code: tuple[Any, ...]) -> None:
        super()._link(entry, code)
        self._write_row(entry.slot + 1, code)
        if self.match_type == "exact":
            self._insert_key(self._key(entry), entry.slot + 1)
        else:
            self._rule_bytes[entry] = self._rule_of(entry)
        self._changed(self)

    def _unlink(self, entry: Entry) -> None:
        super()._unlink(entry)
        self._left.add(entry.slot)
        if self.match_type == "exact":
            at, found = self._find(self._key(entry))
            assert found
            self._index.set_number(at, DELETED)
        else:
            self._rule_bytes.pop(entry)
        self._changed(self)

    def _key(self, entry: Entry) -> tuple[int, ...]:
        """The limbs of an exact entry's key."""
        return tuple(
            mask_of(one, key.width)[0] >> 64 * at & (1 << 64) - 1
            for one, key in zip(entry.match, self.keys, strict=True)
            for at in range((key.width + 63) // 64)
        )

    @property
    def _slot_bytes(self) -> int:
        return 8 * (self._plan.key_words + 1)

    def _set_index(self, places: int) -> None:
        self._index = Staged(places * self._slot_bytes)
        self._places, self._used = places, 0

    def _find(self, key: tuple[int, ...]) -> tuple[int, bool]:
        """(where the key is or a free place for it, whether it is there)."""
        wanted = b"".join(word.to_bytes(8, "little") for word in key)
        place = hash_of(key)
        while True:
            at = (place & self._places - 1) * self._slot_bytes
            row = self._index.number(at)
            if row == 0:
                return at, False
            if row != DELETED and self._index.data[at + 8 : at + self._slot_bytes] == wanted:
                return at, True
            place += 1

    def _insert_key(self, key: tuple[int, ...], row: int) -> None:
        if 2 * (self._used + 1) > self._places:
            old, size = self._index, self._slot_bytes
            kept = [bytes(old.data[at : at + size]) for at in range(0, self._places * size, size)]
            rows = [each for each in kept if int.from_bytes(each[:8], "little") not in (0, DELETED)]
            self._set_index(max(_SMALLEST, 1 << (4 * len(rows)).bit_length()))
            for each in rows:
                self._put(each)
        self._put(row.to_bytes(8, "little") + b"".join(word.to_bytes(8, "little") for word in key))

    def _put(self, slot: bytes) -> None:
        key = tuple(int.from_bytes(slot[at : at + 8], "little") for at in range(8, len(slot), 8))
        at, _ = self._find(key)
        self._index.write(at, slot)
        self._used += 1

    def _rule_of(self, entry: Entry) -> bytes:
        masks, values, ends = [], [], []
        for one, key in zip(entry.match, self.keys, strict=True):
            size = (key.width + 63) // 64 * 8
            value, mask = mask_of(one, key.width)
            masks.append(mask.to_bytes(size, "little"))
            values.append(value.to_bytes(size, "little"))
            if isinstance(one, Range):
                ends += [one.low.to_bytes(size, "little"), one.high.to_bytes(size, "little")]
        return b"".join([(entry.slot + 1).to_bytes(8, "little"), *masks, *values, *ends])
