# SPDX-License-Identifier: MIT
"""Process groups of threads in memory: torch's calls without torch's world, store or processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from tests.hosts.calls import ranks
from tests.threads import returned, together

PATIENCE = timedelta(seconds=60)


@contextmanager
def process_groups(workers: int, *, exact: bool = False, **options: Any) -> Iterator[list[Any]]:
    """A process group for each rank of a new job, shut down at the end."""
    from netsum.torch import ProcessGroup
    from torch.distributed import HashStore

    with ranks(workers, **options) as communicators:
        groups = [ProcessGroup(comm, HashStore(), PATIENCE, exact=exact) for comm in communicators]
        try:
            yield groups
        finally:
            for group in groups:
                group.shutdown()


def on_each_group(groups: list[Any], call: Callable[[Any], Any]) -> list[Any]:
    """``call(group)`` on all ranks at once."""
    return returned([partial(call, group) for group in groups])


def attempt(groups: list[Any], call: Callable[[Any], Any]) -> list[Any]:
    """``call(group)`` on all ranks at once: what each returned or raised."""
    return together([partial(call, group) for group in groups])
