"""What :func:`netsum.join` takes from the environment when it is not told.

======================  ============================================================================
``NETSUM_JOB``          name of the job
``NETSUM_RANK``         this member's rank; else ``RANK``, as torchrun sets it
``NETSUM_TOKEN``        the job's secret token
``NETSUM_CONTROLLER``   the controller's URL, such as ``http://127.0.0.1:8080``
``NETSUM_DESCRIPTOR``   a descriptor file instead of a controller; ``{rank}`` in it stands for the rank
``NETSUM_TIMEOUT``      seconds that one call may take, default 60
======================  ============================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from netsum.errors import JoinError

DEFAULT_CALL_TIMEOUT = 60.0


@dataclass(frozen=True)
class Environment:
    """The variables above, read once; None where unset."""

    job: str | None = None
    rank: int | None = None
    token: str | None = None
    controller: str | None = None
    descriptor: str | None = None
    timeout: float = DEFAULT_CALL_TIMEOUT

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Environment:
        """Read ``variables`` (default: the process's). A value that is not what it should be raises JoinError."""
        source = os.environ if variables is None else variables

        def number(name: str) -> float | None:
            text = source.get(name)
            if not text:
                return None
            try:
                return float(text)
            except ValueError:
                raise JoinError(f"{name} is {text!r}, not a number") from None

        rank = number("NETSUM_RANK")
        if rank is None:
            rank = number("RANK")
        if rank is not None and rank != int(rank):
            raise JoinError(f"the rank in the environment is {rank}, not a whole number")
        return cls(
            job=source.get("NETSUM_JOB") or None,
            rank=None if rank is None else int(rank),
            token=source.get("NETSUM_TOKEN") or None,
            controller=source.get("NETSUM_CONTROLLER") or None,
            descriptor=source.get("NETSUM_DESCRIPTOR") or None,
            timeout=number("NETSUM_TIMEOUT") or DEFAULT_CALL_TIMEOUT,
        )
