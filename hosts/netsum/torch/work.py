"""torch's Work: a call under way."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor, distributed

from netsum.torch.errors import as_torch_raises
from netsum.torch.futures import CallFuture, Futures, future_for_cpp


class Pending(Protocol):
    """What a Work waits for: a :class:`netsum.Work` or a parcel of the mailbox."""

    def done(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> Any: ...


class Done:
    """A call that has ended with this value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def done(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> Any:  # noqa: ARG002  it has nothing to wait for
        return self._value


class Work(distributed.Work):  # type: ignore[misc]
    """One or more calls of netsum that belong to one of torch's. ``after(results)`` writes what they gave into the caller's
    tensors; whoever first finds the calls done runs it."""

    def __init__(
        self,
        futures: Futures,
        calls: Sequence[Pending],
        tensors: list[Tensor],
        after: Callable[[list[Any]], None],
    ) -> None:
        super().__init__()
        self._futures = futures
        self._calls = calls
        self._tensors = tensors
        self._after: Callable[[list[Any]], None] | None = after
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._future: Any = None
        self._waited = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the result. A ``timeout`` bounds only this wait; the call goes on."""
        self._take(timeout.total_seconds() if timeout else None)
        self._waited = True
        return True

    def _take(self, seconds: float | None = None) -> None:
        with as_torch_raises():
            self._finish([call.wait(seconds) for call in self._calls])

    def _finish(self, results: list[Any]) -> None:
        with self._lock:
            after, self._after = self._after, None
            if after is not None:
                after(results)

    def is_completed(self) -> bool:
        if not all(call.done() for call in self._calls):
            return False
        with contextlib.suppress(Exception):  # whoever waits gets it
            self._take()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What the call raised; None while it is under way."""
        if all(call.done() for call in self._calls):
            try:
                self._take()
            except Exception as error:
                return error
        return None

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[Tensor]:
        self.wait()
        return self._tensors

    def source_rank(self) -> int:
        """The rank that a message came from."""
        self.wait()
        return int(self._calls[0].wait())

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A future of the tensors. Its callbacks run on a thread of the process group, in the order in which they were given; or,
        as torch's do, at once if the caller has waited for the call already: then that is so on every rank."""
        if self._waited:
            ended = torch.futures.Future(devices=self._devices())
            ended.set_result(self._tensors)
            return ended
        # Two kinds of futures, since only one made in C++ shows an error to C++, and only one of ours orders its callbacks.
        if "get_future" not in sys._getframe(1).f_code.co_names:
            return future_for_cpp(self._futures, self._value, self._devices())
        with self._lock:
            if self._future is None:
                self._future = CallFuture(self._futures, self._devices())
                self._futures.later(lambda: self._future.complete(self._value))
        return self._future

    def _devices(self) -> list[Any]:
        return sorted({each.device for each in self._tensors if each.device.type == "cuda"}, key=str)

    def _value(self) -> list[Tensor]:
        self._take()
        return self._tensors
