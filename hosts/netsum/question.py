"""A question to the controller, asked on a thread of its own: a controller that hangs must not hold up the member's traffic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """Asked on construction, at ``asked`` (``time.monotonic()``)."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self.asked = time.monotonic()
        self._ask = ask
        self._over = threading.Event()
        self._answer: Answer
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="netsum question", daemon=True).start()

    def _run(self) -> None:
        try:
            self._answer = self._ask()
        except Exception as error:
            self._error = error
        self._over.set()

    def answered(self, timeout: float = 0.0) -> bool:
        """Whether the answer comes within ``timeout`` seconds."""
        return self._over.wait(max(0.0, timeout))

    def answer(self) -> Answer:
        """The answer, or raises the error that came instead."""
        if self._error is not None:
            raise self._error
        return self._answer
