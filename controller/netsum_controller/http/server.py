# SPDX-License-Identifier: MIT
"""An HTTP server, with TLS, that bounds what an untrusted sender can cost before its token is read.

A request has one deadline, including the handshake, so a client that trickles bytes holds a thread no longer than others. When
all places are taken, a connection without a token makes room: the oldest from the address that has most. When members hold all
places, the newcomer gets a 503 and asks again.
"""

# Built on http.server and not on cheroot (11.1), which times each recv instead of the request, makes the TLS handshake in its
# accept loop (one silent client stops all), cannot make room, and refuses in plain text. Overriding all of that would
# leave this file.

from __future__ import annotations

import io
import json
import logging
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from netsum_controller.errors import InputError, StateError

log = logging.getLogger(__name__)

MAX_TARGET = 2048
"""Characters of a request's path and query."""

MAX_HEAD = 16 * 1024
"""Bytes of a request line and its headers (of which http.server takes 100)."""

MAX_BODY = 64 * 1024
"""Bytes of a request's body."""

MAX_CONNECTIONS = 512
"""Connections served at once, each by a thread: two for each rank of a job of 256."""

REQUEST_TIME = 10.0
"""Seconds that a client has for its whole request, and again for taking the answer."""


CLOSING_TIME = 10.0
"""Seconds that closing waits for the requests in flight."""


class RequestTooLargeError(Exception):
    """More than :data:`MAX_HEAD` and :data:`MAX_BODY` allow."""


class _Requests(io.RawIOBase):
    """A connection's bytes, ``budget`` of them at most, until ``deadline`` (:func:`time.monotonic`). When the ``server`` closes,
    they do not just end, as if half a request were a whole one."""

    def __init__(self, connection: socket.socket, deadline: float, budget: int, server: BoundedHTTPServer) -> None:
        self._connection, self._deadline, self._budget, self._server = connection, deadline, budget, server

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        if self._budget <= 0:
            raise RequestTooLargeError
        self._connection.settimeout(left)
        count = self._connection.recv_into(memoryview(buffer)[: self._budget])
        if not count and self._server.closing:
            raise ConnectionAbortedError("the server is closing")
        self._budget -= count
        return count


