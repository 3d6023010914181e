# SPDX-License-Identifier: MIT
"""Looking a key up: functions over a table's flat memory, which `table_image` fills.

A key is 64-bit limbs, field after field. An exact table is a hash table of {row, key...}: row 0 is a free place, and there is
always one. A table of prefixes has a hash table for each length in use, {its address, its last place, masks...}, the longest
first. Other tables are rules in order, {row, masks..., values..., and for each range field its two ends...}.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Callable, Sequence
from typing import Any

from netsum_switch.native.big_integers import compare_limbs
from netsum_switch.native.layout import WIDEST, TableWord, limb_count
from netsum_switch.native.llvm_builder import LlvmFunction, Register
from netsum_switch.native.memory import Memory, Staged
from netsum_switch.native.module import Module, Places, TablePlan
from netsum_switch.program import Json
from netsum_switch.table import DEFAULT, Entry, Exact, Lpm, Match, Range, Table, mask_of

DELETED = (1 << 64) - 1
_FIRST, _FACTOR = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_ALL = (1 << 64) - 1


def hash_of(words: tuple[int, ...]) -> int:
    """The hash of a key; the compiled code computes the same."""
    value = _FIRST
    for word in words:
        value = (value ^ word) * _FACTOR & _ALL
        value ^= value >> 32
    return value


def _word(out: LlvmFunction, base: Register, at: int) -> Register:
    return out.load(out.offset(base, 8 * at), 64, 8)


def write_exact(module: Module, words: int) -> str:
    """The lookup in a hash table whose keys have this many words."""
    name = f"find_exact{words}"
    if not module.assembly.once(name):
        return name
    out = module.assembly.function(name, "ptr %slots, i64 %last, ptr %key", "i64", attributes="noinline")
    key = [_word(out, "%key", at) for at in range(words)]
    value: Register = str(_FIRST)
    for word in key:
        value = out.op("mul", 64, out.op("xor", 64, value, word), _FACTOR)
        value = out.op("xor", 64, value, out.op("lshr", 64, value, 32))
    head, test, advance, found = out.label(), out.label(), out.label(), out.label()
    place = out.number(value)
    out.begin(head)
    at = out.op("and", 64, out.load(place, 64, 8), "%last")
    out.store(out.op("add", 64, at, 1), place, 64, 8)
    slot = out.offset("%slots", out.op("mul", 64, at, 8 * (words + 1)))
    row = out.load(slot, 64, 8)
    out.branch(out.compare("eq", 64, row, 0), found, test)
    out.begin(test)
    same = "true"
    for number, word in enumerate(key, 1):
        same = out.op("and", 1, same, out.compare("eq", 64, word, _word(out, slot, number)))
    same = out.op("and", 1, same, out.compare("ne", 64, row, DELETED))
    out.branch(same, found, advance)
    out.begin(advance)
    out.jump(head)
    out.begin(found)
    out.give(f"i64 {row}")
    return name


def write_lpm(module: Module, words: int) -> str:
    """The lookup of a key's longest prefix."""
    name = f"find_lpm{words}"
    if not module.assembly.once(name):
        return name
    exact = write_exact(module, words)
    out = module.assembly.function(name, "ptr %lengths, i64 %count, ptr %key", "i64", attributes="noinline")
    prefix = out.space(8 * words)
    with out.each("%count") as index:
        length = out.offset("%lengths", out.op("mul", 64, index, 8 * (2 + words)))
        for at in range(words):
            masked = out.op("and", 64, _word(out, "%key", at), _word(out, length, 2 + at))
            out.store(masked, out.offset(prefix, 8 * at), 64, 8)
        slots, last = out.load_pointer(length), _word(out, length, 1)
        row = out.value(f"call i64 @{exact}(ptr {slots}, i64 {last}, ptr {prefix})")
        with out.when(out.compare("ne", 64, row, 0)):
            out.give(f"i64 {row}")
    out.give("i64 0")
    return name


def write_rules(module: Module, table: str, keys: list[Json], plan: TablePlan) -> str:
    """The lookup in a table of rules: the first that fits."""
    name = f"find_rules{list(module.image.tables).index(table)}"
    if not module.assembly.once(name):
        return name
    words = plan.key_words
    out = module.assembly.function(name, "ptr %rules, i64 %count, ptr %key", "i64", attributes="noinline")
    with out.each("%count") as index:
        rule = out.offset("%rules", out.op("mul", 64, index, 8 * rule_words(plan, [each["match_type"] for each in keys])))
        fits: Register = "true"
        for at in range(words):
            masked = out.op("and", 64, _word(out, "%key", at), _word(out, rule, 1 + at))
            fits = out.op("and", 1, fits, out.compare("eq", 64, masked, _word(out, rule, 1 + words + at)))
        at, end = 0, 1 + 2 * words
        for key, bits in zip(keys, plan.keys, strict=True):
            if key["match_type"] == "range":
                limbs, value = limb_count(bits), out.offset("%key", 8 * at)
                for relation, more in (("ge", 0), ("le", limbs)):
                    bound = out.offset(rule, 8 * (end + more))
                    if bits > WIDEST:
                        order = compare_limbs(module.assembly, out, value, bound, limbs)
                        fits = out.op("and", 1, fits, out.compare(f"s{relation}", 64, order, 0))
                    else:
                        both = (out.load(each, 64 * limbs, 8) for each in (value, bound))
                        fits = out.op("and", 1, fits, out.compare(f"u{relation}", 64 * limbs, *both))
                end += 2 * limbs
            at += limb_count(bits)
        with out.when(fits):
            out.give(f"i64 {_word(out, rule, 0)}")
    out.give("i64 0")
    return name


