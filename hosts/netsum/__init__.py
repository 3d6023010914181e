# SPDX-License-Identifier: MIT
"""netsum: gradient sums computed inside the network.

    comm = netsum.join("resnet", rank=0)
    y = comm.allreduce(x, op="mean")

Importing this package needs numpy and the standard library.
"""

from netsum.communicator import Communicator, wait_all
from netsum.core.progress import Work
from netsum.descriptor import Descriptor
from netsum.errors import (
    AbortedError,
    CallError,
    CallTimeoutError,
    ClosedError,
    CommunicatorError,
    DegradedError,
    DesynchronizedError,
    EvictedError,
    ForbiddenError,
    InstructionRejectedError,
    InvalidTimeoutError,
    JoinError,
    LaneTypeError,
    MemoryLostError,
    MismatchError,
    NetsumError,
    NotFiniteError,
    NotReadyError,
    OutOfBoundsError,
    RankLeftError,
    RejectedError,
    ResultLostError,
    ServerCertificateError,
    SumOverflowError,
    UnauthorizedError,
    UnknownRankError,
    UnknownRegionError,
    UnsupportedError,
)
from netsum.join import join
from netsum.report import Report
from netsum.stats import Stats

__version__ = "0.1.0"  # the one place; pyproject.toml reads it

__all__ = [
    "AbortedError",
    "CallError",
    "CallTimeoutError",
    "ClosedError",
    "Communicator",
    "CommunicatorError",
    "DegradedError",
    "Descriptor",
    "DesynchronizedError",
    "EvictedError",
    "ForbiddenError",
    "InstructionRejectedError",
    "InvalidTimeoutError",
    "JoinError",
    "LaneTypeError",
    "MemoryLostError",
    "MismatchError",
    "NetsumError",
    "NotFiniteError",
    "NotReadyError",
    "OutOfBoundsError",
    "RankLeftError",
    "RejectedError",
    "Report",
    "ResultLostError",
    "ServerCertificateError",
    "Stats",
    "SumOverflowError",
    "UnauthorizedError",
    "UnknownRankError",
    "UnknownRegionError",
    "UnsupportedError",
    "Work",
    "join",
    "wait_all",
]
