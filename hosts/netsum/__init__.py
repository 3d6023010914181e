"""netsum: gradient sums computed inside the network.

    comm = netsum.join("resnet", rank=0)
    y = comm.allreduce(x, op="mean")

Importing this package needs numpy and the standard library.
"""

from netsum.communicator import Communicator, wait_all
from netsum.descriptor import Descriptor
from netsum.engine import Work
from netsum.errors import (
    Aborted,
    CallError,
    Closed,
    CommunicatorError,
    Desynchronized,
    DoesNotFit,
    JoinError,
    Mismatch,
    NetsumError,
    NoSuchMember,
    NotFinite,
    NotReady,
    Refused,
    Timeout,
    Unauthorized,
    Unsupported,
)
from netsum.join import join
from netsum.window import Stats

__all__ = [
    "Aborted",
    "CallError",
    "Closed",
    "Communicator",
    "CommunicatorError",
    "Descriptor",
    "Desynchronized",
    "DoesNotFit",
    "JoinError",
    "Mismatch",
    "NetsumError",
    "NoSuchMember",
    "NotFinite",
    "NotReady",
    "Refused",
    "Stats",
    "Timeout",
    "Unauthorized",
    "Unsupported",
    "Work",
    "join",
    "wait_all",
]
