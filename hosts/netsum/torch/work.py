# SPDX-License-Identifier: MIT
"""torch's Work and Future over calls of this library."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Final, Protocol

import torch
from torch import Tensor, distributed

from netsum.torch.arguments import as_torch_raises

# Futures of calls, whose callbacks may make calls themselves (PowerSGD's do).
#
# All ranks must make the calls of a communicator in the same order. So callbacks run on one thread, in the order in
# which they were given, never on the thread that gives them; and what they call goes to a communicator of their own,
# since it is not known what the caller's thread calls meanwhile.


_THREAD: Final = "netsum futures"


class Futures:
    """The thread of one process group's futures; it lives from the first until :meth:`close`."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def here(self) -> bool:
        """True if this is called from a callback."""
        return threading.current_thread().name == _THREAD

    def later(self, task: Callable[[], None]) -> None:
        """Run the task after all earlier ones. One of a callback, which may wait for it, has a thread of its own."""
        if self.here:
            threading.Thread(target=task, name=_THREAD, daemon=True).start()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=_THREAD, daemon=True)
            self._thread.start()
        self._waiting.put(task)

    def _run(self) -> None:
        while (task := self._waiting.get()) is not None:
            task()

    def close(self) -> None:
        """End the thread once all tasks are done."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._waiting.put(None)
            if thread is not threading.current_thread():
                thread.join()


class CallFuture(torch.futures.Future):  # type: ignore[misc]
    """A future whose callbacks run on the futures' thread."""

    def __init__(self, futures: Futures, devices: list[Any]) -> None:
        super().__init__(devices=devices)
        self._futures, self._on = futures, devices

    def complete(self, value: Callable[[], Any]) -> None:
        """Set the result to what ``value()`` returns or raises."""
        try:
            result = value()
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def then(self, callback: Callable[[Any], Any]) -> CallFuture:
        following = CallFuture(self._futures, self._on)
        self._futures.later(lambda: following.complete(lambda: callback(self._completed())))
        return following

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.then(callback)

    def _completed(self) -> CallFuture:
        """This future, once it is: ``wait`` would raise its error, which is for the callback to find."""
        ended = threading.Event()
        super().add_done_callback(lambda _: ended.set())
        ended.wait()
        return self


def future_for_cpp(futures: Futures, value: Callable[[], Any], devices: list[Any]) -> Any:
    """A future for torch's own C++: what ``value()`` raises is an error there too, which set_exception's is not."""
    ended = torch.futures.Future(devices=devices)
    futures.later(lambda: ended.set_result(None))
    return ended.then(lambda _: value())


# torch's Work: a call in progress.


class Pending(Protocol):
    """The object that a Work waits for: a :class:`netsum.Work` or a request of point-to-point messages."""

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
    tensors; the thread that first finds the calls done runs it."""

    def __init__(
        self,
        futures: Futures,
        calls: Sequence[Pending],
        tensors: list[Tensor],
        after: Callable[[list[Any]], None],
        raises: Callable[[], AbstractContextManager[None]] = as_torch_raises,
    ) -> None:
        super().__init__()
        self._futures = futures
        self._calls = calls
        self._tensors = tensors
        self._after: Callable[[list[Any]], None] | None = after
        self._raises = raises
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
        with self._raises():
            self._finish([call.wait(seconds) for call in self._calls])

    def _finish(self, results: list[Any]) -> None:
        with self._lock:
            after, self._after = self._after, None
            if after is not None:
                after(results)

    def is_completed(self) -> bool:
        if not all(call.done() for call in self._calls):
            return False
        with contextlib.suppress(Exception):  # the waiting thread gets it
            self._take()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error that the call raised; None while it is in flight."""
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
