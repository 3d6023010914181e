# SPDX-License-Identifier: MIT
"""A communication hook for DistributedDataParallel: gradients are averaged by netsum, whatever the process group is.

::

    model = DistributedDataParallel(model)  # on gloo or nccl, for instance
    model.register_comm_hook(AllreduceState(bits=16, error_feedback=True), allreduce_hook)
"""

# No deferred annotations: DistributedDataParallel compares the hook's with the classes themselves.
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from netsum.communicator import Communicator
from netsum.compression import ErrorFeedback
from netsum.join import join
from netsum.numeric.fixed_point import widened
from netsum.report import Report
from netsum.torch.arguments import as_torch_raises
from netsum.torch.numpy_view import Lent, lend
from netsum.torch.process_group import ProcessGroup
from netsum.torch.work import Futures, Work


class AllreduceState:
    """Options of :func:`allreduce_hook`.

    Attributes:
        comm: the communicator.
        reports: the :class:`netsum.Report` of each bucket's last call, by the bucket's index.
        late: how many calls lacked some rank's contribution.
    """

    def __init__(
        self,
        comm: Communicator | None = None,
        *,
        scale: str = "agreed",
        bits: int | None = None,
        rounding: str = "nearest",
        error_feedback: bool = False,
        on_late: str = "accept",
    ) -> None:
        """``comm``: the ranks of the process group, in its order; by default that of the default group if its backend is netsum,
        otherwise the job of the environment, which :meth:`close` leaves again.

        ``scale``, ``bits``, ``rounding`` and ``late`` are those of :meth:`netsum.Communicator.allreduce`. ``error_feedback``:
        what rounding has kept out of a bucket goes into its next average of the same epoch. Raises JoinError.
        """
        self._owns = comm is None and not isinstance(distributed.group.WORLD, ProcessGroup)
        self.comm = comm if comm is not None else _default()
        self.reports: dict[int, Report] = {}
        self.late = 0
        self.futures = Futures()
        self._feedback = ErrorFeedback(self.comm, error_feedback)
        waits = self.comm.descriptor.block_exp_ms == 0
        nonfinite = "propagate" if waits or on_late == "wait" else "raise"
        self._options: dict[str, Any] = {
            "scale": scale,
            "bits": bits,
            "rounding": rounding,
            "on_late": on_late,
            "nonfinite": nonfinite,
        }

    def begin(self, index: int, lent: Lent, tensor: Tensor) -> Work:
        """Begin to average a bucket in place; ``lent`` is the array of its ``tensor``."""
        array = lent.array
        # Of another shape than last time once DDP has rebuilt its buckets.
        given, keep = self._feedback.begin(index, array)
        residual = np.empty(array.shape, widened(array[:0]).dtype) if self._feedback.on else None
        work = self.comm.allreduce_async(given, "mean", out=array, residual=residual, **self._options)

        def after(_: list[Any]) -> None:
            lent.give_back()
            self.reports[index] = work.report
            self.late += work.report.degraded > 0
            if residual is not None:
                keep(residual)

        return Work(self.futures, [work], [tensor], after)

    def close(self) -> None:
        """End the hook's thread, and leave the job if the state joined it."""
        if self._owns:
            self.comm.close()
        self.futures.close()


def _default() -> Communicator:
    world = distributed.group.WORLD
    if isinstance(world, ProcessGroup):
        return world.comm
    return join(rank=distributed.get_rank(), size=distributed.get_world_size())


def allreduce_hook(state: AllreduceState, bucket: distributed.GradBucket) -> torch.futures.Future[Tensor]:
    """The hook: averages a bucket over the ranks; a future of the averaged tensor. In a job that degrades, the average is over
    the ranks that are in it."""
    tensor: Tensor = bucket.buffer()
    with as_torch_raises():
        lent = lend(tensor, values=True)
        return state.begin(bucket.index(), lent, tensor).get_future().then(_first)


def _first(future: Any) -> Tensor:
    tensor: Tensor = future.value()[0]
    return tensor
