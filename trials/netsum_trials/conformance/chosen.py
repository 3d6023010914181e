"""Which of torch's tests are for netsum, and which of these cannot be."""

from __future__ import annotations

import re
from typing import Final

OTHERS: Final = re.compile("cuda|nccl|gpu|gloo|monitored|profil")
"""In the names of tests of other backends, of GPUs, and of the profiler's events, which backends in C++ report."""

UNSUPPORTED: Final = {
    "test_SyncBatchNorm_process_group": "needs torchvision",
    "test_accumulate_gradients_no_sync": "makes its model only for backends that are called gloo, nccl or mpi",
    "test_accumulate_gradients_no_sync_allreduce_hook": "the same",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook": "the same",
    "test_accumulate_gradients_no_sync_grad_is_view": "the same",
    "test_barrier_timeout_full_group": "tests the words of gloo and nccl",
    "test_barrier_timeout_global": "the same; begins anew at an address that torch's launcher sets",
    "test_barrier_timeout_group": "the same",
    "test_batch_isend_irecv_mixed_backend_err": "needs NCCL",
    "test_batch_isend_irecv_op_err": "needs a GPU",
    "test_sparse_all_reduce_sum": "torch runs it on gloo alone; tests/torch has its like",
}
"""Why a test that is for netsum is not run."""


def chosen(names: list[str]) -> list[str]:
    """Those of torch's tests that are run."""
    return [name for name in names if not OTHERS.search(name) and name not in UNSUPPORTED]
