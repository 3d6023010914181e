# SPDX-License-Identifier: MIT
"""One rank of torch's tests of pipelines over processes, which torch's wheel lacks: they are read from a clone of PyTorch.

``pipelining_worker CLONE FOLDER [NAME]...`` runs them one after the other. They are written for GPUs: their device becomes
the CPU, whose backend torch calls gloo, and what skips them without GPUs does nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.system.conformance.worker import TIMEOUT, note, outcome

PREFIX: Final = "pipelining:"
RANKS: Final = 2
"""The ranks for which their schedules are written."""
TESTS: Final = Path("test", "distributed", "pipelining")
"""In the clone."""
MODULES: Final = ("test_schedule_multiproc", "test_stage")


def suites(clone: str) -> Iterator[Any]:
    """torch's classes of tests that take several processes, on the CPU."""
    import torch
    from torch.testing._internal import common_distributed, common_utils

    def always(*_: object) -> Callable[[Any], Any]:
        return lambda test: test

    base = common_distributed.MultiProcContinuousTest
    common_distributed.skip_but_pass_in_sandcastle_if = common_utils.skip_but_pass_in_sandcastle_if = always
    sys.path.insert(0, str(Path(clone, TESTS)))
    for module in MODULES:
        for tests in list(vars(importlib.import_module(module)).values()):
            if isinstance(tests, type) and issubclass(tests, base) and tests.__module__ == module:
                yield type(tests.__name__, (tests,), {"device": torch.device("cpu"), "world_size": RANKS})


def main(clone: str, folder: str, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    import torch
    from torch import distributed as dist

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    store = dist.FileStore(str(Path(folder, "store")), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=TIMEOUT)
    with Path(folder, f"results.{rank}").open("w", buffering=1, encoding="utf-8") as results:
        for tests in suites(clone):
            tests.rank = rank
            for test in sorted(each for each in dir(tests) if each.startswith("test_")):
                name = f"{PREFIX}{tests.__name__}.{test}"
                if not names or name in names:
                    note(results, name, *outcome(partial(tests._run_test_given_id, test)), shown=rank == 0)
                    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
