# SPDX-License-Identifier: MIT
"""Threads of a test: the same at once, something meanwhile or all the time, and waiting for what others do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

PATIENCE = 600.0
"""Seconds for what must happen: only a fault makes it longer, not a machine that gives the tests a tenth of a core. A test that
waits for something takes this, so that it fails by what is wrong, not by what is late."""


def until(condition: Callable[[], object], what: object = "what is waited for", timeout: float = PATIENCE) -> None:
    """Wait for something; fail, naming it, if it does not happen in so many seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.002)


def together(calls: Sequence[Callable[[], Any]], timeout: float = PATIENCE + 60.0) -> list[Any]:
    """Make the calls at once, a thread each: what each returned or raised. One that is not done after ``timeout`` seconds fails
    the test: calls of a communicator time out earlier, and say more."""
    outcomes: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            outcomes[index] = calls[index]()
        except BaseException as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = [index for index, thread in enumerate(threads) if thread.is_alive()]
    assert not stuck, f"{stuck} hang after {timeout} s"
    return outcomes


def returned(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The return values of calls that are made at once; raises what one raised."""
    outcomes = together(calls)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


@contextmanager
def meanwhile(act: Callable[[], object], end: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Do something in a thread of its own, for which the end of the block waits, once it has called ``end``; raises what it
    raised."""
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act)
        try:
            yield
        finally:
            end()
    acting.result()


def repeatedly(act: Callable[[], object], pause: float = 0.0) -> AbstractContextManager[None]:
    """Do something all the time, in a thread of its own, ``pause`` seconds after it was done last."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause):
            act()

    return meanwhile(run, over.set)
