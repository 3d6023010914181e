# SPDX-License-Identifier: MIT
"""Ranks that send nothing twice, so that bytes can be counted on a busy machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from netsum.communicator import Communicator
from netsum.core import retransmit
from netsum.transports import Transport

from tests.hosts.calls import closing_all
from tests.hosts.network import MemoryNetwork


@contextmanager
def patient_ranks(
    workers: int, wrap: Callable[[Transport, int], Transport] | None = None, **options: int
) -> Iterator[list[Communicator]]:
    """Communicators of a new job that a switch combines; their timers never run out. ``wrap(transport, rank)`` is put around
    their transports."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("INITIAL_RTO", "MIN_RTO", "MAX_ESTIMATE"):
            patch.setattr(retransmit, name, 30.0)
        patch.setattr(retransmit, "MAX_RTO", 30.0)
        with closing_all(MemoryNetwork(workers, **options).communicators(wrap)) as communicators:
            yield communicators
