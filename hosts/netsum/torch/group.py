# SPDX-License-Identifier: MIT
"""Process groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import distributed

from netsum.collectives.options import ARITHMETIC
from netsum.communicator import Communicator
from netsum.numeric.fixed_point import Array
from netsum.settings import SUMS, Environment
from netsum.torch.arguments import Tensors, as_torch_raises
from netsum.torch.monitored_barrier import MonitoredBarrier
from netsum.torch.numpy_view import After
from netsum.torch.p2p import PointToPoint
from netsum.torch.work import Done, Futures, Pending, Work

# What every process group of netsum is: what torch asks about it, how it makes calls, and its end.


@dataclass(frozen=True)
class Options:
    """netsum's own options of a process group, for torch's ``pg_options``. A group of ``new_group`` without any has those of the
    default group."""

    sum: str
    """``agreed`` or ``exact``, the same on all ranks: with ``exact``, sums and means of floats are the true ones, rounded once
    (docs/hosts.md). They cost ten times the bytes."""

    def __post_init__(self) -> None:
        if self.sum not in SUMS:
            raise ValueError(f"sum is {self.sum!r}, not one of {', '.join(SUMS)}")

    @property
    def exact(self) -> bool:
        return self.sum == "exact"

    @classmethod
    def read(cls) -> Options:
        """Those of the environment: ``NETSUM_SUM``. Raises JoinError."""
        return cls(Environment.read().sum)


class RankGroup(distributed.ProcessGroup):  # type: ignore[misc]
    """A group over the ranks of a communicator."""

    def __init__(
        self,
        comm: Communicator,
        store: Any,
        timeout: timedelta,
        name: str = "",
        release: Callable[[Communicator], None] = Communicator.close,
        another: Callable[[], Communicator] | None = None,
        exact: bool = False,
        world: Sequence[int] = (),
    ) -> None:
        """``store`` is torch's for this group: in it the ranks find each other for send and receive. ``timeout`` bounds each
        call; ``release`` is called with ``comm`` once, when the group is shut down. ``another`` makes a second communicator over
        the same ranks, for calls from callbacks. ``exact``: sums and means of floats are.
        ``world``: the rank in torch's world of each rank, if they are not all of it."""
        super().__init__(comm.rank, comm.size)
        self.comm = comm
        self.reduced = 0
        """Bytes of the tensors that were reduced so far."""
        self.copied = 0
        """Bytes that were copied for that, since numpy cannot share the memory of every tensor."""
        self._exact = exact
        self._store = store
        self._timeout = timeout
        self._name, self._description = name, ""
        self._release: Callable[[Communicator], None] | None = release
        self._futures = Futures()
        self._lock = threading.Lock()
        self._another = another
        self._side: Communicator | None = None
        self._p2p = PointToPoint(comm, store, name)
        self._monitored = MonitoredBarrier(self._p2p, comm.rank, comm.size)
        self._raises = partial(as_torch_raises, world)

    # What torch asks about a group.

    def getBackendName(self) -> str:  # noqa: N802  torch's name
        return "netsum"

    name = getBackendName

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def get_group_store(self) -> Any:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    @property
    def _device_types(self) -> list[torch.device]:
        """Devices of the tensors that it takes. torch sends objects and states of models from one of them, the CPU if it can."""
        return [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]

    def _get_backend(self, _device: Any) -> RankGroup:
        """The group is its own backend, for every device."""
        return self

    # The end.

    def shutdown(self) -> None:
        """Leave the group; calls in progress raise. May be called twice."""
        release, self._release = self._release, None
        if release is None:
            return
        self._p2p.close()
        if self._side is not None:
            self._side.close()
        release(self.comm)
        self._futures.close()

    abort = shutdown

    # How calls are made.

    @contextmanager
    def _checks(self, collective: str, opts: Any, calls: int = 1) -> Iterator[None]:
        """In it, arguments are checked. What is wrong with them is raised, and the other ranks, which may make ``calls`` calls
        of the communicator now, raise AbortedError instead of waiting for this one."""
        try:
            yield
        except Exception as error:
            for _ in range(calls):
                self._lane().give_up(collective, error, timeout=self._seconds(opts))
            raise

    def _call(self, method: str, opts: Any, *arguments: Any, many: Tensors = (), **options: Any) -> Pending:
        """Begin a call of the communicator, or make it if torch waits at once; ``many`` are the tensors of all calls that
        belong together, which are in progress at once."""
        options["timeout"] = self._seconds(opts)
        comm = self._lane()
        if getattr(opts, "asyncOp", True) or len(many) > 1:
            pending: Pending = getattr(comm, f"{method}_async")(*arguments, **options)
            return pending
        return Done(getattr(comm, method)(*arguments, **options))

    def _seconds(self, opts: Any) -> float:
        """The call's own timeout; the group's if it has none."""
        own: float = opts.timeout.total_seconds()
        return own if own > 0 else self._timeout.total_seconds()

    def _lane(self) -> Communicator:
        """The communicator for calls from here. Callbacks on futures have one of their own: which of their calls falls between
        which calls of the caller's thread differs from rank to rank."""
        if self._another is None or not self._futures.here:
            return self.comm
        with self._lock:
            if self._side is None:
                self._side = self._another()
            return self._side

    def _work(self, calls: list[Pending], tensors: Tensors, after: After) -> Work:
        return Work(self._futures, calls, list(tensors), after, self._raises)

    def _arithmetic(self, op: str) -> dict[str, Any]:
        """The options of a reduction. A NaN or an infinity is passed on, as GradScaler expects; a job that degrades cannot do
        that."""
        nonfinite = "propagate" if self.comm.descriptor.block_exp_ms == 0 else "raise"
        return {"nonfinite": nonfinite, "exact": True} if self._exact and op in ARITHMETIC else {"nonfinite": nonfinite}

    def _table(self, row: list[int], opts: Any) -> Array:
        """Every rank's row of numbers, such as its sizes: what netsum wants to know and torch does not say."""
        table = np.empty((self.size(), len(row)), np.int64)
        return self._lane().all_gather(np.array([row], np.int64), table, timeout=self._seconds(opts))
