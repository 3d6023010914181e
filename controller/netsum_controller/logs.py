"""The controller's log: Python's logging with structured fields, which :mod:`netsum.logs` prints."""

from __future__ import annotations

import logging
from typing import Any

from netsum.logs import formatter

from netsum_controller.state.model import Job


def set_up(level: int, kind: str) -> None:
    """Print records of this level and above to stderr as ``kind``: ``text`` or ``json``, one object per line. Does nothing if
    logging is already set up."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(kind))
    logging.basicConfig(level=level, handlers=[handler])


def about(job: Job, **fields: Any) -> dict[str, Any]:
    """The ``extra`` of a record about a job, with further ``fields`` such as ``rank`` and ``block``."""
    return {"job": job.name, "epoch": job.epoch.number, "switch": job.switch, **fields}
