# SPDX-License-Identifier: MIT
"""A controller that gives canned answers."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.threads import meanwhile

CUT = b"as many bytes as are announced, of which none comes: the controller was killed while it spoke"


class Controller(ThreadingHTTPServer):
    """Gives ``answers`` one after the other, repeating the last, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, str | None, Any]] = []

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that dislikes the certificate closes the connection."""


class _Handler(BaseHTTPRequestHandler):
    server: Controller

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = json.loads(body) if body else None
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization"), asked))
        answers = self.server.answers
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(b"" if answer is CUT else data)

    do_GET = _answer  # noqa: N815 - http.server's names
    do_POST = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        pass


@contextlib.contextmanager
def canned(tls: ssl.SSLContext | None = None) -> Iterator[Controller]:
    """A controller that listens."""
    with Controller(tls) as server, meanwhile(partial(server.serve_forever, 0.01), server.shutdown):
        yield server