class BoundedHandler(BaseHTTPRequestHandler):
    """A request handler behind the limits; answers in JSON, also where http.server itself refuses."""

    server_version = "netsum"
    sys_version = ""
    server: BoundedHTTPServer
    request_time = REQUEST_TIME

    def setup(self) -> None:
        deadline = time.monotonic() + self.request_time
        super().setup()
        self.connection.settimeout(self.request_time)
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Requests(self.connection, deadline, MAX_HEAD + MAX_BODY, self.server))

    def parse_request(self) -> bool:
        try:
            if not super().parse_request():
                return False
            urlsplit(self.path)
        except RequestTooLargeError:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too long")
            return False
        except ValueError:  # brackets around something other than an IPv6 address
            self.path = "/"
            self.send_error(HTTPStatus.BAD_REQUEST, "the path cannot be read")
            return False
        if len(self.path) > MAX_TARGET:
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG, f"the path is longer than {MAX_TARGET} characters")
            return False
        if sum(len(name) + len(value) for name, value in self.headers.items()) > MAX_HEAD:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers are longer than {MAX_HEAD} bytes")
            return False
        return True

    def is_awaited(self) -> bool:
        """True if the client is still there: it has not closed its side (which shows even behind bytes that were not read).
        Raises :class:`StateError` if the server is closing."""
        if self.server.closing:
            raise StateError("the controller is stopping: retry when it has started again")
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP)
        return not poll.poll(0)

    def answer(self, status: int, body: dict[str, Any]) -> None:
        self.answer_bytes(status, "application/json", json.dumps(body).encode())

    def answer_bytes(
        self, status: int, content_type: str, data: bytes, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.answer_head(status, {"Content-Type": content_type, "Content-Length": str(len(data)), **headers})
        if self.command != "HEAD":
            self.wfile.write(data)

    def answer_head(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer's status and headers; its body ends with the connection."""
        self.connection.settimeout(self.request_time)
        self.request_version = self.protocol_version  # http.server answers what it cannot read as HTTP/0.9, without headers
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """http.server's own refusals, in our format."""
        self.answer(code, {"error": printable(message or HTTPStatus(code).phrase)})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        client = self.address_string()
        log.info("%s %s", client, printable(format % args), extra={"client": client})


def printable(text: str) -> str:
    """The text without characters that could forge a log line or move a terminal's cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)


class BoundedHTTPServer(ThreadingHTTPServer):
    """Serves each connection in a thread, ``limit`` at once; with ``tls`` it speaks HTTPS."""

    daemon_threads = True
    request_queue_size = 256  # every rank of every job may come at once

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BoundedHandler],
        tls: ssl.SSLContext | None = None,
        limit: int = MAX_CONNECTIONS,
    ) -> None:
        self._limit = limit
        self._open: dict[socket.socket, str | None] = {}
        """The connections that hold a place, oldest first, and their address; None for one that has shown a token."""
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._served = 0
        """Connections that a thread serves, or is about to."""
        self.closing = False
        self._encrypted = tls is not None
        super().__init__(address, handler)
        if tls is not None:  # each connection's thread makes its handshake
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def trust(self, connection: socket.socket) -> None:
        """The connection is a member's: no other may take its place."""
        with self._lock:
            if connection in self._open:
                self._open[connection] = None

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._served += 1
        try:
            super().process_request(request, client_address)
        except BaseException:  # there is no thread
            self._end_one()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._end_one()

    def _end_one(self) -> None:
        with self._ended:
            self._served -= 1
            self._ended.notify_all()

    def server_close(self) -> None:
        """Close, and wait until requests that have come are answered and all connections have ended, but at most
        :data:`CLOSING_TIME`. Call it when no more connections are accepted."""
        super().server_close()
        with self._ended:
            self.closing = True
            for connection in self._open:
                with suppress(OSError):  # it has ended by itself
                    socket.socket.shutdown(connection, socket.SHUT_RD)
            if not self._ended.wait_for(lambda: not self._served, CLOSING_TIME):
                log.warning("%d requests are still in progress, and will be rejected", self._served)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            admitted = len(self._open) < self._limit or self._displace()
            if admitted:
                self._open[request] = client_address[0]
        if not admitted:
            self._turn_away(request, client_address)
        return admitted

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def _displace(self) -> bool:
        """Close one connection without a token, if there is any. Call it under the lock."""
        addresses = Counter(address for address in self._open.values() if address is not None)
        if not addresses:
            return False
        ((crowded, _),) = addresses.most_common(1)
        victim = next(connection for connection, address in self._open.items() if address == crowded)
        del self._open[victim]
        log.warning("closed a connection from %s: too many connections", crowded)
        with suppress(OSError):  # it has ended by itself
            socket.socket.shutdown(victim, socket.SHUT_RDWR)  # not TLS's, which its thread may be in
        return True

    def _turn_away(self, request: Any, client_address: Any) -> None:
        log.warning("rejected a connection from %s: too many connections", client_address)
        if self._encrypted:
            return  # an answer would need a handshake
        body = b'{"error": "too many connections at once", "retry_ms": 500}'
        head = f"HTTP/1.0 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with suppress(OSError):
            request.setblocking(False)
            request.send(head.encode() + body)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's fingerprint
        log.debug("connection from %s ended badly", client_address, exc_info=True)


def tls_context(certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """For a server with this certificate (chain) and key, PEM files. Raises :class:`InputError`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise InputError(f"{certificate} and {key} are not a certificate and its key, as PEM ({error.reason})") from None
    except OSError as error:
        missing = next((path for path in (certificate, key) if not Path(path).is_file()), certificate)
        raise InputError(f"{missing}: {error.strerror}") from None
    return context
