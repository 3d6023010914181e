# SPDX-License-Identifier: MIT
"""Answers over HTTP that come byte by byte, or not whole."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from netsum import NotReadyError
from netsum.controller_client import ControllerClient
from netsum.controller_http import open_url

HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def answering(speak: Callable[[socket.socket], Any]) -> Iterator[str]:
    """A server that does this with a connection, until the client has enough; its URL."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(9000)
                speak(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield "http://{}:{}".format(*server.getsockname())
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("begins", [b"HTTP/1.0", HEAD, HEAD + b"\r\n", HEAD + b"Content-Length: 1000000\r\n\r\n"])
def test_an_answer_has_one_deadline_however_slowly_it_comes(begins: bytes) -> None:
    """Something comes every few milliseconds, and so no single read takes long."""

    def trickle(connection: socket.socket) -> None:
        connection.sendall(begins)
        for _ in range(12_000):
            connection.sendall(b" ")
            time.sleep(0.005)  # less than the timeout; if it takes longer, that is one too

    with answering(trickle) as url, pytest.raises(TimeoutError), open_url(url, 0.2) as answer:
        answer.read()


def test_half_an_answer_is_none() -> None:
    half = HEAD + b"Content-Length: 100\r\n\r\n" + b'{"rank": '
    with answering(lambda connection: connection.sendall(half)) as url:
        with open_url(url, 60.0) as answer, pytest.raises(http.client.IncompleteRead):
            answer.read()
        with pytest.raises(NotReadyError, match="does not answer"):
            ControllerClient("resnet", 0, "token", url).join(None, time.monotonic())


def test_a_whole_answer_comes_although_the_connection_stays_open() -> None:
    done = threading.Event()

    def stay(connection: socket.socket) -> None:
        connection.sendall(HEAD + b"Content-Length: 3\r\n\r\nyes")
        done.wait()

    with answering(stay) as url:
        with open_url(url, 60.0) as answer:
            assert answer.read() == b"yes"
        done.set()
