# SPDX-License-Identifier: MIT
"""PyTorch on netsum: the backend ``netsum`` of ``torch.distributed``, which needs no import, and helpers for training loops.

``torch.distributed.init_process_group("netsum")`` joins the job that the environment names (:mod:`netsum.settings`).
"""

from netsum.torch.ddp_comm_hook import AllreduceState, allreduce_hook
from netsum.torch.gradients import average_gradients
from netsum.torch.group import Options
from netsum.torch.memory import MemoryEmbedding, MemoryOptimizer, broadcast_parameters
from netsum.torch.monitored_barrier import monitored_barrier
from netsum.torch.process_group import ProcessGroup

__all__ = [
    "AllreduceState",
    "MemoryEmbedding",
    "MemoryOptimizer",
    "Options",
    "ProcessGroup",
    "allreduce_hook",
    "average_gradients",
    "broadcast_parameters",
    "monitored_barrier",
]
