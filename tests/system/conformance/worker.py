# SPDX-License-Identifier: MIT
"""One rank of torch-conformance: runs torch's tests one after the other, in one process, and notes what came of each.

torch starts new processes for every test, which then takes most of a minute. What they would run is run here instead.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import unittest
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final

BACKEND: Final = os.environ.get("NETSUM_AS") or "netsum"
GLOO: Final = "gloo:"
"""Before the names of tests that are run under the name gloo."""
TIMEOUT: Final = timedelta(seconds=120)
FEATURES: Final = ("ddp", "subgroup")
"""Of those by which torch's tests ask what a backend can."""


def suite(folder: str) -> Any:
    """torch's class of tests, told that there is a backend of this name."""
    os.environ.update(BACKEND=BACKEND, TEMP_DIR=folder)
    from torch.testing._internal.common_distributed import DistTestCases
    from torch.testing._internal.distributed import distributed_test

    for feature in FEATURES:
        DistTestCases.backend_feature[feature].add(BACKEND)

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # type: ignore[misc]
        def _barrier(self, *_: Any, **__: Any) -> None:
            distributed_test.Barrier.sync(timeout=TIMEOUT.total_seconds())

    return Suite


def outcome(run: Callable[[], object]) -> tuple[str, str]:
    """Outcome of a test, and why."""
    from torch.testing._internal.common_distributed import TEST_SKIPS

    try:
        run()
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as end:
        why = next((skip.message for skip in TEST_SKIPS.values() if skip.exit_code == end.code), None)
        return ("failed", f"exit code {end.code}") if why is None else ("skipped", why)
    except BaseException:
        return "failed", traceback.format_exc()
    return "passed", ""


def note(results: IO[str], name: str, came: str, why: str, *, shown: bool = True) -> None:
    """Write what came of a test, for the command that reads the results of all ranks."""
    results.write(json.dumps([name, came, why]) + "\n")
    if shown:
        print(f"{name}: {came}", flush=True)


def main(folder: str, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    tests = suite(folder)
    if names == ["--list"]:
        print(*(name for name in dir(tests) if name.startswith("test_")), sep="\n")
        return
    import torch
    from torch import distributed as dist
    from torch.testing._internal.common_utils import set_rng_seed
    from torch.testing._internal.distributed import distributed_test

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(str(Path(folder, "store")), size)
    with Path(folder, f"results.{rank}").open("w", buffering=1, encoding="utf-8") as results:
        for name in names:
            own = dist.PrefixStore(name, store)
            dist.init_process_group(BACKEND, store=own, rank=rank, world_size=size, timeout=TIMEOUT)
            test = tests(name)
            test.rank, test.file_name = rank, str(Path(folder, name))
            distributed_test.Barrier.barrier_id = 0
            if rank == 0:
                distributed_test.Barrier.init()
            dist.barrier()
            set_rng_seed(0)  # alike on all ranks, as in a process of its own
            came, why = outcome(getattr(test, name))
            note(results, f"{GLOO if BACKEND == 'gloo' else ''}{name}", came, why, shown=rank == 0)
            if dist.is_initialized():
                dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
