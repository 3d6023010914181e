# SPDX-License-Identifier: MIT
"""The HTTP endpoint against clients that try to exhaust it, and over TLS."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from netsum import Descriptor, JoinError, NotReadyError
from netsum.controller_client import ControllerClient
from netsum_controller import Controller, JobSpec
from netsum_controller.cli import cli
from netsum_controller.errors import InputError
from netsum_controller.http import api
from netsum_controller.http.api import HttpServer
from netsum_controller.jobs.membership import Membership

from tests.controller.certificates import Certificates
from tests.controller.members import TOKEN
from tests.threads import PATIENCE, until

MEMBERS = f"GET /v1/jobs/resnet/members HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()

JOIN = (
    f"POST /v1/jobs/resnet/join HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 30\r\n\r\n"
    '{"rank": 0, "instance": "a"   }'
).encode()


def request(action: str, body: object) -> bytes:
    """A member's request; a GET if it has no body."""
    method, text = ("GET", "") if body is None else ("POST", json.dumps(body))
    head = f"{method} /v1/jobs/resnet/{action} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}"
    return f"{head}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


class Raw:
    """Speaks to the endpoint byte by byte."""

    def __init__(self, port: int, places: Callable[[], list[str | None]] = list) -> None:
        self.port, self.places = port, places

    def open(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def __call__(self, request: bytes) -> tuple[int, dict[str, object]]:
        with self.open() as connection:
            connection.sendall(request)
            return self.answer(connection)

    def serves(self) -> None:
        """Check that it answers a member; an earlier connection's thread may need a moment to end."""

        def answers() -> bool:
            with suppress(ConnectionError, IndexError):  # closed without an answer: we were too slow
                return self(MEMBERS)[0] == 200
            return False

        until(answers)

    @staticmethod
    def answer(connection: socket.socket) -> tuple[int, dict[str, object]]:
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


@pytest.fixture
def serve(controller: Controller, spec: JobSpec) -> Iterator[Callable[..., Raw]]:
    controller.create_job(spec)
    with ExitStack() as stack:

        def start(**limits: float) -> Raw:
            server = HttpServer(controller.context, controller.membership, "127.0.0.1", 0, **limits)  # type: ignore[arg-type]
            stack.callback(server.close)
            return Raw(server.port, lambda: list(server._server._open.values()))

        yield start


@pytest.mark.parametrize(
    ("request_bytes", "status", "words"),
    [
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n\r\n", 414, "longer than 2048"),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", 414, "Too Long"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431, "Too many headers"),
        (b"GET / HTTP/1.1\r\n" + (b"a: " + b"b" * 1000 + b"\r\n") * 20 + b"\r\n", 431, "longer than 16384"),
        (b"GET / HTTP/1.1\r\n" + (b"a: " + b"b" * 60000 + b"\r\n") * 90 + b"\r\n", 431, "too long"),
        (b"GET / HTTP/9.9\r\n\r\n", 505, "Invalid HTTP version"),
        (b"GET http://[x HTTP/1.1\r\n\r\n", 400, "path cannot be read"),
        (b"GET http://[x HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431, "Too many headers"),
        (b"BREW / HTTP/1.1\r\n\r\n", 501, "Unsupported method"),
        (b"\x1b[2Jgarbage\r\n\r\n", 400, "Bad request syntax"),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413, "larger than 65536"),
        (b"POST / HTTP/1.1\r\n\r\n", 411, "Content-Length"),
        (b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 411, "Content-Length"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411, "Content-Length"),
        (MEMBERS.replace(b"members", b"diagnosis?" + b"block=1&" * 20), 400, "more than 8 fields"),
        (MEMBERS.replace(b"members", b"diagnosis?block=" + b"9" * 1500), 400, "block must be"),
    ],
)
def test_too_much(serve: Callable[..., Raw], request_bytes: bytes, status: int, words: str) -> None:
    raw = serve()
    with raw.open() as connection:
        try:
            connection.sendall(request_bytes)
        except ConnectionError:
            pass  # the server had heard enough; its answer may be lost with the connection
        else:
            got, answer = raw.answer(connection)
            assert got == status
            assert words in str(answer["error"])
            assert str(answer["error"]).isprintable()
    assert raw(MEMBERS)[0] == 200


