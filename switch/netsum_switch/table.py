# SPDX-License-Identifier: MIT
"""Match-action tables: their entries, and what may be written to them. `native.tables` keeps what packets look up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from netsum_switch.action_profile import ActionInfo, ActionProfile, checked_action
from netsum_switch.errors import BadEntryError, EntryExistsError, EntryNotFoundError, ImmutableError, TableFullError
from netsum_switch.externs import MeterArray

# Match objects: what one key field of a table entry accepts.


@dataclass(frozen=True, slots=True)
class Exact:
    """One value."""

    value: int


@dataclass(frozen=True, slots=True)
class Lpm:
    """Values whose first `prefix_len` bits are those of `value`."""

    value: int
    prefix_len: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """Values that agree with `value` where `mask` is 1. An optional field is this with a mask of all ones or 0."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """Values from `low` to `high`, inclusive."""

    low: int
    high: int


Match = Exact | Lpm | Ternary | Range


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key field of a table. `match_type`: exact, lpm, ternary, range or valid (a header's validity, width 1)."""

    name: str
    match_type: str
    width: int


def fault(match: Match, key: KeyInfo) -> str | None:
    """The error in a match for this key field, or None."""
    top = (1 << key.width) - 1
    kinds = {"exact": Exact, "valid": Exact, "lpm": Lpm, "ternary": Ternary, "range": Range}
    if not isinstance(match, kinds[key.match_type]):
        return f"key field {key.name} takes a match of type {key.match_type}"
    inside = 0 <= match.low <= match.high <= top if isinstance(match, Range) else 0 <= match.value <= top
    if isinstance(match, Lpm):
        inside = inside and 0 <= match.prefix_len <= key.width
    elif isinstance(match, Ternary):
        inside = inside and 0 <= match.mask <= top
    return None if inside else f"the match for key field {key.name} does not fit its {key.width} bits"


def canonical(match: Match, width: int) -> Match:
    """The same match with ignored bits set to 0: equal exactly if both match the same values."""
    if isinstance(match, Ternary):
        return Ternary(match.value & match.mask, match.mask)
    if isinstance(match, Lpm) and 0 <= match.prefix_len <= width:
        return Lpm(mask_of(match, width)[0], match.prefix_len)
    return match


def mask_of(match: Match, width: int) -> tuple[int, int]:
    """The (value, mask) of a match; (0, 0) for a range."""
    if isinstance(match, Exact):
        return match.value, (1 << width) - 1
    if isinstance(match, Lpm):
        mask = (1 << width) - (1 << width - match.prefix_len)
        return match.value & mask, mask
    if isinstance(match, Ternary):
        return match.value & match.mask, match.mask
    return 0, 0


REFERENCES = (ActionInfo("$member$", -1, (("member", 32),)), ActionInfo("$group$", -1, (("group", 32),)))
"""The kinds of entries in a table with an action profile, by the profile's numbers of the kinds."""

_KINDS = {each.name: kind for kind, each in enumerate(REFERENCES)}


DEFAULT = -1


@dataclass(slots=True, eq=False)
class Entry:
    """A table entry. `packets` and `bytes` are its direct counter. `slot` is the lowest number that was free in its
    table when it was inserted, as BMv2 numbers entries; the default entry's is `DEFAULT`."""

    match: tuple[Match, ...]
    priority: int
    action: str
    params: tuple[int, ...]
    packets: int = 0
    bytes: int = 0
    slot: int = 0

    @property
    def row(self) -> int:
        """The number of its row in memory: of its action, counter and meter. The default entry's is 0."""
        return self.slot + 1


