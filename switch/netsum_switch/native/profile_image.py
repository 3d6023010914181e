# SPDX-License-Identifier: MIT
"""An action profile whose members and groups lie in flat memory too, where compiled code finds them (`control`).

As with tables, what is written waits aside until `refresh`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from netsum_switch.action_profile import ActionInfo, ActionProfile
from netsum_switch.native.layout import ProfileWord
from netsum_switch.native.memory import Memory, Staged
from netsum_switch.native.module import ProfilePlan
from netsum_switch.native.tables import write_row

_SMALLEST = 8


_GROUP = struct.Struct("<QQ")


class NativeProfile(ActionProfile):
    """An action profile that packets read."""

    def __init__(
        self,
        plan: ProfilePlan,
        context: Memory,
        changed: Callable[[NativeProfile], None],
        name: str,
        actions: tuple[ActionInfo, ...],
        *,
        with_selection: bool,
    ) -> None:
        super().__init__(name, actions, with_selection=with_selection)
        self._plan = plan
        self._context = context
        self._changed = changed
        self._rows = Staged(_SMALLEST * plan.row)
        self._groups = Staged(_SMALLEST * _GROUP.size)
        self._lists: dict[int, Memory] = {}  # by group
        self._in_place: list[Staged | Memory] = []  # what packets see, while what follows it waits
        write_row(self._rows, 0, plan.parameters, -1)  # the choice in a group without members

    def _set_member(self, handle: int, action: int, params: tuple[int, ...]) -> None:
        super()._set_member(handle, action, params)
        start = (handle + 1) * self._plan.row
        if start >= len(self._rows.data):
            self._rows = Staged(2 * len(self._rows.data), self._rows.data)
        write_row(self._rows, start, self._plan.parameters, action, params)
        self._changed(self)

    def set_group(self, handle: int, members: Mapping[int, bool]) -> None:
        super().set_group(handle, members)
        active = self.active(handle)
        self._in_place += [self._lists[handle]] if handle in self._lists else []
        self._lists[handle] = Memory(8 * len(active))
        self._lists[handle].data[: 8 * len(active)] = struct.pack(f"<{len(active)}Q", *(each + 1 for each in active))
        start = handle * _GROUP.size
        if start >= len(self._groups.data):
            self._groups = Staged(2 * len(self._groups.data), self._groups.data)
        self._groups.write(start, _GROUP.pack(self._lists[handle].address, len(active)))
        self._changed(self)

    def refresh(self) -> None:
        """Put in place what has changed."""
        for word, space in ((ProfileWord.MEMBERS, self._rows), (ProfileWord.GROUPS, self._groups)):
            space.put()
            self._context.set_number(8 * (self._plan.word + word), space.address)
        self._in_place = [self._rows, self._groups]
