# SPDX-License-Identifier: MIT
"""Action profiles: actions that entries of one or several tables refer to, and groups of them from which a hash chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from netsum_switch.errors import BadEntryError, MemberInUseError

# Actions as tables and action profiles know them.


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action: its name, the JSON's id and its parameters as (name, width in bits)."""

    name: str
    id: int
    params: tuple[tuple[str, int], ...]


def checked_action(where: str, actions: tuple[ActionInfo, ...], name: str, params: tuple[int, ...]) -> int:
    """The place of an action among those that there are; ``where`` says in the error what has them. Raises
    BadEntryError if there is none with this name, or the parameters do not fit it."""
    names = [each.name for each in actions]
    if name not in names:
        raise BadEntryError(f"{where} has no action {name}; it has {', '.join(names)}")
    index = names.index(name)
    wanted = actions[index].params
    if len(params) != len(wanted):
        raise BadEntryError(f"action {name} takes {len(wanted)} parameters, not {len(params)}")
    for value, (param, width) in zip(params, wanted, strict=True):
        if not 0 <= value < 1 << width:
            raise BadEntryError(f"parameter {param} of action {name} does not fit its {width} bits")
    return index


MEMBER, GROUP = 0, 1
"""The reference of an entry, by a handle: the numbers of the two things that it can do."""


class ActionProfile:
    """Members and groups by handle, which is the lowest number that was free, as BMv2 gives them."""

    def __init__(self, name: str, actions: tuple[ActionInfo, ...], *, with_selection: bool) -> None:
        self.name = name
        self.actions = actions
        self.with_selection = with_selection
        self._members: set[int] = set()
        self.groups: dict[int, dict[int, bool]] = {}
        self._active: dict[int, list[int]] = {}
        self._free: tuple[list[int], list[int]] = [], []  # heaps, by kind
        self._users: Counter[tuple[int, int]] = Counter()

    def add_member(self, action: str, params: tuple[int, ...]) -> int:
        """Add a member; return its handle. Raises BadEntryError if the action does not fit."""
        index = self.checked(action, params)
        handle = heappop(self._free[MEMBER]) if self._free[MEMBER] else len(self._members)
        self._set_member(handle, index, params)
        return handle

    def modify_member(self, handle: int, action: str, params: tuple[int, ...]) -> None:
        """Give a member another action. Raises BadEntryError if it does not fit."""
        self._set_member(handle, self.checked(action, params), params)

    def checked(self, action: str, params: tuple[int, ...]) -> int:
        """The number of an action of this profile. Raises BadEntryError if there is none, or the parameters do not fit it."""
        return checked_action(f"action profile {self.name}", self.actions, action, params)

    def _set_member(self, handle: int, action: int, params: tuple[int, ...]) -> None:  # noqa: ARG002 - for one in memory
        self._members.add(handle)

    def delete_member(self, handle: int) -> None:
        """Remove a member. Raises MemberInUseError if entries or groups have it."""
        if self._users[MEMBER, handle]:
            raise MemberInUseError(f"a member of {self.name} is still used")
        self._members.remove(handle)
        heappush(self._free[MEMBER], handle)

    def add_group(self) -> int:
        """Add a group without members; return its handle."""
        handle = heappop(self._free[GROUP]) if self._free[GROUP] else len(self.groups)
        self.set_group(handle, {})
        return handle

    def set_group(self, handle: int, members: Mapping[int, bool]) -> None:
        """Set a group's members, and which of them may be chosen."""
        for member in members:
            self.refer(MEMBER, member, 1)
        for member in self.groups.get(handle, ()):
            self.refer(MEMBER, member, -1)
        self.groups[handle] = dict(members)
        self._active[handle] = sorted(member for member, active in members.items() if active)

    def delete_group(self, handle: int) -> None:
        """Remove a group, not its members. Raises MemberInUseError if entries have it."""
        if self._users[GROUP, handle]:
            raise MemberInUseError(f"a group of {self.name} is still used")
        self.set_group(handle, {})
        del self.groups[handle], self._active[handle]
        heappush(self._free[GROUP], handle)

    def active(self, group: int) -> list[int]:
        """The members that may be chosen, in order of their handles."""
        return self._active[group]

    def check(self, kind: int, handle: int) -> None:
        """Check that an entry may refer to this member or group. Raises BadEntryError if there is none, or the group is
        empty."""
        if kind == GROUP and not self.with_selection:
            raise BadEntryError(f"{self.name} has no selector, so no entry takes a group")
        if handle not in (self.groups if kind == GROUP else self._members):
            raise BadEntryError(f"{self.name} has no {'group' if kind == GROUP else 'member'} {handle}")
        if kind == GROUP and not self.groups[handle]:
            raise BadEntryError(f"a group of {self.name} is empty")

    def refer(self, kind: int, handle: int, more: int) -> None:
        """Add to the number of entries and groups that refer to a member or group; ``more`` may be negative."""
        self._users[kind, handle] += more
