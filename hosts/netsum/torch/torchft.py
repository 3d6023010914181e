# SPDX-License-Identifier: MIT
"""torchft's process group on netsum: training goes on while replicas leave and come back.

::

    manager = torchft.Manager(pg=ProcessGroupNetsum(), ...)

The job has a member for every process that may ever take part; each quorum of torchft is a group of those that do. A replica that
comes back begins a new epoch of the job, and the next quorum finds all of its members in that.
"""

from __future__ import annotations

import itertools
import secrets
from datetime import timedelta
from typing import Any

from torch.distributed import distributed_c10d as c10d
from torchft.process_group import ProcessGroupWrapper

from netsum.communicator import Communicator
from netsum.errors import CallTimeoutError, CommunicatorError, MismatchError, UnsupportedError
from netsum.join import join
from netsum.telemetry import CallEnd
from netsum.torch.arguments import as_torch_raises
from netsum.torch.group import Options
from netsum.torch.group_init import PATIENCE
from netsum.torch.process_group import ProcessGroup

_ENDS = (CommunicatorError, MismatchError, CallTimeoutError)
"""Errors that end a communicator."""


class ProcessGroupNetsum(ProcessGroupWrapper):  # type: ignore[misc]
    """torchft's contract: ``configure`` forms the group of a quorum, in place of the last one."""

    def __init__(self, timeout: timedelta = timedelta(seconds=60), rank: int | None = None) -> None:
        """``timeout`` bounds each call, and how long ``configure`` waits for the others. ``rank`` is this process's in the job,
        which stays the same in every quorum; by default that of the environment (NETSUM_RANK)."""
        super().__init__(timeout)
        self._member = rank
        self._job: Communicator | None = None
        self._error: Exception | None = None

    def _create_pg(self, store: Any, rank: int, world_size: int) -> ProcessGroup:
        with as_torch_raises():
            comm = self._meet(store, rank, world_size)
        self._error = None
        comm.watchers.append(self._watch)
        return ProcessGroup(comm, store, self._timeout, self.getBackendName(), exact=Options.read().exact)

    def _meet(self, store: Any, rank: int, size: int) -> Communicator:
        """The group of this quorum's members."""
        for turn in itertools.count():
            job = self._enter()
            store.set(f"{turn}/{rank}", f"{job.rank} {job.descriptor.epoch}")
            said = [store.get(f"{turn}/{each}").decode().split() for each in range(size)]
            members, epochs = [int(member) for member, _ in said], [int(epoch) for _, epoch in said]
            if len(set(epochs)) == 1:
                break
            if job.descriptor.epoch < max(epochs):  # a member has come back since
                self._leave()
        if rank == 0:
            store.set("label", secrets.token_hex(16))
        try:
            return job.group(members, store.get("label").decode(), timeout=PATIENCE)
        except CommunicatorError:
            self._leave()  # the epoch is over: the next quorum begins in a new one
            raise

    def _enter(self) -> Communicator:
        if self._job is None:
            job = join(rank=self._member, timeout=PATIENCE)
            if not job.descriptor.by_switch:
                job.close()
                raise UnsupportedError("torchft needs a job with a switch: without one, all members must be there to begin")
            self._job = job
        return self._job

    def _leave(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.close()

    def _watch(self, call: CallEnd) -> None:
        if isinstance(call.error, _ENDS):
            self._error = RuntimeError(f"the process group was aborted: {call.error}")

    def _opts_hook(self, opts: Any) -> Any:
        """torchft gives a ReduceOp where torch has options with one in them."""
        if not isinstance(opts, c10d.ReduceOp | c10d.ReduceOp.RedOpType):
            return opts
        options = c10d.AllreduceOptions()
        options.reduceOp = opts
        return options

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def abort(self, errored: bool = True) -> None:
        """End the group; calls in progress raise. Only ``configure`` makes it usable again."""
        super().abort(errored=errored)
        self._error = RuntimeError("the process group was aborted")

    def shutdown(self) -> None:
        """Leave the group and the job."""
        self.abort(errored=False)
        self._leave()

    def errored(self) -> Exception | None:
        """The error that has ended the group, so that it must be configured again; None while it is usable."""
        return self._error

    def getBackendName(self) -> str:  # noqa: N802  torchft's name
        return "torchft-netsum"
