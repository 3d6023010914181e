# SPDX-License-Identifier: MIT
"""Everything that netsum raises.

::

    NetsumError
    ├── InvalidTimeoutError               a timeout that is not a number of seconds (a ValueError; a JoinError and a CallError)
    ├── JoinError                         the job could not be joined
    │   ├── UnauthorizedError             wrong token
    │   ├── UnknownRankError              no job of that name, or no such rank in it
    │   └── NotReadyError                 the controller or the switch did not answer before the deadline
    │       └── ServerCertificateError    another server answers at the controller's address; raised at once
    ├── CallError                         one call failed
    │   ├── UnsupportedError              a dtype, operation or option that the call does not take (also a TypeError)
    │   ├── NotFiniteError                this rank's input has a NaN or an infinity (also a ValueError); names rank and index
    │   ├── AbortedError                  another rank gave the call up (it raised NotFiniteError, for example)
    │   ├── SumOverflowError              the exact sum does not fit the dtype (also an OverflowError); raised on every rank
    │   ├── DegradedError                 results are partial, and the caller asked for an exception (on_late="raise")
    │   ├── ResultLostError               results were gone before this rank asked for them; `resync()` brings it back
    │   ├── CallTimeoutError              no result in time (also a TimeoutError); names the block and the missing ranks
    │   │   └── RankLeftError             no result ever: a rank that has left is waited for
    │   ├── MismatchError                 the ranks made different calls; raised on every rank, ends the communicator
    │   └── InstructionRejectedError      memory in the network rejected an instruction; names region, address and reason
    │       ├── UnknownRegionError        nothing is at that address (also a LookupError)
    │       ├── ForbiddenError            the key is not the region's, or is for reading only (also a PermissionError)
    │       ├── OutOfBoundsError          the instruction leaves the region (also an IndexError)
    │       ├── LaneTypeError             the region, or the instruction, takes no such lanes (also a TypeError)
    │       └── MemoryLostError           the devices that had the memory are gone, and there was no replica
    └── CommunicatorError                 the communicator has ended
        ├── RejectedError                 the switch refused a contribution for good; names the reason
        ├── DesynchronizedError           a new epoch of the job began (a rank joined again), or this rank was so late that it
        │                                 cannot know what calls the others made: `resync()`, or join again
        ├── EvictedError                  the controller took this rank out of the job
        └── ClosedError                   used after ``close()``, after an error that ended it, or in a forked process

``NotFiniteError``, ``AbortedError``, ``SumOverflowError``, ``UnsupportedError``, ``DegradedError`` and ``ResultLostError`` leave
the communicator usable: the call is over on every rank. All others end it, and so does Ctrl-C in a call: every call in flight
raises, later ones raise ``ClosedError``; close it and join again, or :meth:`netsum.Communicator.resync`. ``CommunicatorError``
itself means that the link failed, or that another call of this rank failed half-way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from netsum.text import counted

if TYPE_CHECKING:
    from netsum.report import Report


def outcome_of(error: BaseException) -> str:
    """Return the name of an error's class as metrics have it: ``call_timeout`` for :class:`CallTimeoutError`."""
    return re.sub("(?<!^)(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).lower()


class NetsumError(Exception):
    exit_code = 1


class JoinError(NetsumError):
    """The job could not be joined."""


class UnauthorizedError(JoinError):
    """The controller does not accept the token."""


class UnknownRankError(JoinError):
    """No job of that name, or the job has no such rank."""


class NotReadyError(JoinError):
    """The controller or the switch did not answer, or did not accept the member, before the deadline.

    Attributes:
        retry: seconds after which the controller wants to be asked again; 0 if it has not said.
        next_epoch: the epoch that is about to resume the member's, once every member has reported; None if there is none.
    """

    retry: float = 0.0
    next_epoch: int | None = None


class ServerCertificateError(NotReadyError):
    """The server at the controller's address does not have the certificate whose digest the join line names. Nothing was sent to
    it. Joining raises this at once; a communicator that was joined goes on without the controller."""


class CallError(NetsumError):
    """One call failed."""


class InvalidTimeoutError(JoinError, CallError, ValueError):
    """A timeout that is not a number of seconds. In a call, the other ranks raise AbortedError."""


class UnsupportedError(CallError, TypeError):
    """The call does not take this dtype, operation or option. The other ranks raise AbortedError, if their own calls are
    valid."""


class NotFiniteError(CallError, ValueError):
    """This rank's input has a NaN or an infinity.

    Attributes:
        rank: the rank that raises.
        index: the index of the first such value in the input.
    """

    def __init__(self, rank: int, index: tuple[int, ...], value: float, what: str = "") -> None:
        self.rank = rank
        self.index = index
        self.value = value
        super().__init__(
            f"rank {rank}: element {list(index)} is {value}{what}; a sum needs finite numbers "
            "(the other ranks raise AbortedError)"
        )


class AbortedError(CallError):
    """Another rank gave the call up, or was evicted before it had sent its part. Every rank has finished the call and may make
    the next one."""


class SumOverflowError(CallError, OverflowError):
    """The exact result does not fit the dtype. Every rank raises this; nothing ever wraps around."""


class DegradedError(CallError):
    """Some of the call's results are partial because ranks were late.

    Attributes:
        report: the call's :class:`netsum.Report`.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(
            f"{report.degraded} of {report.blocks} blocks lack a late rank's contribution "
            f"(each has at least {counted(report.min_worker_cnt or 0, 'rank')})"
        )


class ResultLostError(CallError):
    """This rank was so late that it can no longer get results that the others have. It diverges from them until
    :meth:`netsum.Communicator.resync`.

    Attributes:
        report: the call's :class:`netsum.Report`; its ``lost`` counts the blocks.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(
            f"{report.lost} of {report.blocks} blocks were finished and recycled before this rank came: "
            "it has missed results that the others hold; resync()"
        )


