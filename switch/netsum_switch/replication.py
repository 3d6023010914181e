"""The packet replication engine: multicast groups and clone sessions."""

from __future__ import annotations

from collections.abc import Iterable

Replica = tuple[int, int]  # (egress port, replica id)


class ReplicationEngine:
    """Whom a packet is copied to. The data plane reads `multicast` and `clones`, which are changed in place."""

    def __init__(self) -> None:
        self.multicast: dict[int, tuple[Replica, ...]] = {}
        self.clones: dict[int, tuple[Replica, ...]] = {}

    def set_group(self, group_id: int, replicas: Iterable[Replica]) -> None:
        """Define a multicast group, or define it anew. Copies leave in the order of `replicas`."""
        self.multicast[group_id] = tuple(replicas)

    def delete_group(self, group_id: int) -> None:
        """Packets to this group are dropped from now on. No error if there is none."""
        self.multicast.pop(group_id, None)

    def groups(self) -> dict[int, tuple[Replica, ...]]:
        """A copy of the groups, by id."""
        return dict(self.multicast)

    def set_clone_session(self, session_id: int, replicas: Iterable[Replica]) -> None:
        """Define a clone session, or define it anew. Clones are whole: simple_switch cannot truncate them either."""
        self.clones[session_id] = tuple(replicas)

    def delete_clone_session(self, session_id: int) -> None:
        """Clones of this session are not made from now on. No error if there is none."""
        self.clones.pop(session_id, None)

    def clone_sessions(self) -> dict[int, tuple[Replica, ...]]:
        """A copy of the clone sessions, by id."""
        return dict(self.clones)