class Table:
    """One table of the program.

    Priorities are P4Runtime's: the higher number wins, and of equal ones the entry with the lowest slot, as in BMv2. Only
    ternary and range tables use them; elsewhere they are 0.
    """

    def __init__(
        self,
        name: str,
        match_type: str,
        keys: tuple[KeyInfo, ...],
        actions: tuple[ActionInfo, ...],
        max_size: int,
        with_counters: bool = False,
        profile: ActionProfile | None = None,
        with_timeouts: bool = False,
    ) -> None:
        """``profile``: with one, entries have a member or group of it for an action (`REFERENCES`), and ``actions`` are the
        profile's. ``with_timeouts``: the times of hits are noted (`last_hit`)."""
        self.name = name
        self.match_type = match_type
        self.keys = keys
        self.action_infos = actions
        self.actions = tuple(action.name for action in actions)
        self.max_size = max_size
        self.with_counters = with_counters
        self.with_timeouts = with_timeouts
        self.profile = profile
        self._entry_actions = actions if profile is None else REFERENCES
        self.meters: MeterArray | None = None  # with a cell for each row
        self.const_entries = False
        self.const_default_action = False
        self.const_default_entry = False
        self.default_entry: Entry | None = None
        self._initial_default: tuple[str, tuple[int, ...]] | None = None
        self.has_initial_default = True
        self._entries: dict[tuple[tuple[Match, ...], int], Entry] = {}
        self._free_slots: list[int] = []  # a heap

    def insert(self, match: tuple[Match, ...], action: str, params: tuple[int, ...], priority: int = 0) -> Entry:
        """Add an entry. Raises TableError if it exists or does not fit, or if the table is full or immutable."""
        self._check_mutable()
        return self._insert(match, action, params, priority)

    def fix_entries(self, entries: list[tuple[tuple[Match, ...], str, tuple[int, ...], int]]) -> None:
        """Set the program's const entries, (match, action, parameters, priority). No entry can be written later. Raises
        TableError if one of them does not fit."""
        for match, action, params, priority in entries:
            self._insert(match, action, params, priority)
        self.const_entries = True

    def modify(self, match: tuple[Match, ...], action: str, params: tuple[int, ...], priority: int = 0) -> Entry:
        """Give an entry another action. Its direct counter keeps its value. Raises TableError if there is no such
        entry, the action does not fit, or the table is immutable."""
        self._check_mutable()
        entry = self._existing(match, priority)
        index = self._checked_action(action, params, self._entry_actions)
        self._refer(entry, -1)
        entry.action, entry.params = action, params
        self._refer(entry, 1)
        self._unlink(entry)
        self._link(entry, index)
        return entry

    def delete(self, match: tuple[Match, ...], priority: int = 0) -> None:
        """Remove an entry. Raises TableError if there is no such entry, or the table is immutable."""
        self._check_mutable()
        entry = self._existing(match, priority)
        self._refer(entry, -1)
        self._unlink(entry)
        del self._entries[self._identity(match, priority)]
        heappush(self._free_slots, entry.slot)

    def find(self, match: tuple[Match, ...], priority: int = 0) -> Entry | None:
        """The entry with this match and priority, if any."""
        return self._entries.get(self._identity(match, priority))

    def entries(self) -> Iterator[Entry]:
        """All entries except the default, by slot."""
        return iter(sorted(self._entries.values(), key=lambda entry: entry.slot))

    def last_hit(self, entry: Entry) -> int | None:  # noqa: ARG002 - a table in memory has hits
        """The time at which a packet last hit an entry or, if none has, at which packets could first see it, by the pipeline's
        clock in microseconds; None as long as they do not see it."""
        return None

    def copy_hit(self, entry: Entry, other: Table, of: Entry) -> None:
        """Take the time of the last hit of another table's entry, by the same clock. No packet is in flight in either."""

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        """Set what happens on a miss. Raises TableError if the action does not fit, or the program fixes the default."""
        self._checked_action(action, params, self.action_infos)
        same_action = self.default_entry is not None and self.default_entry.action == action
        if self.const_default_entry or (self.const_default_action and not same_action):
            raise ImmutableError(f"the default entry of table {self.name} is const")
        self._put_default(action, params)
        self.has_initial_default = False

    def _put_default(self, action: str, params: tuple[int, ...]) -> None:
        if self.default_entry is None:
            self.default_entry = self._new_entry((), 0, action, params, DEFAULT)
        self.default_entry.action, self.default_entry.params = action, params

    def fix_default(self, action: str, params: tuple[int, ...], const_action: bool, const_entry: bool) -> None:
        """Set the program's default entry, which `reset_default` restores. Raises TableError if the action does not fit."""
        self.set_default(action, params)
        self._initial_default, self.has_initial_default = (action, params), True
        self.const_default_action, self.const_default_entry = const_action, const_entry

    def reset_default(self) -> None:
        """Restore the program's default entry, with its counter at 0. Raises TableError if the program fixes the default."""
        if self.const_default_entry:
            raise ImmutableError(f"the default entry of table {self.name} is const")
        if self._initial_default is None:
            self.default_entry = None
        else:
            self._put_default(*self._initial_default)
        if self.default_entry is not None:
            self.default_entry.packets = self.default_entry.bytes = 0
        self.has_initial_default = True

    def _check_mutable(self) -> None:
        if self.const_entries:
            raise ImmutableError(f"the entries of table {self.name} are const")

    def _existing(self, match: tuple[Match, ...], priority: int) -> Entry:
        entry = self.find(match, priority)
        if entry is None:
            raise EntryNotFoundError(f"table {self.name} has no entry with this match and priority")
        return entry

    def _identity(self, match: tuple[Match, ...], priority: int) -> tuple[tuple[Match, ...], int]:
        """The identity of an entry; bits that a match ignores do not count."""
        fields = tuple(canonical(one, key.width) for one, key in zip(match, self.keys, strict=False))
        return (fields if len(match) == len(self.keys) else match), self._effective(priority)

    def _effective(self, priority: int) -> int:
        return priority if self.match_type in ("ternary", "range") else 0

    def _refer(self, entry: Entry, more: int) -> None:
        """Count an entry among the users of its member or group, or no more."""
        if self.profile is not None:
            self.profile.refer(_KINDS[entry.action], entry.params[0], more)

    def _checked_action(self, action: str, params: tuple[int, ...], infos: tuple[ActionInfo, ...]) -> int:
        index = checked_action(f"table {self.name}", infos, action, params)
        if self.profile is not None and infos is REFERENCES:
            self.profile.check(index, params[0])
        return index

    def _insert(self, match: tuple[Match, ...], action: str, params: tuple[int, ...], priority: int) -> Entry:
        index = self._checked_action(action, params, self._entry_actions)
        if len(match) != len(self.keys) or not self.keys:
            raise BadEntryError(f"table {self.name} has {len(self.keys)} key fields, the entry matches {len(match)}")
        for one, key in zip(match, self.keys, strict=True):
            wrong = fault(one, key)
            if wrong is not None:
                raise BadEntryError(f"table {self.name}: {wrong}")
        if self.find(match, priority) is not None:
            raise EntryExistsError(f"table {self.name} has an entry with this match and priority")
        if len(self._entries) >= self.max_size:
            raise TableFullError(f"table {self.name} is full: it has room for {self.max_size} entries")
        slot = heappop(self._free_slots) if self._free_slots else len(self._entries)
        entry = self._new_entry(match, self._effective(priority), action, params, slot)
        self._entries[self._identity(match, priority)] = entry
        self._refer(entry, 1)
        self._link(entry, index)
        return entry

    def _new_entry(self, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...], slot: int) -> Entry:
        return Entry(match, priority, action, params, slot=slot)

    # What a table in memory adds

    def _link(self, entry: Entry, action: int) -> None:
        """Packets find an entry from now on, with the action of this number."""

    def _unlink(self, entry: Entry) -> None:
        """Packets find an entry no more."""
