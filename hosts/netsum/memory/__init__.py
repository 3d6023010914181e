# SPDX-License-Identifier: MIT
"""Memory in the network: arrays on memory devices behind the switch, read and written by UDP packets (docs/memory.md).

counters = netsum.memory.open("counters", controller="http://127.0.0.1:8080")
counters.add(slice(0, 4), [1, 2, 3, 4])
print(counters[:4])
"""

from netsum.communicator import wait_all
from netsum.memory.array import MemoryArray, Swapped
from netsum.memory.client import MemoryClient, MemoryWork
from netsum.memory.descriptor import RegionDescriptor
from netsum.memory.embedding import Table, table
from netsum.memory.endpoint import MemoryStats
from netsum.memory.opening import open  # noqa: A004 - netsum.memory.open, like io.open
from netsum.memory.parameters import Parameters, PushResult, parameters

__all__ = [
    "MemoryArray",
    "MemoryClient",
    "MemoryStats",
    "MemoryWork",
    "Parameters",
    "PushResult",
    "RegionDescriptor",
    "Swapped",
    "Table",
    "open",
    "parameters",
    "table",
    "wait_all",
]
