"""Process groups as they are opened: the job of the environment is joined once, and every other group is a group of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torch import distributed

from netsum.communicator import Communicator
from netsum.errors import JoinError
from netsum.join import join
from netsum.torch.arguments import as_torch_raises
from netsum.torch.process_group import ProcessGroup

PATIENCE: Final = 60.0
"""Seconds that joining may take. The timeout that torch gives is for calls: half an hour, or a moment."""
STORE_PATIENCE: Final = 5.0
"""Seconds for which a rank that leaves waits for the end of the store that another rank's process serves."""


@dataclass
class JoinedJob:
    """The job that this process has joined, and the process groups that use it."""

    comm: Communicator
    members: Sequence[int]
    """The rank in the job of each of torch's ranks."""
    generation: str
    """A name that no earlier default group has had (:func:`_generation`)."""
    store: Any
    """torch's."""
    whole: bool = False
    """True if a process group of all ranks has ``comm`` itself."""
    users: int = 0
    opened: Counter[str] = field(default_factory=Counter)
    stores: Counter[str] = field(default_factory=Counter)

    def label(self, name: str) -> str:
        """The label of a new group: torch may give a name again once the group is gone."""
        self.opened[name] += 1
        return hashlib.blake2b(f"{name}/{self.opened[name]}".encode(), digest_size=16).hexdigest()


_jobs: list[JoinedJob] = []  # none, or the one


_lock: Final = threading.Lock()


def open_group(options: Any, own: Any = None) -> ProcessGroup:
    """The process group that torch asks for; ``own`` are netsum's own options, of which there are none."""
    if own is not None:
        raise TypeError(f"pg_options is a {type(own).__name__}, and netsum takes none")
    ranks = list(options.global_ranks_in_group)
    first = not ranks  # the default group
    rank, size = (options.group_rank, options.group_size) if first else (distributed.get_rank(), _world_size())
    with as_torch_raises(), _lock:
        job = _jobs[0] if _jobs else _join(rank, size, options.store, first, PATIENCE)
        try:
            name, members = str(options.group_id), [job.members[each] for each in ranks or range(size)]
            comm = _communicator(job, members, name, PATIENCE)
            job.users += 1
            job.stores[name] += 1
            store = distributed.PrefixStore(f"{job.generation}/{job.stores[name]}", options.store)

            def another() -> Communicator:
                return job.comm.group(members, job.label(f"{name}/callbacks"))

            return ProcessGroup(comm, store, options.timeout, name, _release, another)
        except BaseException:
            _close_if_unused(job)
            raise


def _world_size() -> int:
    size: int = distributed.get_world_size()
    return size


def _join(rank: int, size: int, store: Any, first: bool, timeout: float) -> JoinedJob:
    generation = _generation(store, rank, timeout) if first else ""
    members = _members(distributed.PrefixStore(generation, store), rank, size) if first else range(size)
    comm = join(rank=members[rank], timeout=timeout)
    if comm.size != size:
        comm.close()
        raise JoinError(
            f"torch's world has {size} ranks (WORLD_SIZE), job {comm.descriptor.job!r} has {comm.size}: "
            "start as many processes as the job has members"
        )
    _jobs.append(JoinedJob(comm, members, generation, store))
    return _jobs[0]


_KEY: Final = "netsum"
_seen: Final[list[bytes]] = [b""]  # the generation before


def _generation(store: Any, rank: int, timeout: float) -> str:
    """A name that rank 0 gives this default group in the store. A rank that is fast may still find the store of the group
    before, which ends with rank 0's part in that group, or keys of it. Raises JoinError, at once when that store ends."""
    deadline = time.monotonic() + timeout
    if rank == 0:
        store.set(_KEY, secrets.token_hex(8))
    try:
        while (found := bytes(store.get(_KEY))) == _seen[0] and time.monotonic() < deadline:
            time.sleep(0.005)
    except RuntimeError as error:
        raise JoinError(f"torch's store, where the ranks meet, does not answer ({error}){_AGAIN if _seen[0] else ''}") from None
    if found == _seen[0]:
        raise JoinError(f"rank 0 has not opened its process group within {timeout:g} s")
    _seen[0] = found
    return found.decode()


_AGAIN: Final = "; if it was that of an earlier process group, call barrier() before destroy_process_group()"


def _await_end(store: Any, generation: str) -> None:
    """Wait until rank 0's process no longer serves this store, or uses it for its next process group, so that this rank's next
    one does not find the store of the generation before."""
    inner = store
    while isinstance(inner, distributed.PrefixStore):
        inner = inner.underlying_store
    if not isinstance(inner, distributed.TCPStore) or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    deadline = time.monotonic() + STORE_PATIENCE
    with contextlib.suppress(RuntimeError):
        while bytes(store.get(_KEY)).decode() == generation and time.monotonic() < deadline:
            time.sleep(0.005)


def _members(store: Any, rank: int, size: int) -> list[int]:
    """By torch's rank, the rank in the job: NETSUM_RANK where each process has its own, else torch's. A launcher may number the
    processes as it likes (Ray does), but a switch knows a member by its host."""
    store.set(f"member/{rank}", os.environ.get("NETSUM_RANK") or str(rank))
    said = [store.get(f"member/{each}").decode() for each in range(size)]
    own = [int(each) for each in said if each.isdigit()]
    return own if sorted(own) == list(range(size)) else list(range(size))


def _communicator(job: JoinedJob, ranks: Sequence[int], name: str, timeout: float) -> Communicator:
    if not job.whole and list(ranks) == list(range(job.comm.size)):
        job.whole = True
        return job.comm
    return job.comm.group(ranks, job.label(name), timeout=timeout)


def _release(comm: Communicator) -> None:
    """A process group is done with its communicator; the job is left with the last."""
    with _lock:
        for job in list(_jobs):
            if comm is not job.comm:
                comm.close()
            job.users -= 1
            _close_if_unused(job)


def _close_if_unused(job: JoinedJob) -> None:
    if job.users <= 0:
        _jobs.clear()
        job.comm.close()
        if job.generation and job.comm.rank != job.members[0]:
            _await_end(job.store, job.generation)
