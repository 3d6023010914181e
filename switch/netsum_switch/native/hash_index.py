"""A hash table in memory, {row, key...} a place, as compiled code looks it up (`tables`)."""

from __future__ import annotations

from netsum_switch.native.memory import Staged
from netsum_switch.native.tables import DELETED, hash_of

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
