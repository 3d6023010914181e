# SPDX-License-Identifier: MIT
"""torch's monitored_barrier: a barrier that names the ranks which do not reach it.

As in ProcessGroupGloo, rank 0 waits for a message of every other rank and replies to it. The messages are those of send and
receive, so the barrier works while some ranks are in a collective that hangs, and is no call in the order of the collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import distributed

from netsum.errors import CallError, CallTimeoutError
from netsum.torch.p2p import PointToPoint

# The tags of the messages; torch's own are not negative. Each call has its own three, so that a rank that comes late finds how
# its own call ended.
_REACHED, _PRESENT, _VERDICT = range(3)
_MESSAGES = 3


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Wait until all ranks of a process group of netsum have called this, as ``torch.distributed.monitored_barrier`` does, which
    takes groups of Gloo alone. ``timeout`` is a timedelta; default: the group's.

    Raises:
        RuntimeError: not all have. It names the first rank that has not, or all of them with ``wait_all_ranks``. Every rank that
            is waiting raises it.
    """
    if group is not distributed.GroupMember.NON_GROUP_MEMBER:
        (distributed.group.WORLD if group is None else group).monitored_barrier(timeout, wait_all_ranks)


class MonitoredBarrier:
    """The monitored barriers of one process group."""

    def __init__(self, messages: PointToPoint, rank: int, size: int) -> None:
        self._messages, self._rank, self._others = messages, rank, range(1, size)
        self._first_tag = 0  # of this call

    def wait(self, seconds: float, *, wait_all_ranks: bool) -> None:
        """Wait for all ranks. Raises CallTimeoutError."""
        self._first_tag -= _MESSAGES
        if self._rank:
            self._report(seconds)
        else:
            self._collect(seconds, wait_all_ranks=wait_all_ranks)

    def _collect(self, seconds: float, *, wait_all_ranks: bool) -> None:
        token, missing = np.zeros(1, np.uint8), []
        for rank in self._others:
            self._send(rank, _PRESENT, token)
        reached = {rank: self._receive(rank, _REACHED, token.copy(), seconds) for rank in self._others}
        for rank, request in reached.items():
            try:
                request.wait()
            except CallError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        verdict = np.isin(self._others, missing).astype(np.uint8)
        for rank in self._others:
            self._send(rank, _VERDICT, verdict)
        if missing:
            # By these words the users of Gloo know it.
            text = f"Rank 0 timed out in monitoredBarrier after {1000 * seconds:.0f} ms: {_failed(missing)}"
            raise CallTimeoutError(text, missing=missing)

    def _report(self, seconds: float) -> None:
        verdict = np.zeros(len(self._others), np.uint8)
        self._send(0, _REACHED, verdict[:1])
        try:
            self._receive(0, _PRESENT, verdict[:1], seconds).wait()
            self._receive(0, _VERDICT, verdict, 2 * seconds).wait()  # rank 0 may have come as late as it could
        except CallError:
            raise self._error([0]) from None
        if verdict.any():
            raise self._error([self._others[index] for index in np.flatnonzero(verdict)])

    def _error(self, missing: Sequence[int]) -> CallTimeoutError:
        if self._rank in missing:
            text = f"Rank {self._rank} reached monitoredBarrier too late: rank 0 had waited for it in vain"
        else:
            text = (
                f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                f"from rank 0: {_failed(missing)}"
            )
        return CallTimeoutError(text, missing=missing)

    def _send(self, rank: int, tag: int, array: Any) -> None:
        self._messages.send(rank, self._first_tag + tag, array, 0.0)  # short, so it does not wait

    def _receive(self, rank: int, tag: int, array: Any, seconds: float) -> Any:
        return self._messages.receive(rank, self._first_tag + tag, array, seconds)


def _failed(ranks: Sequence[int]) -> str:
    return f"Rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} failed to pass monitoredBarrier"
