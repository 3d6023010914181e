"""netsum: gradient sums computed inside the network.

    comm = netsum.join("resnet", rank=0)
    y = comm.allreduce(x, op="mean")

Importing this package needs numpy and the standard library.
"""

from netsum.communicator import Communicator, wait_all
from netsum.descriptor import Descriptor
from netsum.errors import (
    Aborted,
    BadTimeout,
    Behind,
    CallError,
    Closed,
    CommunicatorError,
    Degraded,
    Desynchronized,
    DoesNotFit,
    Evicted,
    Forbidden,
    InstructionRefused,
    JoinError,
    MemoryLost,
    Mismatch,
    NetsumError,
    NoRegion,
    NoSuchMember,
    NotFinite,
    NotReady,
    OutOfBounds,
    Refused,
    Timeout,
    Unauthorized,
    Unsupported,
    WrongType,
)
from netsum.join import join
from netsum.report import Report
from netsum.stats import Stats
from netsum.work import Work

__version__ = "0.1.0"

__all__ = [
    "Aborted",
    "BadTimeout",
    "Behind",
    "CallError",
    "Closed",
    "Communicator",
    "CommunicatorError",
    "Degraded",
    "Descriptor",
    "Desynchronized",
    "DoesNotFit",
    "Evicted",
    "Forbidden",
    "InstructionRefused",
    "JoinError",
    "MemoryLost",
    "Mismatch",
    "NetsumError",
    "NoRegion",
    "NoSuchMember",
    "NotFinite",
    "NotReady",
    "OutOfBounds",
    "Refused",
    "Report",
    "Stats",
    "Timeout",
    "Unauthorized",
    "Unsupported",
    "Work",
    "WrongType",
    "join",
    "wait_all",
]
