# SPDX-License-Identifier: MIT
"""The companion of a job by a switch: a job of the same ranks by a host algorithm, for calls that the switch alone would slow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from netsum.collectives.call import Call
from netsum.collectives.selected_sum import FAILED, PREPARING, READY
from netsum.collectives.way_selection import WaySelection
from netsum.core.progress import Work
from netsum.numeric.fixed_point import Array
from netsum.stats import Stats

PROBE_TIMEOUT: Final = 10.0
"""Seconds of the first call, which shows that the ranks reach each other."""
_PROBE_BYTES: Final = 4096


class Peers(Protocol):
    """The communicator of the companion: :class:`netsum.Communicator`."""

    @property
    def busy(self) -> bool: ...

    @property
    def stats(self) -> Stats: ...

    def allreduce(self, x: Array, *, timeout: float | None = None) -> Array: ...

    def start_part(self, call: Call[Array], block_bytes: int) -> Work[Array]: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


class Companion:
    """Makes the job when the first call is large enough for it, and closes it. Thread-safe.

    Attributes:
        selection: the ways of calls, by size.
    """

    def __init__(self, advice: Sequence[tuple[int, float]], make: Callable[[], Peers], log: Callable[[str], None]) -> None:
        """``make()`` returns the communicator, once all ranks have called it, or raises why there is none. ``log`` takes a
        sentence."""
        self.selection = WaySelection(advice)
        self._make, self._log = make, log
        self._gate = threading.Lock()
        self._peers: Peers | None = None
        self._thread: threading.Thread | None = None
        self._probed = False
        self._reason = ""
        self._closed = False

    @property
    def state(self) -> int:
        if self._reason:
            return FAILED
        return READY if self._probed else PREPARING

    @property
    def busy(self) -> bool:
        return self._peers is not None and self._peers.busy

    @property
    def stats(self) -> Stats:
        return self._peers.stats if self._peers is not None else Stats()

    def prepare(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._prepare, name="netsum companion", daemon=True)
            self._thread.start()

    def _prepare(self) -> None:
        try:
            made = self._make()
            with self._gate:
                self._peers = made
            if self._closed:
                made.close()
            made.allreduce(np.zeros(_PROBE_BYTES // 4, np.float32), timeout=PROBE_TIMEOUT)
            self._probed = True
        except Exception as error:
            self._reason = str(error) or type(error).__name__

    def start(self, call: Call[Array], block_bytes: int) -> Work[Array]:
        assert self._peers is not None, "the ranks have agreed that it is there"
        return self._peers.start_part(call, block_bytes)

    def note(self, text: str) -> None:
        self._log(text)

    def stop(self, reason: str) -> None:
        """Leave all calls to the switch from now on."""
        self.selection = WaySelection(())
        self._log(f"all calls go by the switch alone: {self._reason or reason}")
        threading.Thread(target=self.close, name="netsum companion", daemon=True).start()

    def abandon(self) -> None:
        if self._peers is not None:
            self._peers.end()

    def close(self) -> None:
        """Leave the job. May be called twice."""
        with self._gate:
            self._closed = True
            made = self._peers
        if made is not None:
            made.close()