class CallTimeoutError(CallError, TimeoutError):
    """No result in time.

    Attributes:
        block_id: the first block whose result is missing.
        missing: ranks known to hold it up: the switch's record lacks them, or they answer no rank. Empty if that is not known,
            or if results were still arriving.
    """

    def __init__(self, message: str, block_id: int | None = None, missing: Sequence[int] = ()) -> None:
        self.block_id = block_id
        self.missing = tuple(missing)
        super().__init__(message)

    def add(self, reason: str) -> None:
        """Append to the message, unless the reason is empty."""
        if reason:
            self.args = (f"{self.args[0]}; {reason}",)


class RankLeftError(CallTimeoutError):
    """The call can never end: it waits for ranks (``missing``) that have left the job, because they closed their communicators or
    their programs ended. Raised as soon as this rank knows."""


class MismatchError(CallError):
    """The ranks made different calls (operation, dtype, shape or options). Ends the communicator on every rank."""


class InstructionRejectedError(CallError):
    """Memory in the network refused an instruction, which it has not done.

    Attributes:
        region: the region's name.
        address: the virtual address.
        status: the reason, by its name on the wire.
    """

    meaning = ""

    def __init__(self, region: str, address: int, status: str, what: str) -> None:
        self.region = region
        self.address = address
        self.status = status
        reason = self.meaning or status.lower().replace("_", " ")
        super().__init__(f"region {region!r}: {what} at {address:#x} was refused: {reason} ({status})")


class UnknownRegionError(InstructionRejectedError, LookupError):
    """No region has that address: it was deleted, or the controller has not told the switch yet."""

    meaning = "no region has that address; was it deleted?"


class ForbiddenError(InstructionRejectedError, PermissionError):
    """The key is not the region's, or is for reading only."""

    meaning = "the key does not allow it; open the region for writing, or with its own key"


class OutOfBoundsError(InstructionRejectedError, IndexError):
    """The instruction leaves the region."""

    meaning = "it leaves the region"


class LaneTypeError(InstructionRejectedError, TypeError):
    """The region, or the instruction, takes no lanes of that type."""

    meaning = "the region takes no such instruction with lanes of that type"


class MemoryLostError(InstructionRejectedError):
    """The devices that had the memory are gone, and there was no replica."""

    meaning = "its devices are gone, and there was no replica"


class CommunicatorError(NetsumError):
    """The communicator has ended."""


class RejectedError(CommunicatorError):
    """The switch refused a contribution for good. ``reason`` is the name of the outcome."""

    def __init__(self, message: str, reason: str) -> None:
        self.reason = reason
        super().__init__(message)


class DesynchronizedError(CommunicatorError):
    """A new epoch of the job began and this communicator belongs to an earlier one, or this rank was so late that it cannot know
    what calls the others made: :meth:`netsum.Communicator.resync`, or join again. Or, as the message says, its descriptor file
    was used before: make new files for all ranks."""


class EvictedError(CommunicatorError):
    """The controller took this rank out of the job (`netsum job evict`); after `netsum job admit` it may join again."""


class ClosedError(CommunicatorError):
    """The communicator was closed, was ended by an earlier error, or belongs to the process that this one was forked from."""
