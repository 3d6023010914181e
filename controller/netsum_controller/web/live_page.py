# SPDX-License-Identifier: MIT
"""The live page's own files, which hold nothing that is secret."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from netsum.text import counted

from netsum_controller.context import ControllerContext
from netsum_controller.errors import ControllerError
from netsum_controller.monitoring.collector import SwitchView
from netsum_controller.web.snapshot import Observation, Picture, point, snapshot

PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
"""Path -> file and content type."""

PAGE_HEADERS: Final = {
    # Nothing from elsewhere, nothing inline: a job's name is text and can be no script.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def page(path: str) -> tuple[str, bytes]:
    """Content type and bytes of one of :data:`PAGE`."""
    name, content_type = PAGE[path]
    return content_type, (files(__package__) / name).read_bytes()


# What has happened between two pictures, in words. Pure.


_MEMBER = {
    "absent": "has not joined the new epoch yet",
    "joined": "has joined",
    "silent": "sends nothing, while others wait for it",
    "left": "has left",
    "evicted": "is evicted",
}


def events(before: Picture, now: Picture) -> list[dict[str, str]]:
    """Each with its ``kind`` ("switch", "job" or "member") and ``text``, in the order of the page."""
    found = [("switch", text) for text in _switches(before, now)]
    was = {job["job"]: job for job in before["jobs"]}
    for job in now["jobs"]:
        if job["job"] not in was:
            found.append(("job", f"{job['job']} is there, with {counted(job['workers'], 'worker')}"))
            continue
        found += [("job", f"{job['job']}: {text}") for text in _job(was[job["job"]], job)]
        found += [("member", f"{job['job']}: {text}") for text in _members(was[job["job"]], job)]
    there = {job["job"] for job in now["jobs"]}
    found += [("job", f"{name} is gone") for name in was if name not in there]
    return [{"kind": kind, "text": text} for kind, text in found]


def _switches(before: Picture, now: Picture) -> Iterator[str]:
    was_up = {switch["name"]: switch["up"] for switch in before["switches"]}
    for switch in now["switches"]:
        name, is_up = switch["name"], switch["up"]
        if was_up.get(name, True) and not is_up:
            yield f"{name} does not work: {switch['trouble']}"
        elif is_up and not was_up.get(name, True):
            yield f"{name} works again"
        elif switch["restarted"]:
            yield f"{name} has restarted"


def _job(was: dict[str, Any], job: dict[str, Any]) -> Iterator[str]:
    if was["combines"] != job["combines"]:
        by = "a switch combines again" if job["combines"] == "switch" else f"its members combine by {job['combines']}"
        yield by
    if was["epoch"] != job["epoch"]:
        yield f"epoch {job['epoch']} follows {was['epoch']}"
    for reason, count in job["refused"].items():
        more = count - was["refused"].get(reason, 0)
        if more > 0:
            packets = "packet" if more == 1 else "packets"
            yield f"{more} {packets} refused: {reason.replace('_', ' ')}"


def _members(was: dict[str, Any], job: dict[str, Any]) -> Iterator[str]:
    earlier = {member["rank"]: member for member in was["members"]}
    for member in job["members"]:
        before = earlier.get(member["rank"])
        if before is None:
            continue
        who = f"rank {member['rank']} ({member['host']})"
        if before["state"] != member["state"]:
            back = before["state"] == "silent" and member["state"] == "joined"
            yield f"{who} {'sends again' if back else _MEMBER[member['state']]}"
        if not before.get("straggler") and member.get("straggler"):
            yield f"{who} is a straggler: the others wait for it"


# Feeds the live page: looks at the switches regularly, keeps a history, and hands on what is new.


log = logging.getLogger(__name__)

PERIOD: Final = 2.0
"""Seconds between two looks, each of which occupies the switches for about 50 ms a job."""

HISTORY: Final = 600
"""Pictures whose figures are kept: 20 minutes."""

EVENTS: Final = 200
"""Events that are kept."""

ALIVE: Final = 10.0
"""Seconds without news after which a reader gets an empty comment, which shows when it is gone."""

READERS: Final = 32
"""Pages that may watch at once; each holds a thread."""


class TooManyReadersError(Exception):
    """:data:`READERS` pages are open."""


class EventStream:
    """Looks in a thread of its own until closed. ``read`` gives the switches as they are (:meth:`Metrics.views`)."""

    def __init__(self, context: ControllerContext, read: Callable[[], Sequence[SwitchView]], period: float = PERIOD) -> None:
        self._context, self._read, self._period = context, read, period
        self._news = threading.Condition()
        self._looks = self._happened = 0
        self._latest: Picture | None = None
        self._history: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        self._events: deque[tuple[int, dict[str, Any]]] = deque(maxlen=EVENTS)
        """Numbered from 0 to before :attr:`_happened`."""
        self._readers = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netsum-feed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        with self._news:
            self._news.notify_all()
        self._thread.join()

    def stream(self) -> Generator[str]:
        """Server-sent events, for ever: ``before`` once (history and events so far, and how many to keep), then a ``snapshot``
        and its ``events`` at each look. Raises :class:`TooManyReadersError` before the first."""
        with self._news:
            if self._readers >= READERS:
                raise TooManyReadersError
            self._readers += 1
        return self._follow()

    def _follow(self) -> Generator[str]:
        try:
            with self._news:
                looks, shown, latest = self._looks, self._happened, self._latest
                before = {
                    "history": list(self._history),
                    "events": [event for _, event in self._events],
                    "keep": {"history": HISTORY, "events": EVENTS},
                }
            yield _message("before", before)
            if latest is not None:
                yield _message("picture", {**latest, "events": []})
            while not self._closed.is_set():
                with self._news:
                    if self._looks == looks and not self._closed.is_set():
                        self._news.wait(ALIVE)
                    fresh = self._looks > looks
                    happened = [event for number, event in self._events if number >= shown]
                    looks, shown, latest = self._looks, self._happened, self._latest
                yield _message("picture", {**(latest or {}), "events": happened}) if fresh else ": nothing new\n\n"
        finally:
            with self._news:
                self._readers -= 1

    def _run(self) -> None:
        before: Observation | None = None
        while True:
            try:
                views = self._read()
                look = Observation(time.monotonic(), views, [job for job in self._context.store.jobs() if job.exists])
                self._show(before, look)
                before = look
            except ControllerError as error:  # the state file cannot be read just now
                log.warning("the live page has no news: %s", error)
            except Exception:
                log.exception("the live page has no news")
            if self._closed.wait(self._period):
                return

    def _show(self, before: Observation | None, look: Observation) -> None:
        now = snapshot(self._context.topology, before, look, self._latest)
        at = round(time.time(), 3)
        with self._news:
            for event in [] if self._latest is None else events(self._latest, now):
                self._events.append((self._happened, {"at": at, **event}))
                self._happened += 1
            self._history.append({"at": at, "jobs": point(now)})
            self._latest = {**now, "at": at, "point": self._history[-1]}
            self._looks += 1
            self._news.notify_all()


def _message(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
