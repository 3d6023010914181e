# SPDX-License-Identifier: MIT
"""A controller whose process is killed in the middle of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from netsum_controller.p4runtime.client import SwitchClient


class Killed(BaseException):
    """Raised where the process would be killed."""


@contextmanager
def dying_after(writes: int) -> Iterator[None]:
    """Raise :class:`Killed` once so many batches have gone to switches and another is about to."""
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
