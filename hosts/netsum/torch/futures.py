"""Futures of calls, whose callbacks may make calls themselves (PowerSGD's do).

All ranks must make the calls of a communicator in the same order. So callbacks run on one thread, in the order in which they
were given, never on the thread that gives them; and what they call goes to a communicator of their own, since nobody can say what
the caller's thread calls meanwhile.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final

import torch

_THREAD: Final = "netsum futures"


class Futures:
    """The thread of one process group's futures; it lives from the first until :meth:`close`."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def here(self) -> bool:
        """Whether this is called from a callback."""
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