REQUESTS = st.builds(
    lambda pieces, cut: b"".join(pieces)[:cut],
    st.lists(
        st.one_of(
            st.sampled_from([MEMBERS, JOIN, b"\r\n", b"\r\n\r\n", b"Content-Length: 30\r\n", b"\x00", b"%", b"HTTP/1.1"]),
            st.binary(max_size=40),
        ),
        max_size=6,
    ),
    st.integers(0, 2000),
)


def test_garbage(serve: Callable[..., Raw]) -> None:
    """Any input gets one sentence of JSON or a closed connection, and the next client is served."""
    raw = serve()

    @given(REQUESTS)
    def send(garbage: bytes) -> None:
        with raw.open() as connection:
            try:
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.makefile("rb").read()
            except ConnectionError:
                return
            if answer:
                head, _, body = answer.partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.0 ")
                assert b" 500 " not in head
                assert isinstance(json.loads(body), dict)

    send()
    assert raw(MEMBERS)[0] == 200


def test_a_client_that_drips_is_cut_off(serve: Callable[..., Raw]) -> None:
    """A byte now and then does not count as progress: the deadline is for the whole request."""
    raw = serve(request_time=0.5)
    with raw.open() as connection:
        connection.settimeout(0.05)
        ended = False
        for byte in MEMBERS.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * 2000):
            connection.sendall(bytes([byte]))
            try:
                ended = connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            break
        assert ended
    with raw.open() as connection:  # the same in the middle of a body
        connection.sendall(b"POST /v1/jobs/resnet/join HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")
        assert raw.answer(connection)[0] == 408
    raw.serves()


def test_untrusted_senders_make_room(serve: Callable[..., Raw]) -> None:
    """Connections without a token cannot keep a member out: the oldest of them is closed."""
    raw = serve(limit=3)
    with ExitStack() as stack:
        held = [stack.enter_context(raw.open()) for _ in range(5)]
        for connection in held:
            with suppress(ConnectionError):
                connection.sendall(b"GET")
        assert raw(MEMBERS)[0] == 200
        for gone in held[:2]:
            with suppress(ConnectionError):
                assert gone.recv(1) == b""
        held[4].sendall(MEMBERS[3:])  # the newest kept its place
        assert raw.answer(held[4])[0] == 200
    raw.serves()  # all places are free again


def test_members_do_not_make_room(serve: Callable[..., Raw], controller: Controller) -> None:
    raw = serve(limit=2)
    with ExitStack() as stack:
        with controller.context.store.lock:
            held = [stack.enter_context(raw.open()) for _ in range(2)]
            for connection in held:
                connection.sendall(JOIN.replace(b"   }", b"  }"))  # waits for the lock
            until(lambda: raw.places() == [None, None])  # their tokens are read
            with raw.open() as turned_away:
                status, body = raw.answer(turned_away)
            assert status == 503
            assert body["retry_ms"] == 500
        assert [raw.answer(connection)[0] for connection in held] == [200, 200]
    raw.serves()


