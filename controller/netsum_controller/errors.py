# SPDX-License-Identifier: MIT
"""Everything that can go wrong in the controller, as one tree. Libraries raise; only the command line exits.

::

    ControllerError              exit code 1: the request was valid, but it did not work
    +-- InputError               exit code 2: a file, an option or a name is wrong; nothing was changed
    +-- RejectedError            the job does not fit, or contradicts one that is there; nothing was changed
    |   +-- NoSwitchError        no switch can serve the job: room or a path is missing
    |   +-- UnknownJobError      no job of that name
    |   +-- UnknownRankError     the job has no such rank
    |   +-- UnknownRegionError   no region of memory of that name
    |   +-- UnknownHostError     no host of that name
    +-- UnauthorizedError        the token is not the job's
    +-- EvictedError             the rank was taken out of the job
    +-- CannotResumeError        the member's epoch is over for good: it must join anew
    +-- BusyError                not now; ``retry_ms`` is the time until the next attempt
    +-- AbandonedError           the client has closed its connection; nothing was changed
    +-- StateError               the state file cannot be used
    |   +-- LockedError          another process has the state lock
    +-- SwitchError              a switch could not be reached, or answered an error
        +-- UnreachableError     nothing answers at its address
        +-- EntryNotFoundError   the switch has no entry with that key
        +-- WriteError           the switch rejected some updates; ``failed`` names them
        +-- UnknownOutcomeError  it is not known which updates of a Write were carried out
"""

from __future__ import annotations

from collections.abc import Mapping


class ControllerError(Exception):
    """Base of the controller's errors; ``str()`` is one sentence for a person."""

    exit_code: int = 1


class InputError(ControllerError):
    """A file, an option or a name is wrong: one sentence, or one for each thing that is wrong with a file."""

    exit_code = 2

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class RejectedError(ControllerError):
    """The request is well formed but cannot be granted; the message says what is missing."""


class NoSwitchError(RejectedError):
    """No switch can serve the job, for lack of ids, slots, entries or a path between its members, which could combine
    themselves."""


class UnknownJobError(RejectedError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no job {name!r}; `netsum job list` shows all jobs")


class UnknownRankError(RejectedError):
    def __init__(self, job: str, rank: int, workers: int) -> None:
        super().__init__(f"job {job!r} has no rank {rank}: its ranks are 0..{workers - 1}")


class UnknownRegionError(RejectedError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no region {name!r}; `netsum memory list` shows all regions")


class UnknownHostError(RejectedError):
    def __init__(self, name: str, topology: str) -> None:
        super().__init__(f"the topology {topology!r} has no host {name!r}")


class UnauthorizedError(ControllerError):
    def __init__(self, job: str, kind: str = "job") -> None:
        super().__init__(f"wrong token for {kind} {job!r}")


class EvictedError(ControllerError):
    """The rank was taken out of the job, which goes on without it."""

    reason = "evicted"

    def __init__(self, job: str, rank: int) -> None:
        super().__init__(f"rank {rank} was evicted from job {job!r}; `netsum job admit` lets it in again")


class CannotResumeError(ControllerError):
    """The epoch that a member was in cannot be continued; ``why`` ends the sentence."""

    reason = "anew"

    def __init__(self, job: str, epoch: int, why: str) -> None:
        super().__init__(f"job {job!r}: epoch {epoch} cannot be continued ({why}); join anew")


class BusyError(ControllerError):
    """It cannot be done now; ask again in ``retry_ms`` milliseconds. ``next_epoch`` is about to resume the member's."""

    def __init__(self, message: str, retry_ms: int, next_epoch: int | None = None) -> None:
        super().__init__(message)
        self.retry_ms = retry_ms
        self.next_epoch = next_epoch


class AbandonedError(ControllerError):
    """The client went away before it was its turn."""

    def __init__(self) -> None:
        super().__init__("the connection was closed before it was this request's turn")


class StateError(ControllerError):
    """The state file cannot be opened, is locked by another command, or was written by another version."""


class SwitchError(ControllerError):
    """A switch could not be reached, or refused a call."""


class LockedError(StateError):
    """Others have had the state lock for longer than it was waited for."""


class UnreachableError(SwitchError):
    """No server answers at the switch's address."""


class EntryNotFoundError(SwitchError):
    """A switch does not have what it was asked for by its key."""


class UnknownOutcomeError(SwitchError):
    """A Write failed, and the switch did not say which of its updates were carried out."""


class WriteError(SwitchError):
    """A switch refused updates of a batch; ``failed`` maps an update's index to what was wrong."""

    def __init__(self, message: str, failed: Mapping[int, str]) -> None:
        super().__init__(message)
        self.failed = dict(failed)
