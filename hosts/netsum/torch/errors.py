"""torch's exceptions with netsum's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import distributed

from netsum.errors import NetsumError


@contextmanager
def as_torch_raises() -> Iterator[None]:
    """Raise netsum's errors as what callers of torch.distributed expect, a RuntimeError; netsum's own is its ``__cause__``."""
    try:
        yield
    except (NetsumError, TimeoutError) as error:
        # By these words the users of other backends know a timeout, torchft's tests among them.
        timed_out = "Timed out waiting: " if isinstance(error, TimeoutError) else ""
        raise distributed.DistBackendError(f"netsum: {type(error).__name__}: {timed_out}{error}") from error
