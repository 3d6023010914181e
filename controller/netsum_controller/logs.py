"""The controller's log: Python's logging, with fields for what a record is about (:mod:`netsum.logs` prints them)."""

from __future__ import annotations

import logging
from typing import Any

from netsum.logs import formatter

from netsum_controller.state.model import Job


def set_up(level: int, kind: str) -> None:
    """Print records of this level and above to stderr, as ``kind``: ``text`` or ``json``, an object a line. If
    logging is set up already, nothing changes."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(kind))
    logging.basicConfig(level=level, handlers=[handler])


def about(job: Job, **fields: Any) -> dict[str, Any]:
    """What a record about a job has as ``extra``; ``fields`` are more, such as ``rank`` and ``block``."""
    return {"job": job.name, "epoch": job.epoch.number, "switch": job.switch, **fields}
