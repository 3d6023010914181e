# SPDX-License-Identifier: MIT
"""Process groups as they are opened: the job of the environment is joined once, and every other group is a group of it."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, NamedTuple

from torch import distributed

from netsum.communicator import Communicator
from netsum.errors import JoinError
from netsum.join import join
from netsum.logs import NAME
from netsum.torch.arguments import as_torch_raises
from netsum.torch.backend import replaced
from netsum.torch.group import Options
from netsum.torch.process_group import ProcessGroup

PATIENCE: Final = 60.0
"""Seconds that joining may take. The timeout that torch gives is for calls: half an hour, or a moment."""
STORE_PATIENCE: Final = 5.0
"""Seconds for which a rank that leaves waits for the end of the store that another rank's process serves."""
POLL: Final = 0.005
"""Seconds between polls of the store while a group is opened."""
STORE_POLL: Final = 2.5
"""Seconds between polls of the store while a rank waits for its end."""


@dataclass
class JoinedJob:
    """The job that this process has joined, and the process groups that use it."""

    comm: Communicator
    members: Sequence[int]
    """The rank in the job of each of torch's ranks."""
    options: Options
    """Those of the group for which the job was joined."""
    after: Callable[[], None] | None = None
    """Called once the job is left."""
    whole: bool = False
    """True if a process group of all ranks has ``comm`` itself."""
    users: int = 0


_jobs: list[JoinedJob] = []  # none, or the one


_lock: Final = threading.Lock()


def open_group(options: Any, own: Any = None) -> ProcessGroup:
    """The process group that torch asks for; ``own`` are netsum's own options."""
    if own is not None and not isinstance(own, Options):
        raise TypeError(f"pg_options is a {type(own).__name__}, and netsum takes a netsum.torch.Options")
    ranks = list(options.global_ranks_in_group)
    first = not ranks  # the default group
    rank, size = (options.group_rank, options.group_size) if first else (distributed.get_rank(), _world_size())
    with as_torch_raises(), _lock:
        met = _meet(options.store, options.group_rank, options.group_size)
        after = partial(_await_end, options.store, met.name) if first and rank else None
        job = _jobs[0] if _jobs else _join(rank, met.members if first else range(size), own or Options.read(), after)
        try:
            members = [job.members[each] for each in ranks or range(size)]
            comm = _communicator(job, members, met.name)
            job.users += 1

            def another() -> Communicator:
                return job.comm.group(members, f"{met.name}/callbacks")

            exact = (own or job.options).exact
            store = distributed.PrefixStore(met.name, options.store)
            return ProcessGroup(comm, store, options.timeout, str(options.group_id), _release, another, exact, ranks)
        except BaseException:
            _close_if_unused(job)
            raise


def _world_size() -> int:
    size: int = distributed.get_world_size()
    return size


def _join(rank: int, members: Sequence[int], own: Options, after: Callable[[], None] | None) -> JoinedJob:
    comm = join(rank=members[rank], size=len(members), timeout=PATIENCE)
    _log_replaced()
    _jobs.append(JoinedJob(comm, members, own, after))
    return _jobs[0]


@cache
def _log_replaced() -> None:
    """Write to the log, once, which backends netsum replaces."""
    if names := replaced():
        logging.getLogger(NAME).info("NETSUM_AS: process groups of %s run on netsum", " and ".join(names))


class Rendezvous(NamedTuple):
    """The ranks of a process group, all of which open it now."""

    name: str
    """A name that no other rendezvous has had."""
    members: Sequence[int]
    """By torch's rank, the rank in the job: NETSUM_RANK where each process has its own, else torch's. A launcher may number the
    processes as it likes (Ray does), but a switch knows a member by its host."""


_CURRENT: Final = "netsum/current"  # the name of the last rendezvous in this store


def _meet(store: Any, rank: int, size: int) -> Rendezvous:
    """Wait in torch's store until every rank opens this process group. Raises JoinError, at once when the store ends.

    The store may have the keys of an earlier process group with this name: torchrun's outlives the processes that it restarts,
    and a rank may be fast and find the store of the group before. So each rank has a fresh token, rank 0 replies to the token
    with the name of this rendezvous, and waits for each rank to confirm it, while a later token may replace a rank's.
    """
    token = secrets.token_hex(8)
    try:
        if rank:
            store.set(f"netsum/token/{rank}", token)
            name = store.get(f"netsum/reply/{token}").decode()
            store.set(f"{name}/rank/{rank}", os.environ.get("NETSUM_RANK") or str(rank))
        else:
            name = token
            store.set(_CURRENT, name)
            _await_ranks(store, range(1, size), name)
            said = [
                os.environ.get("NETSUM_RANK") or "0",
                *(store.get(f"{name}/rank/{other}").decode() for other in range(1, size)),
            ]
            own = [int(each) for each in said if each.isdigit()]
            members = own if sorted(own) == list(range(size)) else range(size)
            store.set(f"{name}/members", ",".join(map(str, members)))
        return Rendezvous(name, [int(each) for each in store.get(f"{name}/members").decode().split(",")])
    except RuntimeError as error:
        raise JoinError(
            f"the ranks have not met in torch's store ({error}): one of them has not opened this process group, or rank 0 has "
            "ended; where another group follows, call barrier() before destroy_process_group()"
        ) from None


def _await_ranks(store: Any, ranks: Sequence[int], name: str) -> None:
    """Reply to the last token of each rank until it confirms."""
    replied: dict[int, str] = {}
    while waited := [rank for rank in ranks if rank not in replied or not store.check([f"{name}/rank/{rank}"])]:
        for rank in waited:
            token = store.get(f"netsum/token/{rank}").decode()
            if token != replied.get(rank):
                store.set(f"netsum/reply/{token}", name)
                replied[rank] = token
        time.sleep(POLL)


def _await_end(store: Any, name: str) -> None:
    """Wait until rank 0's process no longer serves this store, or uses it for its next process group, so that this rank's next
    one does not find the store of the one before."""
    inner = store
    while isinstance(inner, distributed.PrefixStore):
        inner = inner.underlying_store
    launchers = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if launchers or not isinstance(inner, distributed.TCPStore) or sys.is_finalizing():
        return
    deadline = time.monotonic() + STORE_PATIENCE
    with contextlib.suppress(OSError, RuntimeError), socket.create_connection((inner.host, inner.port), STORE_PATIENCE) as server:
        # torch prints a warning, with a stack, if the server ends while a rank polls the store. So a connection shows the end.
        server.settimeout(STORE_POLL)
        while time.monotonic() < deadline:
            try:
                server.recv(1)
                return
            except TimeoutError:
                if store.get(_CURRENT).decode() != name:
                    return


def _communicator(job: JoinedJob, ranks: Sequence[int], label: str) -> Communicator:
    if not job.whole and list(ranks) == list(range(job.comm.size)):
        job.whole = True
        return job.comm
    return job.comm.group(ranks, label, timeout=PATIENCE)


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
        if job.after is not None:
            job.after()