@pytest.mark.parametrize("action", ["join", "rejoin", "groups", "diagnosis"])
def test_a_question_that_missing_waits_for_is_dropped(
    serve: Callable[..., Raw], controller: Controller, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Members give a query up and ask again while a command has the lock; the last query need not wait for the others."""
    answered: list[str] = []

    def note(where: object, name: str) -> None:
        real = getattr(where, name)

        def noted(*given: Any) -> Any:
            answered.append(name)
            return real(*given)

        monkeypatch.setattr(where, name, noted)

    note(Membership, "join")
    note(Membership, "group")
    note(api, "diagnose")
    descriptor = controller.join("resnet", TOKEN, 0, "a")
    who = {"rank": 0, "instance": "a", "epoch": descriptor.epoch}
    asked = {"join": {"rank": 0, "instance": "b"}, "rejoin": who, "groups": {**who, "label": "some", "ranks": [0]}}
    query = request(action.removeprefix("re"), asked.get(action))
    raw = serve()
    with ExitStack() as stack:
        with controller.context.store.lock:
            answered.clear()
            dead = [raw.open() for _ in range(5)]
            for connection in dead:
                connection.sendall(query)
            until(lambda: raw.places() == [None] * 5)  # all have come as far as the lock, or nearly
            for connection in dead:
                connection.close()
            living = stack.enter_context(raw.open())
            living.sendall(query)
            until(lambda: raw.places() == [None])  # nor do the dead take up places
        status, answer = raw.answer(living)
    assert (status, len(answered)) == (200, 1), answer


def test_a_member_that_leaves_need_not_wait(serve: Callable[..., Raw], controller: Controller) -> None:
    controller.join("resnet", TOKEN, 0, "a")
    raw = serve()
    with controller.context.store.lock, raw.open() as connection:
        connection.sendall(request("leave", {"rank": 0, "instance": "a"}))
        until(lambda: raw.places() == [None])
    until(lambda: controller.job("resnet").epoch.seats[0].left)


def test_http_over_tls(controller: Controller, spec: JobSpec, certificates: Certificates) -> None:
    controller.create_job(spec)
    url = controller.serve(tls=(certificates.path("server.pem"), certificates.path("server.key")))
    assert url.startswith("https://127.0.0.1:")
    request = urllib.request.Request(f"{url}/v1/jobs/resnet/members", headers={"Authorization": f"Bearer {TOKEN}"})
    ours = ssl.create_default_context(cafile=certificates.path("ca.pem"))
    with urllib.request.urlopen(request, context=ours, timeout=PATIENCE) as answer:
        assert json.load(answer)["job"] == "resnet"
    theirs = ssl.create_default_context(cafile=certificates.path("other.pem"))
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(request, context=theirs, timeout=PATIENCE)
    raw = Raw(int(url.rpartition(":")[2]))
    with raw.open() as plain:
        plain.sendall(MEMBERS)
        assert b"resnet" not in plain.makefile("rb").read()
    assert controller.join("resnet", TOKEN, 0, "a").controller == url


def test_members_join_over_tls(
    controller: Controller, spec: JobSpec, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.create_job(spec)
    url = controller.serve(tls=(certificates.path("server.pem"), certificates.path("server.key")))

    def join(patience: float = PATIENCE) -> Descriptor:
        return ControllerClient.from_options("resnet", 0, TOKEN, url).join(None, time.monotonic() + patience)

    with pytest.raises(NotReadyError, match="CERTIFICATE_VERIFY_FAILED"):
        join(3.0)
    monkeypatch.setenv("NETSUM_CA", certificates.path("ca.pem"))
    assert join().controller == url
    monkeypatch.setenv("NETSUM_CA", certificates.path("missing.pem"))
    with pytest.raises(JoinError, match=r"NETSUM_CA is .*missing\.pem': No such file"):
        join()


def test_files_that_are_no_certificate(controller: Controller, certificates: Certificates) -> None:
    with pytest.raises(InputError, match=r"missing\.key: No such file"):
        controller.serve(tls=(certificates.path("server.pem"), certificates.path("missing.key")))
    with pytest.raises(InputError, match="are not a certificate and its key"):
        controller.serve(tls=(certificates.path("server.pem"), certificates.path("client.key")))
    done = CliRunner().invoke(cli, ["serve", "--tls-cert", certificates.path("server.pem")])
    assert done.exit_code == 2
    assert "--tls-cert and --tls-key go together" in done.output