def rule_words(plan: TablePlan, kinds: list[str]) -> int:
    """The words of one rule."""
    ranges = [limb_count(bits) for bits, kind in zip(plan.keys, kinds, strict=True) if kind == "range"]
    return 1 + 2 * plan.key_words + 2 * sum(ranges)


# A hash table in memory, {row, key...} a place, as compiled code looks it up (`tables`).


_SMALLEST = 8

Key = tuple[int, ...]
"""64-bit limbs."""


class HashIndex:
    """Rows by key. At most half of the places are used, so that a search always ends."""

    def __init__(self, key_words: int) -> None:
        self._bytes = 8 * (key_words + 1)
        self._entries = 0
        self._make(_SMALLEST)

    def __len__(self) -> int:
        return self._entries

    @property
    def last(self) -> int:
        """The number of the last place."""
        return self._places - 1

    def insert(self, key: Key, row: int) -> None:
        """Add a key, which is not there."""
        if 2 * (self._used + 1) > self._places:
            old, size = self.slots.data, self._bytes
            kept = [bytes(old[at : at + size]) for at in range(0, self._places * size, size)]
            rows = [each for each in kept if int.from_bytes(each[:8], "little") not in (0, DELETED)]
            self._make(max(_SMALLEST, 1 << (4 * len(rows)).bit_length()))
            for each in rows:
                limbs = tuple(int.from_bytes(each[at : at + 8], "little") for at in range(8, size, 8))
                self._put(limbs, each)
        self._put(key, row.to_bytes(8, "little") + _packed(key))
        self._entries += 1

    def delete(self, key: Key) -> None:
        """Remove a key, which is there."""
        at, found = self._find(key)
        assert found
        self.slots.set_number(at, DELETED)
        self._entries -= 1

    def _make(self, places: int) -> None:
        self.slots = Staged(places * self._bytes)
        self._places, self._used = places, 0  # those that are not free

    def _put(self, key: Key, slot: bytes) -> None:
        at, _ = self._find(key)
        self.slots.write(at, slot)
        self._used += 1

    def _find(self, key: Key) -> tuple[int, bool]:
        """(where the key is or a free place for it, whether it is there)."""
        wanted, place = _packed(key), hash_of(key)
        while True:
            at = (place & self._places - 1) * self._bytes
            row = self.slots.number(at)
            if row == 0:
                return at, False
            if row != DELETED and self.slots.data[at + 8 : at + self._bytes] == wanted:
                return at, True
            place += 1


def _packed(key: Key) -> bytes:
    return b"".join(word.to_bytes(8, "little") for word in key)


# A table whose entries lie in flat memory too, where compiled code looks them up (`tables`).
#
# What is written waits aside until `refresh`, which the pipeline calls when no packet is in flight; so packets see all
# of a batch or nothing, however long it took to write.


