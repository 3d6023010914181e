"""A table whose entries lie in flat memory too, where compiled code looks them up (`tables`).

A write changes the memory in place: the caller sees to it that no packet is under way. Rules, which are in order, are written
anew before the next packet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netsum_switch.match import Match, Range, mask_of
from netsum_switch.native.layout import TableWord
from netsum_switch.native.memory import Memory
from netsum_switch.native.module import TablePlan
from netsum_switch.native.tables import DELETED, hash_of, rule_words
from netsum_switch.table import Entry, Table

_SMALLEST = 8
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
        return self.table.counts.number(16 * (self.slot + 1))

    @packets.setter
    def packets(self, value: int) -> None:
        self.table.counts.set_number(16 * (self.slot + 1), value)

    @property
    def bytes(self) -> int:
        return self.table.counts.number(16 * (self.slot + 1) + 8)

    @bytes.setter  # noqa: A003 - the name of the counter
    def bytes(self, value: int) -> None:
        self.table.counts.set_number(16 * (self.slot + 1) + 8, value)


class NativeTable(Table):
    """A table of the native engine."""

    def __init__(self, plan: TablePlan, context: Memory, changed: Callable[[NativeTable], None], *args: Any) -> None:
        super().__init__(*args)
        self._plan = plan
        self._context = context
        self._changed = changed
        self._room = 0
        self._index = Memory(0)
        self._used = 0  # places of the hash table that are not free
        self._rule_bytes: dict[Entry, bytes] = {}
        self.counts = self._rows = Memory(0)
        self._grow_rows(_SMALLEST)
        self._set_index(_SMALLEST if self.match_type == "exact" else 0)

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        super().set_default(action, params)
        self._changed(self)

    def reset_default(self) -> None:
        super().reset_default()
        self._changed(self)

    def refresh(self) -> None:
        """Write what has changed before the next packet."""
        self._write_row(0, self.default[0])
        if self.match_type == "exact" or not self.keys:
            return
        rules = b"".join(self._rule_bytes[entry] for entry in self._in_order())
        words = rule_words(self._plan, [key.match_type for key in self.keys])
        if len(rules) > self._index.size:
            self._index = Memory(2 * len(rules))
        self._index.data[: len(rules)] = rules
        self._point(TableWord.INDEX, self._index.address)
        self._point(TableWord.LIMIT, len(rules) // (8 * words))

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
            self._grow_rows(2 * self._room)
        return NativeEntry(self, match, priority, action, params, slot)

    def _grow_rows(self, room: int) -> None:
        """The old memory stays until its successor is in place."""
        rows, counts = Memory(room * self._plan.row), Memory(room * 16)
        if self._room:
            rows.data[: self._room * self._plan.row] = self._rows.data[: self._room * self._plan.row]
            counts.data[: self._room * 16] = self.counts.data[: self._room * 16]
        self._rows, self.counts, self._room = rows, counts, room
        self._point(TableWord.ROWS, rows.address)
        self._point(TableWord.COUNTS, counts.address)
        if self.default[0][0] == -1:
            self._rows.set_number(0, _NO_ACTION)

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
            return
        self._rule_bytes[entry] = self._rule_of(entry)
        self._changed(self)

    def _unlink(self, entry: Entry) -> None:
        super()._unlink(entry)
        if self.match_type == "exact":
            at, found = self._find(self._key(entry))
            assert found
            self._index.set_number(at, DELETED)
            return
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
        self._index = Memory(places * self._slot_bytes)
        self._places, self._used = places, 0
        self._point(TableWord.INDEX, self._index.address)
        self._point(TableWord.LIMIT, max(0, places - 1))

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
        self._index.data[at : at + len(slot)] = slot
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
