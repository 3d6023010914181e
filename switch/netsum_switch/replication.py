"""The packet replication engine: multicast groups and clone sessions."""

from __future__ import annotations

from collections.abc import Iterable

Replica = tuple[int, int]  # (egress port, replica id)


class ReplicationEngine:
    """The groups and sessions to which packets are copied. The data plane reads `multicast` and `clones`, which are changed in
    place."""

    def __init__(self) -> None:
        self.multicast: dict[int, tuple[Replica, ...]] = {}
        self.clones: dict[int, tuple[Replica, ...]] = {}

    def set_group(self, group_id: int, replicas: Iterable[Replica]) -> None:
        """Define or redefine a multicast group. Copies leave in the order of `replicas`."""
        self.multicast[group_id] = tuple(replicas)
        self.changed()

    def delete_group(self, group_id: int) -> None:
        """Drop packets to this group from now on. It need not exist."""
        self.multicast.pop(group_id, None)
        self.changed()

    def set_clone_session(self, session_id: int, replicas: Iterable[Replica]) -> None:
        """Define or redefine a clone session. Clones are whole: simple_switch cannot truncate them either."""
        self.clones[session_id] = tuple(replicas)
        self.changed()

    def delete_clone_session(self, session_id: int) -> None:
        """Make no clones of this session from now on. It need not exist."""
        self.clones.pop(session_id, None)
        self.changed()

    def changed(self) -> None:
        """Called after every change; for an engine that keeps copies of its own."""
