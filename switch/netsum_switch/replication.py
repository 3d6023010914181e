# SPDX-License-Identifier: MIT
"""The packet replication engine: multicast groups and clone sessions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from netsum_switch.native.layout import GROUP_IDS, LENGTHS_AT, PRIORITIES_AT, SESSION_IDS, SESSIONS_BYTES, WHOLE, Context
from netsum_switch.native.memory import Memory

Replica = tuple[int, int]  # (egress port, replica id)


class ReplicationEngine:
    """The groups and sessions to which packets are copied, written to memory before the next packet."""

    def __init__(self, space: Callable[[int, int], Memory], changed: Callable[[ReplicationEngine], None]) -> None:
        self._space = space
        self._change = changed
        self._groups = space(Context.GROUPS, 8 * GROUP_IDS)
        self._sessions = space(Context.SESSIONS, SESSIONS_BYTES)
        self._replicas = {word: Memory(0) for word in (Context.GROUP_REPLICAS, Context.SESSION_REPLICAS)}
        self.multicast: dict[int, tuple[Replica, ...]] = {}
        self.clones: dict[int, tuple[Replica, ...]] = {}
        self._settings: dict[int, tuple[int, int]] = {}

    def set_group(self, group_id: int, replicas: Iterable[Replica]) -> None:
        """Define or redefine a multicast group. Copies leave in the order of `replicas`."""
        self.multicast[group_id] = tuple(replicas)
        self._change(self)

    def delete_group(self, group_id: int) -> None:
        """Drop packets to this group from now on. It need not exist."""
        self.multicast.pop(group_id, None)
        self._change(self)

    def set_clone_session(self, session_id: int, replicas: Iterable[Replica], length: int = 0, priority: int = 0) -> None:
        """Define or redefine a clone session. Clones leave with ``length`` bytes at most, 0 is no limit, and through the queue of
        a ``priority``; 0 leaves this to the clone's field list."""
        self.clones[session_id] = tuple(replicas)
        self._settings[session_id] = length or WHOLE, priority
        self._change(self)

    def delete_clone_session(self, session_id: int) -> None:
        """Make no clones of this session from now on. It need not exist."""
        self.clones.pop(session_id, None)
        self._change(self)

    def refresh(self) -> None:
        """Put in place what has changed."""
        self._write(self._groups, GROUP_IDS, Context.GROUP_REPLICAS, self.multicast)
        self._write(self._sessions, SESSION_IDS, Context.SESSION_REPLICAS, self.clones)
        for session_id in self.clones:
            if session_id < SESSION_IDS:
                length, priority = self._settings[session_id]
                self._sessions.set_number(LENGTHS_AT + 4 * session_id, length, 4)
                self._sessions.set_number(PRIORITIES_AT + session_id, priority, 1)

    def _write(self, index: Memory, ids: int, word: Context, copies: dict[int, tuple[Replica, ...]]) -> None:
        replicas: list[Replica] = []
        entries = bytearray(8 * ids)
        for number, each in copies.items():
            if number < ids:
                struct.pack_into("<II", entries, 8 * number, len(replicas), len(each))
                replicas += each
        index.data[: len(entries)] = entries
        packed = b"".join(struct.pack("<QQ", *each) for each in replicas)
        if len(packed) > self._replicas[word].size or not self._replicas[word].size:
            self._replicas[word] = self._space(word, 2 * len(packed))
        self._replicas[word].data[: len(packed)] = packed
