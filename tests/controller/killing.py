"""A controller whose process is killed on its way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from netsum_controller.p4runtime.client import SwitchClient


class Killed(BaseException):
    """Stands for the process being killed."""


@contextmanager
def dying_after(writes: int) -> Iterator[None]:
    """The process is :class:`Killed` when it has sent so many batches to switches and is about to send another."""
    writer, calls = SwitchClient.write, 0

    def write(self: SwitchClient, updates: Any) -> None:
        nonlocal calls
        if updates:
            if calls == writes:
                raise Killed
            calls += 1
        writer(self, updates)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SwitchClient, "write", write)
        yield
