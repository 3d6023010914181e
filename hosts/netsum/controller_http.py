# SPDX-License-Identifier: MIT
"""HTTP to the controller and to other members."""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from netsum.certificate_pin import PinError, check_certificate, pinned_context, split_pin
from netsum.errors import (
    DesynchronizedError,
    EvictedError,
    JoinError,
    NetsumError,
    NotReadyError,
    ServerCertificateError,
    UnauthorizedError,
    UnknownRankError,
)
from netsum.logs import LongWait

# HTTP to neighbors: no proxy, and an answer that comes whole within its time, however slowly its bytes do.


class _Until(io.RawIOBase):
    """The bytes of a connection until a deadline."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, deadline: float) -> None:
        self._sock, self._raw, self._deadline = sock, raw, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """http.client times each read; here the connection's timeout is that of the whole answer."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        timeout = sock.gettimeout()
        if timeout is not None:
            self.fp: Any = io.BufferedReader(_Until(sock, self.fp.detach(), time.monotonic() + timeout))


class _Connection(http.client.HTTPConnection):
    response_class = _Answer


class _TlsConnection(http.client.HTTPSConnection):
    response_class = _Answer


class _PinnedConnection(_TlsConnection):
    """Checks the certificate's ``digest`` before the request, which has the token, is sent."""

    def __init__(self, host: str, *, digest: str, **options: Any) -> None:
        super().__init__(host, context=pinned_context(), **options)
        self._digest = digest

    def connect(self) -> None:
        server = f"{self.host}:{self.port}"
        try:
            super().connect()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise  # it may be stopping
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise PinError(f"the server at {server} makes no TLS connection ({reason}): another program answers there") from None
        check_certificate(self.sock, server, self._digest)


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, trust: ssl.SSLContext | str | None) -> None:
        super().__init__(context=trust if isinstance(trust, ssl.SSLContext) else None)
        self._trust = trust

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        if isinstance(self._trust, str):
            pinned: Any = partial(_PinnedConnection, digest=self._trust)
            return self.do_open(pinned, req)
        return self.do_open(_TlsConnection, req, context=self._trust)


def open_url(request: urllib.request.Request | str, timeout: float, trust: ssl.SSLContext | str | None = None) -> Any:
    """The answer, to be closed. Connecting, asking and the answer may take ``timeout`` seconds each. ``trust`` has the
    authorities of an https server's certificate, or is the certificate's digest (:mod:`netsum.certificate_pin`). Raises OSError
    (urllib.error.HTTPError among them) or http.client.HTTPException, as reading it does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Http(), _Https(trust))
    return opener.open(request, timeout=timeout)


# A query to the controller, on a thread of its own: a controller that hangs must not hold up the member's
# traffic.


Answer = TypeVar("Answer")


class BackgroundRequest(Generic[Answer]):
    """Sent on construction, at ``begun`` (``time.monotonic()``)."""

    def __init__(self, request: Callable[[], Answer]) -> None:
        self.begun = time.monotonic()
        self._request = request
        self._over = threading.Event()
        self._answer: Answer
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="netsum query", daemon=True).start()

    def _run(self) -> None:
        try:
            self._answer = self._request()
        except Exception as error:
            self._error = error
        self._over.set()

    def done(self, timeout: float = 0.0) -> bool:
        """True if the answer comes within ``timeout`` seconds."""
        return self._over.wait(max(0.0, timeout))

    def result(self) -> Answer:
        """The answer, or raises the error that came instead."""
        if self._error is not None:
            raise self._error
        return self._answer


# Queries to the controller's HTTP API.


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


class ControllerRequests:
    """Queries about one thing of a controller's; ``about`` is its name in errors."""

    def __init__(self, path: str, token: str | None, controller: str, about: str) -> None:
        """``path`` is the thing's own, from the root; ``controller`` is the controller's URL, which may have the digest of its
        certificate (:mod:`netsum.certificate_pin`). Raises JoinError."""
        if not controller.startswith(("http://", "https://")):
            raise JoinError(f"the controller is {controller.partition('?')[0]!r}, not a URL such as http://127.0.0.1:8080")
        self.address, digest = split_pin(controller)
        self._url = f"{self.address.rstrip('/')}{path}"
        self._token, self.controller, self._about = token, controller, about
        self._trust = digest or (_trust() if controller.startswith("https://") else None)

    def request(self, method: str, path: str, body: Any = None, timeout: float = REQUEST_TIMEOUT) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        with open_url(request, timeout, self._trust) as answer:
            return json.load(answer)

    def until(self, deadline: float, request: Callable[[float], Answer]) -> Answer:
        """Query until there is an answer, or until the deadline; ``request`` gets the seconds that it may take."""
        pause = _FIRST_RETRY
        with LongWait(self._about, f"the controller at {self.address} has not answered yet") as waits:
            while True:
                left = min(REQUEST_TIMEOUT, max(_FIRST_RETRY, deadline - time.monotonic()))
                try:
                    return self.once(partial(request, left))
                except ServerCertificateError:
                    raise  # the server stays another
                except NotReadyError as error:
                    waits.reason = str(error).removeprefix(f"{self._about}: ")
                    pause = max(pause, error.retry)
                    if time.monotonic() + pause > deadline:
                        raise
                time.sleep(pause)
                pause = min(2 * pause, _SLOWEST_RETRY)

    def once(self, request: Callable[[], Answer]) -> Answer:
        """Query once. Raises :class:`NotReadyError` if a later query may help (:class:`ServerCertificateError` if only another
        server's answer would), else what the controller's refusal means."""
        try:
            return request()
        except urllib.error.HTTPError as error:
            with error:
                raise self.refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            if isinstance(getattr(error, "reason", None), PinError):
                raise ServerCertificateError(f"{self._about}: {plain(error)}") from None
            raise NotReadyError(f"the controller at {self.address} does not answer: {plain(error)}") from None
        except (ValueError, KeyError) as error:
            raise JoinError(f"the controller at {self.address} gave no descriptor: {error}") from None

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
