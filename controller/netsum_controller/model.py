"""A job as it is: what it was given, in which epoch it is, and who sits in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from netsum.wire.schema import CHUNK_BYTES


class JobState(StrEnum):
    """Where a job is in its life. A command leaves jobs ``READY``; a command that was killed left the others: the next
    one on that switch removes what is half made or half deleted, and the next member to join a job whose epoch was
    ``CHANGING`` gets a new one."""

    INSTALLING = "installing"
    READY = "ready"
    CHANGING = "changing"
    DELETING = "deleting"


@dataclass(frozen=True)
class Seat:
    """One rank's place in one epoch. ``instance`` is the random name of the process that took it."""

    rank: int
    src_id: int
    host: str
    udp_port: int
    instance: str | None = None
    joined: bool = False
    left: bool = False

    @property
    def active(self) -> bool:
        """Joined, and has not left."""
        return self.joined and not self.left


@dataclass(frozen=True)
class Epoch:
    """One life of a job: ``number`` is never used again, ``first_block_id`` lies outside every earlier range of ids."""

    number: int
    first_block_id: int
    seats: tuple[Seat, ...]


@dataclass(frozen=True)
class Job:
    """A job. ``token`` is known only to the call that created it; the state file keeps its SHA-256."""

    name: str
    switch: str
    job_id: int
    slot_base: int
    slots: int
    window: int
    chunks: int
    members: tuple[str, ...]
    epoch: Epoch
    state: JobState
    token_sha256: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    created: bool = False
    """Whether this very call made it; False when it was there already."""

    @property
    def exists(self) -> bool:
        """Whether it is a job for others to see, not one half made or half deleted."""
        return self.state in (JobState.READY, JobState.CHANGING)

    @property
    def workers(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def block_bytes(self) -> int:
        """Largest payload of a block."""
        return self.chunks * CHUNK_BYTES
