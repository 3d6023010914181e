# SPDX-License-Identifier: MIT
"""A controller that is known by its certificate's digest."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import netsum
import pytest
from netsum import controller_client
from netsum.certificate_pin import parse_digest, pinned_url, split_pin
from netsum.controller_client import ControllerClient
from netsum.errors import JoinError, NotReadyError, ServerCertificateError
from netsum.transports import InMemoryTransport
from netsum_controller.http.certificate import self_signed

from tests.hosts.canned import Controller, canned
from tests.hosts.network import descriptor
from tests.hosts.tls import server_tls
from tests.threads import PATIENCE, meanwhile

OURS = descriptor(1, 3).to_dict()
WRONG = "sha256:" + "00" * 32


def client(url: str, digest: str) -> ControllerClient:
    return ControllerClient("test", 1, "secret", pinned_url(url, digest))


def deadline() -> float:
    return time.monotonic() + PATIENCE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake may take long on a busy machine."""
    for name in ("_REJOIN_TIMEOUT", "_LEAVE_TIMEOUT", "_DIAGNOSIS_TIMEOUT"):
        monkeypatch.setattr(controller_client, name, PATIENCE)


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    return server_tls(tmp_path / "tls")


@pytest.fixture
def controller(tls: tuple[ssl.SSLContext, str]) -> Iterator[Controller]:
    with canned(tls[0]) as server:
        yield server


def test_the_right_certificate_is_trusted_by_every_request(controller: Controller, tls: tuple[ssl.SSLContext, str]) -> None:
    """Without an authority, and whatever the name."""
    pinned = pinned_url(controller.url, tls[1])
    group_of_two = {"job": "test/pair", "rank": 0}
    controller.answers = [(200, OURS), (200, {}), (200, group_of_two), (200, OURS), (200, {"state": "done"}), (200, {})]
    with netsum.join("test", 1, token="secret", controller=pinned, transport=InMemoryTransport(), timeout=PATIENCE) as comm:
        assert comm.rank == 1
    joined = ControllerClient("test", 1, "secret", pinned)
    assert joined.group(7, "label", [0, 1], deadline()).controller == pinned
    assert joined.rejoin(7, None).rank == 1
    joined.explain(4)
    joined.leave()
    calls = [path.partition("?")[0].rpartition("/")[2] for _, path, _, _ in controller.asked]
    assert calls == ["join", "leave", "groups", "join", "diagnosis", "leave"]
    assert {token for _, _, token, _ in controller.asked} == {"Bearer secret"}


@contextmanager
def recording(tls: ssl.SSLContext, received: list[bytes]) -> Iterator[str]:
    """A TLS server that appends what each client sends after the handshake; its URL."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            received.append(b"")
            with connection, suppress(OSError), tls.wrap_socket(connection, server_side=True) as secure:
                while part := secure.recv(9000):
                    received[-1] += part

    with socket.create_server(("127.0.0.1", 0)) as server, meanwhile(serve, lambda: server.shutdown(socket.SHUT_RDWR)):
        yield "https://{}:{}".format(*server.getsockname())


def test_another_server_gets_no_byte(tls: tuple[ssl.SSLContext, str]) -> None:
    received: list[bytes] = []
    with recording(tls[0], received) as url:
        with pytest.raises(ServerCertificateError) as caught:
            client(url, WRONG).join(None, deadline())  # raised at once: the test does not take the deadline's time
        client(url, WRONG).leave()
        assert f"certificate {tls[1]}, and {WRONG} is expected" in client(url, WRONG).explain(4)[0]
    assert received == [b""] * 3
    text = str(caught.value)
    assert text.startswith("job 'test', rank 1: the server at 127.0.0.1:")
    assert f"has the certificate {tls[1]}, and {WRONG} is expected: either another server answers there, or" in text


def test_a_certificate_that_changes_between_two_requests(
    controller: Controller, tls: tuple[ssl.SSLContext, str], tmp_path: Path
) -> None:
    controller.answers = [(200, OURS)]
    joined = client(controller.url, tls[1])
    joined.join(None, deadline())
    new = self_signed(tmp_path / "new", ["127.0.0.1"])
    tls[0].load_cert_chain(new.path)
    with pytest.raises(NotReadyError, match=new.digest):  # by which a member goes on without the controller
        joined.rejoin(7, None)
    assert len(controller.asked) == 1
    assert client(controller.url, new.digest).join(None, deadline()).rank == 1


def test_a_server_without_tls() -> None:
    with canned() as server:
        server.answers = [(200, OURS)]
        url = server.url.replace("http:", "https:")
        with pytest.raises(ServerCertificateError, match=r"127\.0\.0\.1:\d+ makes no TLS connection \(.+\): another program"):
            client(url, WRONG).join(None, deadline())
        assert server.asked == []


def test_a_server_that_hangs_up_in_the_handshake_is_queried_again(tls: tuple[ssl.SSLContext, str]) -> None:
    """It may be stopping, and another start at its address."""

    def serve() -> None:
        server.accept()[0].close()
        connection, _ = server.accept()
        with connection, tls[0].wrap_socket(connection, server_side=True) as secure, secure.makefile("rb") as request:
            head = b"".join(iter(request.readline, b"\r\n"))
            request.read(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            secure.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(OURS).encode())

    with socket.create_server(("127.0.0.1", 0)) as server, meanwhile(serve):
        url = "https://{}:{}".format(*server.getsockname())
        assert client(url, tls[1]).join(None, deadline()).rank == 1


@pytest.mark.parametrize(
    ("controller", "words"),
    [
        (f"http://127.0.0.1:1#cert={WRONG}", "a certificate needs https://"),
        ("https://127.0.0.1:1#cert=sha256:12", "has 2 characters after sha256:"),
        ("https://127.0.0.1:1#cert=md5:12", "must begin with sha256:"),
        ("https://127.0.0.1:1#sha256:12", "behind # there must be cert=sha256:"),
        ("netsum://127.0.0.1:1/?token=secret", "the controller is 'netsum://127.0.0.1:1/', not a URL such as"),
    ],
)
def test_a_pin_that_makes_no_sense(controller: str, words: str) -> None:
    with pytest.raises(JoinError, match=words) as caught:
        ControllerClient("test", 1, "secret", controller)
    assert "secret" not in str(caught.value)


def test_a_pin_survives_the_url() -> None:
    digest = "sha256:" + "aB" * 32
    assert split_pin(pinned_url("https://h:1", parse_digest(digest))) == ("https://h:1", digest.lower())
    assert split_pin("https://h:1") == ("https://h:1", None)
