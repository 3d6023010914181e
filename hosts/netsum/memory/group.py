# SPDX-License-Identifier: MIT
"""Memory that the ranks of a job share."""

from __future__ import annotations

import logging
from typing import Any, Final

from netsum.memory.array import MemoryArray
from netsum.memory.run import InstructionRun, OnReply, Task
from netsum.transports.udp import region_group
from netsum.wire.memory import (
    CLIENT_WINDOW,
    Flag,
    LaneType,
    MemoryHeader,
)

# Replies that a region's devices send once, to all who wait for them (docs/memory.md).


log: Final = logging.getLogger("netsum.memory")

_NEVER: Final = 16
"""If this many parameters came to this worker alone, and none to all, they say that there is no multicast on the way."""
_NO_MORE: Final = 2 * CLIENT_WINDOW
"""The same, where there was one: a device that dies keeps a window of replies from all, and no more."""


class InstructionGroup:
    """One worker's: asks for replies to all as long as they come. Without them everything is as ever, but each worker gets
    replies of its own; what is lost is asked for again as any reply is."""

    def __init__(self, memory: MemoryArray, *, wanted: bool) -> None:
        self._memory = memory
        self._requests_replies = wanted
        self._alone, self._most = 0, _NEVER
        self._runs: list[InstructionRun] = []
        if wanted:
            try:
                memory.client.join(region_group(memory.descriptor.id))
            except OSError as error:
                self._stop(str(error))

    def run(self, task: Task, header: MemoryHeader, *words: Any, on_reply: OnReply, **more: Any) -> InstructionRun:
        """Instructions whose replies may come to all: see :meth:`netsum.memory.array.MemoryArray.run`."""
        if not self._requests_replies:
            return self._memory.run(task, header, *words, on_reply=on_reply, **more)

        def take(row: int, reply: MemoryHeader, payload: memoryview) -> None:
            self._count(reply)
            on_reply(row, reply, payload)

        made = self._memory.run(task, header._replace(flags=int(Flag.SHARED)), *words, on_reply=take, **more)
        self._runs = [*(run for run in self._runs if run.begun < run.number), made]
        return made

    def _count(self, reply: MemoryHeader) -> None:
        if reply.flags & Flag.SHARED:
            self._alone, self._most = 0, _NO_MORE
        elif reply.lane == LaneType.FLOAT32 and reply.argument & 0xFFFFFFFF:
            self._alone += 1
            if self._requests_replies and self._alone >= self._most:
                self._stop("none has come")

    def _stop(self, why: str) -> None:
        self._requests_replies = False
        for run in self._runs:
            run.header = run.header._replace(flags=0)
        log.warning(
            "region %r: no multicast reaches this worker (%s); devices send it the parameters of each step by themselves",
            self._memory.name,
            why,
        )
