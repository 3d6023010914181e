# SPDX-License-Identifier: MIT
"""The combiner of a test module: the model of the switch, perhaps after the ranks of each host, or the members themselves. A
module that holds for all imports the fixture ``combiner``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.hosts.network import MemoryNetwork
from tests.hosts.peers import ChainNetwork, PeerNetwork
from tests.hosts.shared_hosts import HostNetwork

_NETWORKS: dict[str, type[MemoryNetwork] | type[PeerNetwork]] = {
    "switch": MemoryNetwork,
    "hosts": HostNetwork,
    "peers": PeerNetwork,
    "chain": ChainNetwork,
}
_now = ["switch"]
BY_SWITCH = ("switch", "hosts")
"""The combiners whose results a switch makes."""
FULL = [pytest.param(name, marks=pytest.mark.full) for name in ("hosts", "chain")]


@pytest.fixture(scope="module", autouse=True, params=["switch", "peers", *FULL])
def combiner(request: pytest.FixtureRequest) -> Iterator[str]:
    """The combiner of :func:`make_network` now."""
    _now.append(request.param)
    yield request.param
    _now.pop()


def make_network(workers: int, **changes: Any) -> MemoryNetwork | PeerNetwork:
    """Make a job; ``changes`` replace fields of its descriptors."""
    return _NETWORKS[_now[-1]](workers, **changes)
