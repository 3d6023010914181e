"""Multicast groups: the ports to which the ``forward`` stage floods, and the members to which ``deliver`` sends a job's results
(and, if a sweep closed the block, the sweep's next pass)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MulticastGroup:
    """Group ``group_id``: a copy for each replica, a pair (port, instance). ``instance`` becomes the copy's
    egress_rid: the source id in a job's group, 0 in the flood group."""

    group_id: int
    replicas: frozenset[tuple[int, int]]

    @property
    def identity(self) -> tuple[str, tuple[int, ...]]:
        """What can be on a switch only once."""
        return "multicast group", (self.group_id,)

    def __str__(self) -> str:
        return f"multicast group {self.group_id}"
