"""The extern log_msg."""

from __future__ import annotations

import logging

log = logging.getLogger("netsum_switch.pipeline")


def log_message(text: str, *values: int) -> None:
    """A program's message, with a value in the place of each {}."""
    pieces = text.split("{}")
    given = [*map(str, values), *[""] * len(pieces)]
    log.info("%s", "".join(piece + value for piece, value in zip(pieces, given, strict=False)))
