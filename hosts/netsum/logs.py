# SPDX-License-Identifier: MIT
"""Logs: Python's standard logging with structured fields, as text or as one JSON object per line.

Every record of a member has the fields ``job`` and ``rank``, and ``epoch``, ``block`` and others where they apply. They are
passed as ``extra``, so the application's own handlers find them on the record. Nothing is printed unless the application
configures logging, or ``NETSUM_LOG`` or ``NETSUM_LOG_LEVEL`` asks for it; except what a program that has not begun yet waits for
(:class:`LongWait`).

::

    {"time": "2026-03-01T12:00:00.123Z", "level": "warning", "logger": "netsum.member", "message": "no result for block ...",
     "job": "resnet", "rank": 0, "epoch": 1795257008, "block": 4711, "missing": [2]}
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    Adapter = logging.LoggerAdapter[logging.Logger]
    Stream = logging.StreamHandler[TextIO]
else:
    Adapter = logging.LoggerAdapter
    Stream = logging.StreamHandler

NAME: Final = "netsum"
"""The library's logger; the application configures it as any other."""

LONG: Final = 3.0
"""Seconds after which a program that waits says for what."""
FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """A record's ``extra`` fields that are not None."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD and value is not None}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``time`` (UTC, milliseconds), ``level``, ``logger``, ``message``, the fields, and an
    exception's traceback as ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{whole}.{int(record.created % 1 * 1000):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # ASCII without line breaks, so that no line can be forged


class TextFormatter(logging.Formatter):
    """For people: level, logger and message. The message itself has the fields that matter."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")


def formatter(kind: str) -> logging.Formatter:
    return JsonFormatter() if kind == "json" else TextFormatter()


class FieldLogger(Adapter):
    """A logger that adds the same fields to every record; a call's own ``extra`` takes precedence."""

    def __init__(self, logger: logging.Logger, fields: Mapping[str, Any]) -> None:
        super().__init__(logger, dict(fields))

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs

    def with_fields(self, **fields: Any) -> FieldLogger:
        return FieldLogger(self.logger, {**(self.extra or {}), **fields})


def logger_for(job: str | None, rank: int | None, **fields: Any) -> FieldLogger:
    return FieldLogger(logging.getLogger(f"{NAME}.member"), {"job": job, "rank": rank, **fields})


class _Handler(Stream):
    """The handler that :func:`configure` adds."""


def configure(kind: str | None = None, level: str | None = None, stream: TextIO | None = None) -> None:
    """Print the library's records of ``level`` (one of :data:`LEVELS`, default ``info``) and above to ``stream`` (default:
    stderr), as ``kind`` (one of :data:`FORMATS`, default ``text``). A second call replaces the first. If both are None, logging
    is left to the application."""
    if kind is None and level is None:
        return
    logger = logging.getLogger(NAME)
    for before in [handler for handler in logger.handlers if isinstance(handler, _Handler)]:
        logger.removeHandler(before)
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(formatter(kind or "text"))
    logger.addHandler(handler)
    logger.setLevel((level or "info").upper())
    logger.propagate = False  # or an application that configures the root logger would print everything twice


class Seldom:
    """Lets one of many equal messages through every ``period`` seconds, and counts those that it holds back."""

    def __init__(self, period: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._period, self._clock = period, clock
        self._next = float("-inf")
        self._held = 0

    def due(self) -> int | None:
        """None to hold this message back, otherwise how many were held back since the last one."""
        now = self._clock()
        if now < self._next:
            self._held += 1
            return None
        held, self._held, self._next = self._held, 0, now + self._period
        return held


class LongWait:
    """Says what a program waits for while it is within this context, once that has taken :data:`LONG` seconds and then ever more
    seldom: in the log, or on stderr if logging is not configured. ``reason`` is what is known by then."""

    def __init__(self, what: str, reason: str) -> None:
        self.reason = reason
        self._what = what
        self._began = time.monotonic()
        self._pause = LONG
        self._over = threading.Event()

    def __enter__(self) -> LongWait:
        threading.Thread(target=self._watch, name="netsum wait", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self._pause):
            self._pause *= 3
            self._say(f"{self._what}: waiting for {time.monotonic() - self._began:.0f} s: {self.reason}")

    def _say(self, text: str) -> None:
        logger = logging.getLogger(f"{NAME}.member")
        logger.warning("%s", text)
        above = [*logging.getLogger(NAME).handlers, *logging.getLogger().handlers]
        if all(isinstance(handler, logging.NullHandler) for handler in above):
            print(f"netsum: {text}", file=sys.stderr, flush=True)


# Or Python would print warnings although logging is not configured.
logging.getLogger(NAME).addHandler(logging.NullHandler())
