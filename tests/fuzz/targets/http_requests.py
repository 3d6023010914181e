# SPDX-License-Identifier: MIT
"""The controller's HTTP endpoint: any bytes get an answer that says what was wrong, and only checked values get further."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from netsum.descriptor import Descriptor, MemberLink, without_switch
from netsum_controller.errors import InputError, UnauthorizedError, UnknownJobError
from netsum_controller.http import api as http_api
from netsum_controller.monitoring.metrics import encoded
from prometheus_client import CollectorRegistry

from tests.fuzz.targets.api import FuzzTarget
from tests.fuzz.targets.wire import DESCRIPTOR

_TOKEN = "correct-horse"


class Membership:
    """Stands in for the controller's membership, and checks that the endpoint passes on only what it promises."""

    def job(self, name: str, token: str) -> Any:
        if name != "resnet":
            raise UnknownJobError(f"there is no job {name!r}")
        if token != _TOKEN:
            raise UnauthorizedError("wrong token")
        return SimpleNamespace(name=name, epoch=SimpleNamespace(number=7, seats=()))

    def join(
        self,
        name: str,
        token: str,
        rank: int,
        instance: str,
        link: Any,
        place: Any = None,
        peer: str | None = None,
        host_id: str | None = None,
        group: str | None = None,
    ) -> Descriptor:
        self._checked(name, token, rank, instance)
        assert not host_id or (len(host_id) == 32 and int(host_id, 16) >= 0)
        assert group is None or isinstance(group, str)
        assert peer is None or 0 < int(peer.rpartition(":")[2]) < 1 << 16
        assert place is None or all(value is None or 0 <= value < 1 << 32 for value in place)
        assert link is None or isinstance(link, dict)
        try:
            MemberLink(**(link or {}))
        except (TypeError, ValueError) as error:
            raise InputError(f"link: {error}") from None
        return DESCRIPTOR

    def leave(self, name: str, token: str, rank: int, instance: str) -> bool:
        self._checked(name, token, rank, instance)
        return True

    def group(
        self,
        name: str,
        token: str,
        rank: int,
        instance: str,
        epoch: int,
        label: str,
        ranks: Any,
        algorithm: str | None = None,
    ) -> tuple[str, int]:
        self._checked(name, token, rank, instance)
        assert type(epoch) is int
        assert type(label) is str
        assert all(type(each) is int for each in ranks)
        assert algorithm is None or without_switch(algorithm)
        return "resnet-group", 0

    def _checked(self, name: str, token: str, rank: int, instance: str) -> None:
        self.job(name, token)
        assert type(rank) is int
        assert type(instance) is str
        assert 0 < len(instance) <= 256


def _why(_site: Any, name: str, block: int | None = None) -> Any:
    """Stands for the switch's answer."""
    assert name == "resnet"
    assert block is None or 0 <= block < 1 << 32
    return SimpleNamespace(to_dict=lambda: {"blocks": [{"block": block}]})


def _page(accept: str) -> tuple[str, bytes]:
    """The metrics of nothing."""
    return encoded(CollectorRegistry(), accept)


def _stream() -> Iterator[str]:
    """A live page's stream that ends."""
    yield "event: before\ndata: {}\n\n"


def _handler() -> Any:
    lock = SimpleNamespace(while_wanted=lambda _: nullcontext())
    members = {
        "context": SimpleNamespace(counters=SimpleNamespace(add=lambda *_: None), store=SimpleNamespace(lock=lock)),
        "membership": Membership(),
        "request_time": 5.0,
        "metrics": SimpleNamespace(page=_page),
        "metrics_token": _TOKEN,
        "feed": SimpleNamespace(stream=_stream),
        "log_message": lambda *_: None,
    }
    return type("Handler", (http_api._Handler,), members)


def _asked(handler: Any, request: bytes) -> bytes:
    """The endpoint's answer to the bytes of a connection."""
    ours, its = socket.socketpair()
    with ours, its:
        ours.sendall(request)
        ours.shutdown(socket.SHUT_WR)
        with patch.object(http_api, "diagnose", _why):
            handler(its, ("192.0.2.1", 1), SimpleNamespace(trust=lambda _: None, closing=False))
        its.shutdown(socket.SHUT_WR)
        return ours.makefile("rb").read()


def target() -> FuzzTarget:
    """An input is a body for ``join`` behind right headers (first byte even), or all of a request (odd)."""
    handler = _handler()

    def take(data: bytes) -> None:
        if data[:1] and data[0] % 2 == 0:
            answer = _asked(handler, _join(data[1:]))
            assert answer, "no answer to a request"
        else:
            answer = _asked(handler, data[1:])
        if answer:
            _check(answer)

    bodies: list[Mapping[str, Any]] = [
        {"rank": 0, "instance": "ab"},
        {"rank": 0, "instance": "ab", "epoch": 7, "needs": 1, "next_epoch": 8},
        {"rank": 1, "instance": "ab", "peer": "10.0.0.1:4000"},
        {"rank": True, "instance": "", "link": {"kind": "frames", "local": "a:1", "remote": "b:2"}},
    ]
    seeds = [b"\0" + json.dumps(body).encode() for body in bodies] + [b"\0[", b"\0" + b"[" * 500, b"\0NaN", b"\0\xff"]
    seeds += [b"\1" + _join(b"{}"), b"\1" + _join(b'{"rank":0,"instance":"a"}').replace(b"join", b"leave")]
    seeds += [b"\1GET %s HTTP/1.0\r\n\r\n" % path for path in (b"/", b"/page.js", b"/v1/live")]
    seeds.append(b"\1GET /v1/live HTTP/1.0\r\nAuthorization: Bearer %s\r\n\r\n" % _TOKEN.encode())
    seeds.append(b"\1" + _join(b'{"rank":0,"instance":"a","epoch":7,"label":"b","ranks":[0,1]}').replace(b"join", b"groups"))
    for token in (b"correct-horse", b"\xe9", b""):
        accept = b"Accept: application/openmetrics-text; version=1.0.0, */*;q=0.1\r\n\r\n"
        seeds.append(b"\1GET /metrics HTTP/1.1\r\nAuthorization: Bearer " + token + b"\r\n" + accept)
    seeds.append(b"\1GET http://[x/v1/jobs/resnet/members HTTP/1.1\r\n\r\n")
    seeds.append(b"\1GET http://[x HTTP/1.1\r\n" + b"a: b\r\n" * 150 + b"\r\n")
    for path in (b"members", b"why?block=7", b"why?block=x", b"nothing"):
        seeds.append(b"\1GET /v1/jobs/resnet/" + path + b" HTTP/1.1\r\nAuthorization: Bearer correct-horse\r\n\r\n")
    return FuzzTarget(take, seeds, 2048)


def _join(body: bytes) -> bytes:
    return b"POST /v1/jobs/resnet/join HTTP/1.1\r\nAuthorization: Bearer correct-horse\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def _check(answer: bytes) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if b"application/json" not in head:
        assert status == HTTPStatus.OK, answer  # the page of metrics, or the live page
        return
    known = json.loads(body) if body else {}
    assert isinstance(known, dict)
    assert status < HTTPStatus.INTERNAL_SERVER_ERROR or status in (
        HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
    ), answer  # fmt: skip
    assert status == HTTPStatus.OK or not body or known["error"], answer