_COUNTS = 16  # bytes of a row's counter
_HIT = 8  # bytes of the time of a row's last hit
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
    """A table that packets look into. Cost of a lookup: exact, one place of a hash table on average; lpm, one for each prefix
    length in use; ternary and range, linear in the entries before the one that matches."""

    def __init__(
        self, plan: TablePlan, context: Memory, changed: Callable[[NativeTable], None], now: Callable[[], int], *args: Any
    ) -> None:
        """``now``: the clock of hits, in microseconds."""
        super().__init__(*args)
        self._plan = plan
        self._context = context
        self._changed = changed
        self._now = now
        self._room = _SMALLEST
        self._rows = Staged(_SMALLEST * plan.row)
        self._counts = Memory(_SMALLEST * _COUNTS)
        self._new_counts: dict[tuple[int, int], int] = {}  # what waits, by slot and which
        self._hits = Memory(_SMALLEST * _HIT)
        self._unseen: set[int] = set()  # slots whose entries packets do not see yet, in a table with timeouts
        self._left: set[int] = set()  # slots whose entries packets still see
        self._hashes: dict[int, HashIndex] = {}  # by prefix length; an exact table has one
        self._in_place: tuple[Staged, ...] = ()  # what the context points to, while what follows it waits
        self._rules: list[Entry] = []  # in the order in which they are tried
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
        default = self.default_entry
        if default is None:
            self._write_row(0, -1)
        else:
            self._write_row(0, self.actions.index(default.action), default.params)
        self._rows.put()
        for each in self._hashes.values():
            each.slots.put()
        index, limit = self._look_up_by()
        index.put()
        self._counts = _grown(self._counts, self._room * _COUNTS)
        for (slot, which), value in self._new_counts.items():
            self._counts.set_number(_COUNTS * (slot + 1) + 8 * which, value)
        self._new_counts.clear()
        if self.with_timeouts:
            self._put_hits()
        self._left.clear()
        self._point(TableWord.ROWS, self._rows.address)
        self._point(TableWord.COUNTS, self._counts.address)
        self._point(TableWord.INDEX, index.address)
        self._point(TableWord.LIMIT, limit)
        self._in_place = self._rows, index, *(each.slots for each in self._hashes.values())

    def _put_hits(self) -> None:
        """Begin the time without a hit of the entries that packets see from now on."""
        self._hits = _grown(self._hits, self._room * _HIT)
        now = self._now()
        for slot in self._unseen:
            self._hits.set_number(_HIT * (slot + 1), now)
        self._unseen.clear()  # last: another thread may read when an entry was hit
        self._point(TableWord.HITS, self._hits.address)

    def _look_up_by(self) -> tuple[Staged, int]:
        """The memory in which compiled code looks, and the number that belongs to it."""
        if self.match_type == "exact":
            index = self._hashes[0]
            return index.slots, index.last
        if self.match_type == "lpm":
            return Staged(0, self._lengths_in_order()), sum(len(each) > 0 for each in self._hashes.values())
        return Staged(0, b"".join(self._rule_bytes[each] for each in self._rules)), len(self._rules)

    def count(self, slot: int, which: int) -> int:
        """An entry's packets (0) or bytes (1)."""
        waiting = self._new_counts.get((slot, which))
        return self._counts.number(_COUNTS * (slot + 1) + 8 * which) if waiting is None else waiting

    def set_count(self, slot: int, which: int, value: int) -> None:
        if value != self.count(slot, which):
            self._new_counts[slot, which] = value
            self._changed(self)

    def last_hit(self, entry: Entry) -> int | None:
        if not self.with_timeouts or entry.slot in self._unseen:
            return None
        return self._hits.number(_HIT * (entry.slot + 1))

    def copy_hit(self, entry: Entry, other: Table, of: Entry) -> None:
        time = other.last_hit(of)
        if time is not None and self.with_timeouts:
            self._hits.set_number(_HIT * (entry.slot + 1), time)

    def _point(self, word: TableWord, value: int) -> None:
        self._context.set_number(8 * (self._plan.word + word), value)

    # Rows

    def _new_entry(self, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...], slot: int) -> Entry:
        if slot + 1 >= self._room:
            self._room *= 2
            self._rows = Staged(self._room * self._plan.row, self._rows.data)
        if slot in self._left:  # the entry that was here may still count
            self._new_counts |= {(slot, 0): 0, (slot, 1): 0}
        if self.with_timeouts and slot != DEFAULT:
            self._unseen.add(slot)
        return NativeEntry(self, match, priority, action, params, slot)

    def _write_row(self, row: int, action: int, params: tuple[int, ...] = ()) -> None:
        parameters = _REFERENCES if row and self.profile is not None else self._plan.parameters
        write_row(self._rows, row * self._plan.row, parameters, action, params)

    # Looking up

    def _link(self, entry: Entry, action: int) -> None:
        self._write_row(entry.slot + 1, action, entry.params)
        if self.match_type in _HASHED:
            self._hash_of(entry).insert(self._key(entry), entry.slot + 1)
        else:
            insort(self._rules, entry, key=lambda each: (-each.priority, each.slot))
            self._rule_bytes[entry] = self._rule_of(entry)
        self._changed(self)

    def _unlink(self, entry: Entry) -> None:
        self._left.add(entry.slot)
        if self.match_type in _HASHED:
            self._hash_of(entry).delete(self._key(entry))
        else:
            self._rules.remove(entry)
            del self._rule_bytes[entry]
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


def _grown(memory: Memory, size: int) -> Memory:
    """The memory, or a larger one with the same contents if it is smaller than this."""
    if memory.size >= size:
        return memory
    larger = Memory(size)
    larger.data[: memory.size] = memory.data[: memory.size]
    return larger


def write_row(rows: Staged, start: int, parameters: Sequence[Places], action: int, params: tuple[int, ...] = ()) -> None:
    """Write an action's number, -1 for none, and its parameters."""
    rows.set_number(start, _NO_ACTION if action == -1 else action)
    places = parameters[action] if action != -1 else ()
    for (at, bits), value in zip(places, params, strict=True):
        rows.set_number(start + at, value, 8 * limb_count(bits))


def _limbs(value: int, width: int) -> tuple[int, ...]:
    return tuple(value >> 64 * at & (1 << 64) - 1 for at in range(limb_count(width)))
