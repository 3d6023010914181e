# SPDX-License-Identifier: MIT
"""The log of the process, where simple_switch_grpc's flags put it and in its form."""

from __future__ import annotations

import logging
import sys
import threading
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

from netsum_switch.errors import SwitchError

LEVELS = {"trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING,
          "error": logging.ERROR, "off": logging.CRITICAL + 1}  # fmt: skip

MAX_FILE_SIZE, MAX_FILES = 5 << 20, 3  # bytes; files beside the one in use

_LETTERS = {logging.DEBUG: "D", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "C"}


class _Formatter(logging.Formatter):
    """Lines of simple_switch's form: `[15:04:05.123] [netsum_switch] [I] [thread 4711] text`."""

    def __init__(self) -> None:
        super().__init__("[%(asctime)s] [%(name)s] [%(letter)s] [thread %(native)d] %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.letter = _LETTERS.get(record.levelno, "I")
        record.native = threading.get_native_id()
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return f"{time.strftime('%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03d}"


class _File(RotatingFileHandler):
    """Begins anew where no other file is kept."""

    def doRollover(self) -> None:  # noqa: N802
        if self.backupCount:
            super().doRollover()
        elif self.stream is not None:
            self.stream.truncate(0)


def to_console(level: str) -> None:
    """Log to standard output, from ``level`` on (a key of `LEVELS`)."""
    _use(logging.StreamHandler(sys.stdout), level)


def to_file(path: str, level: str, max_size: int = MAX_FILE_SIZE, max_files: int = MAX_FILES) -> None:
    """Log to ``path`` + `.txt`, as simple_switch names it. A file that would get larger than ``max_size`` bytes becomes
    ``path`` + `.1.txt`; up to ``max_files`` of these are kept. Raises SwitchError if the file cannot be written."""
    try:
        handler = _File(f"{path}.txt", maxBytes=max_size, backupCount=max_files)
    except OSError as error:
        raise SwitchError(f"cannot write {path}.txt: {error.strerror}") from error
    handler.namer = lambda name: f"{path}{Path(name).suffix}.txt"  # PATH.txt.1
    _use(handler, level)


def quiet(level: str) -> None:
    """Log warnings to standard error: neither a console nor a file was wanted."""
    if LEVELS[level] <= logging.WARNING:
        level = "warn"
        logging.getLogger("netsum_switch.compiler").setLevel(logging.INFO)  # what takes seconds is said
    _use(logging.StreamHandler(sys.stderr), level)


def _use(handler: logging.Handler, level: str) -> None:
    """Other packages' messages are logged from WARNING on."""
    handler.setFormatter(_Formatter())
    logging.basicConfig(handlers=[handler], level=max(logging.WARNING, LEVELS[level]))
    logging.getLogger("netsum_switch").setLevel(LEVELS[level])
