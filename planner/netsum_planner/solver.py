"""Integer programs, by HiGHS."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scipy.optimize import milp


def solve(*given: Any, **more: Any) -> Any:
    """As :func:`scipy.optimize.milp`."""
    with _standard_output_aside():
        return milp(*given, **more)


@contextmanager
def _standard_output_aside() -> Iterator[None]:
    """HiGHS prints a line of its own now and then, past Python, which would end up in our JSON: it goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
