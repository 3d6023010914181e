"""Questions to the controller's HTTP API."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from netsum.answers import open_url
from netsum.errors import (
    DesynchronizedError,
    EvictedError,
    JoinError,
    NetsumError,
    NotReadyError,
    UnauthorizedError,
    UnknownRankError,
)
from netsum.logs import LongWait

Answer = TypeVar("Answer")

REQUEST_TIMEOUT: Final = 10.0
_FIRST_RETRY: Final = 0.05
_SLOWEST_RETRY: Final = 1.0
_REFUSALS: Final[dict[int, type[NetsumError]]] = {
    http.client.GONE: DesynchronizedError,
    http.client.FORBIDDEN: EvictedError,
    http.client.UNAUTHORIZED: UnauthorizedError,
    http.client.NOT_FOUND: UnknownRankError,
    http.client.CONFLICT: NotReadyError,
    http.client.SERVICE_UNAVAILABLE: NotReadyError,
}
"""The error for each HTTP status; any other is a JoinError."""


class Asking:
    """Asks about one thing of a controller's; ``about`` is its name in errors."""

    def __init__(self, url: str, token: str | None, controller: str, about: str) -> None:
        """``url`` is the thing's own, ``controller`` the controller's."""
        if not controller.startswith(("http://", "https://")):
            raise JoinError(f"the controller is {controller!r}, not a URL such as http://127.0.0.1:8080")
        self._url, self._token, self.controller, self._about = url, token, controller, about
        self._trust = _trust() if controller.startswith("https://") else None

    def ask(self, method: str, path: str, body: Any = None, timeout: float = REQUEST_TIMEOUT) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        with open_url(request, timeout, self._trust) as answer:
            return json.load(answer)

    def until(self, deadline: float, ask: Callable[[float], Answer]) -> Answer:
        """Ask until there is an answer, or until the deadline; ``ask`` gets the seconds that it may take."""
        pause = _FIRST_RETRY
        with LongWait(self._about, f"the controller at {self.controller} has not answered yet") as waits:
            while True:
                left = min(REQUEST_TIMEOUT, max(_FIRST_RETRY, deadline - time.monotonic()))
                try:
                    return self.once(partial(ask, left))
                except NotReadyError as error:
                    waits.reason = str(error).removeprefix(f"{self._about}: ")
                    pause = max(pause, error.retry)
                    if time.monotonic() + pause > deadline:
                        raise
                time.sleep(pause)
                pause = min(2 * pause, _SLOWEST_RETRY)

    def once(self, ask: Callable[[], Answer]) -> Answer:
        """Ask once. Raises :class:`NotReadyError` if asking again may help, and otherwise what the controller's refusal means."""
        try:
            return ask()
        except urllib.error.HTTPError as error:
            with error:
                raise self.refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise NotReadyError(f"the controller at {self.controller} does not answer: {plain(error)}") from None
        except (ValueError, KeyError) as error:
            raise JoinError(f"the controller at {self.controller} gave no descriptor: {error}") from None

    def refusal(self, error: urllib.error.HTTPError) -> NetsumError:
        """The error for an HTTP error status."""
        following = None
        try:
            answer = json.load(error)
            following = None if answer.get("next_epoch") is None else int(answer["next_epoch"])
            text = str(answer["error"])
            retry = float(answer.get("retry_ms", 1000 * _FIRST_RETRY))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException):
            # Not the controller's words, or a controller that ended while it spoke: the status is all there is.
            text, retry = f"HTTP status {error.code}", 1000 * _FIRST_RETRY
        reason = _REFUSALS.get(error.code, JoinError)(f"{self._about}: {text}")
        if isinstance(reason, NotReadyError):
            reason.retry, reason.next_epoch = retry / 1000, following
        return reason


def _trust() -> ssl.SSLContext:
    """Trusts the authorities in NETSUM_CA (PEM), or the system's if it is not set."""
    path = os.environ.get("NETSUM_CA") or None
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise JoinError(f"NETSUM_CA is {path!r}: {error.strerror or error}") from None


def plain(error: BaseException) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)
