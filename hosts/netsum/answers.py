"""HTTP to neighbors: no proxy, and an answer that comes whole within its time, however slowly its bytes do."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.request
from typing import Any


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


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, trust: ssl.SSLContext | None) -> None:
        super().__init__(context=trust)
        self._trust = trust

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, req, context=self._trust)


def open_url(request: urllib.request.Request | str, timeout: float, trust: ssl.SSLContext | None = None) -> Any:
    """The answer, to be closed. Connecting, asking and the answer may take ``timeout`` seconds each. Raises OSError
    (urllib.error.HTTPError among them) or http.client.HTTPException, as reading it does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Http(), _Https(trust))
    return opener.open(request, timeout=timeout)
