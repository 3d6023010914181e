# SPDX-License-Identifier: MIT
"""`netsum serve` stops while requests are in flight: each has ended, or is refused, before the state file is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.errors import StateError
from netsum_controller.http import server as walls
from netsum_controller.http.api import HttpServer
from netsum_controller.jobs.membership import Membership
from netsum_controller.state.store import Store
from netsum_controller.web import live_page

from tests.controller.test_http_walls import MEMBERS, Raw, request
from tests.threads import PATIENCE, until

WHO = {"rank": 0, "instance": "a"}
FOR_EVER = 3600.0
"""Seconds that no test waits."""


def in_thread(call: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


class Guard:
    """A lock that says who asks for it."""

    def __init__(self, lock: Any, asks: Callable[[], None]) -> None:
        self._lock, self._asks = lock, asks

    def __enter__(self) -> None:
        self._asks()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.fixture
def store(controller: Controller) -> Store:
    return controller.context.store


def test_the_state_file_is_closed_when_no_request_uses_it(store: Store) -> None:
    happened: list[str] = []
    inside, closing = threading.Event(), threading.Event()

    def meanwhile() -> int:
        inside.set()
        assert closing.wait(PATIENCE)
        happened.append("read")
        return 1

    def close() -> None:
        store.close()
        happened.append("closed")
        closing.set()  # if nothing has kept it

    store._db.create_function("meanwhile", 0, meanwhile)
    reads = in_thread(lambda: store.rows("SELECT meanwhile() FROM meta LIMIT 1"))
    assert inside.wait(PATIENCE)
    store._guard = Guard(store._guard, closing.set)  # type: ignore[assignment]
    closes = in_thread(close)
    for thread in (reads, closes):
        thread.join()
    assert happened == ["read", "closed"]


@pytest.mark.parametrize(
    "use",
    [
        Store.jobs,
        lambda store: store.job("resnet"),
        lambda store: store.version,
        lambda store: store.next_epoch,
        lambda store: store.used_ports(),
        lambda store: store.transaction().__enter__(),
    ],
)
def test_a_closed_state_file_is_refused(store: Store, use: Callable[[Store], Any]) -> None:
    store.close()
    store.close()
    assert not store.changing
    with pytest.raises(StateError, match=r"state\.db: the controller has stopped"):
        use(store)


@pytest.fixture
def port(controller: Controller, spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> int:
    """A controller that serves the job and the live page, and whose closing waits as long as requests are in flight."""
    monkeypatch.setattr(walls, "CLOSING_TIME", FOR_EVER)
    monkeypatch.setattr(live_page, "ALIVE", FOR_EVER)
    controller.create_job(spec)
    return int(controller.serve(web=True, watch=None).rpartition(":")[2])


def test_a_request_under_way_is_answered_first(controller: Controller, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, happened = Raw(port), list[str]()
    inside, release = threading.Event(), threading.Event()
    real, close = Membership.join, Store.close

    def join(*given: Any) -> Any:
        inside.set()
        assert release.wait(PATIENCE)
        try:
            return real(*given)
        finally:
            happened.append("joined")

    def noted(store: Store) -> None:
        happened.append("closed")
        release.set()  # if nothing has kept it
        close(store)

    monkeypatch.setattr(Membership, "join", join)
    monkeypatch.setattr(Store, "close", noted)
    with raw.open() as connection:
        connection.sendall(request("join", WHO))
        assert inside.wait(PATIENCE)
        monkeypatch.setattr(walls.BoundedHTTPServer, "server_close", _first(release.set, walls.BoundedHTTPServer.server_close))
        controller.close()
        assert raw.answer(connection)[0] == 200
    assert happened == ["joined", "closed"]


def _first(call: Callable[[], None], then: Callable[..., Any]) -> Callable[..., Any]:
    def both(*given: Any) -> Any:
        call()
        return then(*given)

    return both


def test_who_waits_is_sent_away(controller: Controller, port: int) -> None:
    """One that waits for the lock, which a command has; one that has sent half a request, one that reads the live page."""
    raw = Raw(port)
    with controller.context.store.lock, raw.open() as waits, raw.open() as half, raw.open() as reads:
        reads.sendall(b"GET /v1/live HTTP/1.1\r\n\r\n")
        assert reads.recv(1)
        half.sendall(MEMBERS[:40])
        waits.sendall(request("join", WHO))
        line = controller.context.store.lock._line
        until(lambda: len(line) == 2)
        controller.close()
        assert half.makefile("rb").read() == b""  # not an answer to half of what was asked
        status, answer = raw.answer(waits)
    assert (status, answer["error"]) == (503, "the controller is stopping: retry when it has started again")


def test_what_does_not_end_in_time_is_refused_the_state(
    controller: Controller, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, release = threading.Event(), threading.Event()
    real = Membership.leave

    def leave(*given: Any) -> Any:
        inside.set()
        assert release.wait(PATIENCE)
        return real(*given)

    monkeypatch.setattr(Membership, "leave", leave)
    monkeypatch.setattr(walls, "CLOSING_TIME", 0.0)
    controller.create_job(spec)
    server = HttpServer(controller.context, controller.membership, "127.0.0.1", 0)
    raw = Raw(server.port)
    with raw.open() as connection:
        connection.sendall(request("leave", WHO))
        assert inside.wait(PATIENCE)
        server.close()
        controller.close()
        release.set()
        status, answer = raw.answer(connection)
    assert status == 503
    assert "the controller has stopped" in str(answer["error"])
