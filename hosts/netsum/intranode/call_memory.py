# SPDX-License-Identifier: MIT
"""Memory in which the ranks of a host combine a whole array without the leader: room for the lanes of each, and for the result.

It is a memfd, like that of the :mod:`segment <netsum.intranode.segment>`. The leader makes it where all ranks of the job are on
its host. There is nothing in it but lanes and results. When a rank may read or write which part follows from blocks that all
ranks contribute to (:mod:`netsum.collectives.whole_call`). The eventfds by which these travel order the accesses.
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum.intranode.segment import create_memory, map_memory, rounded
from netsum.wire.schema import CHUNK_BYTES, MAX_CHUNKS

SLOTS: Final = 2
"""Places for a rank's lanes: one is filled while the other is read."""
LANE_BYTES: Final = 32 << 20
"""Of all lanes together. With more, calls have fewer steps; with fewer, more of the lanes stay in the processor's cache."""
RESULT_BYTES: Final = 32 << 20
"""Of the result: that of PyTorch's buckets of gradients (25 MiB) has room."""
_BLOCK: Final = rounded(CHUNK_BYTES * MAX_CHUNKS)
"""Room for the lanes of the largest block."""


class CallMemory:
    """The memory as one rank sees it (a :class:`netsum.core.endpoint.CallMemory`)."""

    def __init__(self, fd: int, index: int, ranks: int) -> None:
        """Map the memory ``fd``, which stays the caller's; this rank has the ``index``. Raises OSError or ValueError if it is not
        what these numbers say."""
        self.index, self.ranks = index, ranks
        self._piece = _piece(ranks)
        memory = np.frombuffer(map_memory(fd, self.size(ranks)), np.uint8)
        self.results: NDArray[np.uint8] = memory[:RESULT_BYTES]
        self.lanes: NDArray[np.uint8] = memory[RESULT_BYTES:].reshape(ranks, SLOTS, self._piece)
        self.identity = os.fstat(fd).st_ino
        self._allocated = 0
        self._fd = os.dup(fd)

    @classmethod
    def size(cls, ranks: int) -> int:
        """Bytes, of which the host has to give only those that are used."""
        return RESULT_BYTES + ranks * SLOTS * _piece(ranks)

    @classmethod
    def create(cls, ranks: int) -> int:
        """Make the memory; returns its descriptor. Raises OSError."""
        return create_memory(cls.size(ranks))

    def allocate(self, result_bytes: int) -> bool:
        """Have this rank's part of the memory for such a result: its lanes, and what it computes. False if the host has not
        enough: a process that touched what is missing would be killed."""
        result_bytes = min(result_bytes, RESULT_BYTES)
        if result_bytes <= self._allocated:
            return True
        begin, end = (result_bytes * at // self.ranks for at in (self.index, self.index + 1))
        lanes = SLOTS * self._piece
        try:
            os.posix_fallocate(self._fd, begin, max(end - begin, 1))
            os.posix_fallocate(self._fd, RESULT_BYTES + self.index * lanes, lanes)
        except OSError:
            return False
        self._allocated = result_bytes
        return True

    def close(self) -> None:
        """Take no more calls. Those in progress keep what is mapped."""
        os.close(self._fd)


def _piece(ranks: int) -> int:
    """Bytes of one rank's lanes in one place."""
    return max(LANE_BYTES // (SLOTS * ranks) // _BLOCK, 1) * _BLOCK
