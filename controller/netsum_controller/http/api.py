# SPDX-License-Identifier: MIT
"""The HTTP endpoint that members talk to. JSON both ways; the job's token as bearer token.

::

    POST /v1/jobs               {"job": "vision", "size": 4, "rank": 0, "mtu": 1500, "address": "10.1.0.1",
                                 "host": 32 hex digits that ranks which can share memory have in common, or ""}
                                with the join line's token                              -> {"job", "token": the job's own}
    POST /v1/jobs/NAME/join     {"rank": 0, "instance": "random hex", "link": {...} or absent,
                                 "peer": "HOST:PORT" at which the other members reach it}      -> a descriptor
                                {"rank", "instance", "epoch": 7}                               -> goes on, see below
                                {"rank", "instance", "epoch": 7, "next_epoch": 8, "needs": 4711}
                                {"rank", "instance", "epoch": 7, "block": 4711, "sent": 3, "octets": 4120, "received": 12}
    POST /v1/jobs/NAME/leave    {"rank": 0, "instance": "..."}                                 -> {"left": true}
    POST /v1/jobs/NAME/groups   {"rank": 0, "instance": "...", "epoch": E, "label": "...", "ranks": [0, 2],
                                 "algorithm": a host algorithm instead of the job's, or absent}
                                -> {"job": the group's name, "rank": this member's rank in it}
    GET  /v1/jobs/NAME/diagnosis?block=B (or without block)
    GET  /v1/jobs/NAME/members
    GET  /v1/memory/regions/NAME?host=H&access=read   (both optional)                          -> how to reach the region
    POST /v1/memory/devices/HOST    what the device holds, with the devices' token              -> what it is to hold
    GET  /metrics                                                                              -> for Prometheus
    GET  /, /page.js, /page.css, /v1/live                                                      -> the live page, if it is served
    GET  /openapi.json                                                                         -> all of this as OpenAPI

With ``epoch`` a join is a *rejoin*: "I am in that epoch". The descriptor's epoch is the same if nothing has changed, or one that
``resumes`` it. If one is about to, the answer is 409 with the ``next_epoch``, and the member stops and reports: "I have been told
of that epoch, and lack the results from that block on". A member that goes on may say what it waits for: the result of a block,
how often it has sent it, in packets of how many bytes, and how many packets have come to it in this epoch.

An error is ``{"error": "one sentence"}`` with 400, 401, 403 (``reason`` "evicted"), 404, 408, 409 (and ``retry_ms``: ask
again), 410 (``reason`` "anew": the epoch cannot be continued), 411, 413, 414, 431 or 503.
"""

from __future__ import annotations

import json
import logging
import re
import ssl
import threading
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, closing, suppress
from hmac import compare_digest
from http import HTTPStatus
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from netsum.descriptor import is_algorithm, of_some, without_switch
from netsum.wire.schema import MAX_WORKERS

from netsum_controller.context import ControllerContext
from netsum_controller.errors import (
    AbandonedError,
    BusyError,
    CannotResumeError,
    ControllerError,
    EvictedError,
    InputError,
    RejectedError,
    StateError,
    SwitchError,
    UnauthorizedError,
    UnknownHostError,
    UnknownJobError,
    UnknownRankError,
    UnknownRegionError,
)
from netsum_controller.http.enrollment import HOST_ID, Enroll, Enrollment
from netsum_controller.http.openapi import openapi_document
from netsum_controller.http.routes import OPENAPI_PATH, matching
from netsum_controller.http.server import (
    MAX_BODY,
    MAX_CONNECTIONS,
    REQUEST_TIME,
    BoundedHandler,
    BoundedHTTPServer,
    RequestTooLargeError,
    printable,
)
from netsum_controller.jobs.membership import Membership
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.memory.devices import DeviceReport
from netsum_controller.monitoring.job_status import diagnose
from netsum_controller.monitoring.metrics import Metrics
from netsum_controller.regions.lifecycle import authorized, describe_region, device_token
from netsum_controller.regions.reconciler import take_heartbeat
from netsum_controller.state.model import SERIAL, Job
from netsum_controller.web.live_page import PAGE, PAGE_HEADERS, READERS, EventStream, TooManyReadersError, page

# Memory's part of the HTTP endpoint: for clients, and for the devices themselves. See
# :mod:`netsum_controller.http.api`.


_MAX_FIELDS = 4


def answer_client(context: ControllerContext, name: str, token: str, query: str) -> dict[str, Any]:
    """The description of a region for a client. With ``access=read`` it gets the key that only reads."""
    region, writes = authorized(context, name, token)
    try:
        given = parse_qs(query, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InputError(f"the query has more than {_MAX_FIELDS} fields") from None
    access, host = given.get("access", ["write"])[0], given.get("host", [None])[0]
    if access not in ("read", "write"):
        raise InputError(f"access is `read` or `write`, not {access!r}")
    return describe_region(context, region, write=writes and access == "write", host=host)


def authorize_device(context: ControllerContext, host: str, token: str) -> None:
    """Raise :class:`UnauthorizedError` unless the token is the devices'."""
    if not compare_digest(token.encode(), device_token(context).encode()):
        raise UnauthorizedError(host, "memory device")


def answer_device(context: ControllerContext, host: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Note what a device says; returns what it is to hold."""
    return take_heartbeat(context, host, DeviceReport.of(body))


log = logging.getLogger(__name__)

MAX_QUERY_FIELDS = 8

_PEER = re.compile(r"[A-Za-z0-9._-]{1,253}:([0-9]{1,5})")

_FEATURES = {"metrics", "live", "page"}
"""Routes that are there only where the server was given what they show."""

_STATUS: tuple[tuple[type[ControllerError], HTTPStatus], ...] = (
    (UnknownJobError, HTTPStatus.NOT_FOUND),
    (UnknownRegionError, HTTPStatus.NOT_FOUND),
    (UnknownHostError, HTTPStatus.NOT_FOUND),
    (UnknownRankError, HTTPStatus.NOT_FOUND),
    (UnauthorizedError, HTTPStatus.UNAUTHORIZED),
    (EvictedError, HTTPStatus.FORBIDDEN),
    (CannotResumeError, HTTPStatus.GONE),
    (BusyError, HTTPStatus.CONFLICT),
    (AbandonedError, HTTPStatus.REQUEST_TIMEOUT),
    (InputError, HTTPStatus.BAD_REQUEST),
    (RejectedError, HTTPStatus.CONFLICT),
    (SwitchError, HTTPStatus.SERVICE_UNAVAILABLE),
    (StateError, HTTPStatus.SERVICE_UNAVAILABLE),
)


class HttpServer:
    """Serves in threads of its own until closed."""

    def __init__(
        self,
        context: ControllerContext,
        membership: Membership,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        limit: int = MAX_CONNECTIONS,
        request_time: float = REQUEST_TIME,
        metrics: Metrics | None = None,
        metrics_token: str | None = None,
        feed: EventStream | None = None,
        enroll: Enroll | None = None,
        join_token: str | None = None,
    ) -> None:
        """At most ``limit`` connections, and ``request_time`` seconds for each request. ``metrics``, and what the live page shows
        of the ``feed``, are given to a client that has the ``metrics_token``, or to every client if it is None. ``enroll``
        answers the enrollments that show the ``join_token``; both are given or neither. Raises :class:`InputError`."""
        if (enroll is None) != (not join_token):
            raise ValueError("enroll and join_token go together")
        known = {
            "context": context,
            "membership": membership,
            "request_time": request_time,
            "metrics": metrics,
            "metrics_token": metrics_token,
            "feed": feed,
            "enroll": None if enroll is None else staticmethod(enroll),
            "join_token": join_token,
        }
        try:
            self._server = BoundedHTTPServer((host, port), type("Handler", (_Handler,), known), tls, limit)
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot serve HTTP on {host}:{port}: {error}") from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="netsum-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept nothing more, and end as :meth:`BoundedHTTPServer.server_close` does."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BoundedHandler):
    context: ControllerContext
    membership: Membership
    metrics: Metrics | None
    metrics_token: str | None
    feed: EventStream | None
    enroll: Enroll | None
    join_token: str | None

    def do_POST(self) -> None:  # noqa: N802 - the base class calls it by this name
        self._answer("POST")

    def do_GET(self) -> None:  # noqa: N802
        self._answer("GET")

    def answer_bytes(
        self, status: int, content_type: str, data: bytes, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.context.counters.add("http", self._call(), str(int(status)))
        super().answer_bytes(status, content_type, data, headers)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        if self._call() == "memory devices" and log.getEffectiveLevel() > logging.DEBUG:
            return  # each of them asks twice a second
        super().log_message(format, *args)

    def _stream(self, messages: Generator[str]) -> None:
        """Send messages until the reader goes away or takes none for a request's time."""
        self.context.counters.add("http", self._call(), str(int(HTTPStatus.OK)))
        with closing(messages), suppress(OSError):
            self.answer_head(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
            for message in messages:
                self.wfile.write(message.encode())

    def _call(self) -> str:
        """The call as one of a few words, so that an untrusted sender's path makes no new time series."""
        routes, _ = matching(getattr(self, "path", "").partition("?")[0])
        return routes[0].call if routes else "other"

    def _answer(self, method: str) -> None:
        try:
            path = urlsplit(self.path).path
            if method == "GET" and self.metrics is not None and path == "/metrics":
                self._authorize_metrics()
                self.answer_bytes(HTTPStatus.OK, *self.metrics.page(self.headers.get("Accept", "")))
                return
            if method == "GET" and self.feed is not None and path in PAGE:
                self.answer_bytes(HTTPStatus.OK, *page(path), headers=PAGE_HEADERS)
                return
            if method == "GET" and self.feed is not None and path == "/v1/live":
                self._authorize_metrics()
                self._stream(self.feed.stream())
                return
            if method == "GET" and path == OPENAPI_PATH:
                self.answer(HTTPStatus.OK, openapi_document())
                return
            status, body = HTTPStatus.OK, self._dispatch(method)
        except ControllerError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
            body = {"error": str(error)}
            if isinstance(error, BusyError):
                body |= {"retry_ms": error.retry_ms} | ({"next_epoch": error.next_epoch} if error.next_epoch else {})
            elif isinstance(error, EvictedError | CannotResumeError):
                body["reason"] = error.reason
        except TooManyReadersError:
            status, body = HTTPStatus.SERVICE_UNAVAILABLE, {"error": f"{READERS} pages are open already: close one"}
        except _HttpError as error:
            status, body = error.status, {"error": str(error)}
        except ConnectionAbortedError:  # the server is closing
            return
        except Exception:
            log.exception("%s %s", method, printable(self.path))
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "the controller failed; see its log"}
        self.answer(status, body)

    def _dispatch(self, method: str) -> dict[str, Any]:
        text = self._text() if method == "POST" else b""  # read all of it, or closing could cut off our answer
        url = urlsplit(self.path)
        routes, name = matching(url.path)
        if not routes or routes[0].call in _FEATURES:
            raise _HttpError(HTTPStatus.NOT_FOUND, f"no such path: {url.path}")
        call = next((route.call for route in routes if route.method == method), None)
        if call is None:
            raise _HttpError(HTTPStatus.NOT_FOUND, f"no such call: {method} {routes[0].call.replace(' ', '/')}")
        if call == "enroll":
            return self._enroll(text)
        if call == "memory regions":
            return answer_client(self.context, name, self._token("the region's token"), url.query)
        if call == "memory devices":
            authorize_device(self.context, name, self._token("the devices' token (`netsum memory token`)"))
            self.server.trust(self.connection)
            return answer_device(self.context, name, _parse(text))
        token = self._token()
        job = self.membership.job(name, token)  # before looking at an untrusted sender's body
        self.server.trust(self.connection)
        if call == "diagnosis":
            return self._diagnosis(name, url.query)
        if call == "members":
            return self._members(job)
        body = _parse(text)
        rank, instance = _field(body, "rank", int), _field(body, "instance", str)
        if call == "leave":  # is a message, which counts even if its sender has gone
            return {"left": self.membership.leave(name, token, rank, instance)}
        if call == "groups":
            epoch, label, ranks = _field(body, "epoch", int), _field(body, "label", str), _ranks(body)
            algorithm = _algorithm(body)
            with self._turn():
                group, own = self.membership.group(name, token, rank, instance, epoch, label, ranks, algorithm)
            return {"job": group, "rank": own}
        link = body.get("link")
        if link is not None and not isinstance(link, dict):
            raise InputError("link must be an object")
        progress, peer = _progress(body), _peer(body)
        host_id, in_group = _host_id(body), _group(body)
        with self._turn():
            return self.membership.join(name, token, rank, instance, link, progress, peer, host_id, in_group).to_dict()

    def _enroll(self, text: bytes) -> dict[str, Any]:
        if self.enroll is None or self.join_token is None:
            raise _HttpError(
                HTTPStatus.NOT_FOUND,
                "this controller takes no enrollments: join a job by NETSUM_JOB, NETSUM_TOKEN and NETSUM_CONTROLLER",
            )
        if not compare_digest(self._token("the join line's token").encode(), self.join_token.encode()):
            raise _HttpError(HTTPStatus.UNAUTHORIZED, "wrong token: take the join line that the aggregator prints now")
        self.server.trust(self.connection)
        body = _parse(text)
        wanted = Enrollment(
            *(_field(body, "job", str), _field(body, "size", int), _field(body, "rank", int)),
            *(_field(body, "mtu", int), _field(body, "address", str)),
            host=_host_id(body) or "",
            link_mbps=_field(body, "link_mbps", int) if "link_mbps" in body else 0,
        )
        with self._turn():
            enrolled = self.enroll(wanted)
        log.info(
            "job %s: rank %d of %d enrolls from %s",
            enrolled.job,
            wanted.rank,
            wanted.size,
            wanted.address,
            extra={"job": enrolled.job, "rank": wanted.rank},
        )
        return {"job": enrolled.job, "token": enrolled.token}

    def _turn(self) -> AbstractContextManager[None]:
        """The state lock for a query. Its caller gives up while others have the lock, and asks again; were all its queries
        answered, those of others would wait for answers that no client reads."""
        return self.context.store.lock.while_wanted(self.is_awaited)

    def _token(self, whose: str = "the job's token") -> str:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise _HttpError(HTTPStatus.UNAUTHORIZED, f"send {whose}: Authorization: Bearer TOKEN")
        return token.strip()

    def _authorize_metrics(self) -> None:
        if self.metrics_token is None:
            return
        if not compare_digest(self._token("the metrics token").encode(), self.metrics_token.encode()):
            raise _HttpError(HTTPStatus.UNAUTHORIZED, "wrong metrics token")

    def _text(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise _HttpError(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        if len(length) > len(str(MAX_BODY)) or int(length) > MAX_BODY:
            raise _HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {MAX_BODY} bytes")
        try:
            return self.rfile.read(int(length))
        except (TimeoutError, RequestTooLargeError):
            raise _HttpError(HTTPStatus.REQUEST_TIMEOUT, "the body was not received in time") from None

    def _diagnosis(self, name: str, query: str) -> dict[str, Any]:
        try:
            text = parse_qs(query, max_num_fields=MAX_QUERY_FIELDS).get("block", [None])[0]
        except ValueError:
            raise InputError(f"the query has more than {MAX_QUERY_FIELDS} fields") from None
        if text is not None and (not text.isascii() or not text.isdigit() or int(text) >= 1 << 32):
            raise InputError(f"block must be 0..{(1 << 32) - 1}, not {text!r}")
        with self._turn():
            answer = diagnose(self.context, name, None if text is None else int(text)).to_dict()
        if text is None:
            return answer
        (block,) = answer.pop("blocks")
        return {**answer, **block}

    def _members(self, job: Job) -> dict[str, Any]:
        members = [
            {
                **{name: getattr(seat, name) for name in ("rank", "host", "joined", "left", "evicted")},
                "address": self._address(seat.host),
            }
            for seat in job.epoch.seats
        ]
        return {"job": job.name, "epoch": job.epoch.number, "members": members}

    def _address(self, name: str) -> str | None:
        """The address at which other hosts reach this one: its IP address, or what stands for it where wires are sockets."""
        host = self.context.topology.hosts.get(name)
        if host is None:
            return None
        return host.frames.rpartition(":")[0] if host.frames else host.ip


class _HttpError(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def _parse(text: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):  # nested deeper than Python's stack
        raise InputError("the body is not JSON") from None
    if not isinstance(body, dict):
        raise InputError("the body is not a JSON object")
    return body


def _progress(body: Mapping[str, Any]) -> Progress | None:
    """The position that a rejoining member reports; None for one that joins."""
    groups = (("needs", "next_epoch"), ("block", "sent", "octets", "received"))
    given = [name for group in groups if body.keys() & group for name in group]
    if "epoch" not in body and not given:
        return None
    progress = {name: _field(body, name, int) for name in ("epoch", *given)}
    for name, value in progress.items():
        if not 0 <= value < SERIAL:
            raise InputError(f"{name} must be 0..{SERIAL - 1}, not {value}")
    return Progress(**progress)


def _peer(body: Mapping[str, Any]) -> str | None:
    """The address at which the other members reach this one, if it says so; an older library does not."""
    if body.get("peer") is None:
        return None
    text = str(_field(body, "peer", str))
    found = _PEER.fullmatch(text)
    if found is None or not 0 < int(found[1]) < 1 << 16:
        raise InputError("peer must be a host and a TCP port, like 10.0.0.1:4000")
    return text


def _host_id(body: Mapping[str, Any]) -> str | None:
    """What the member has in common with those with which it can share memory, if it says so."""
    found = body.get("host")
    if found is not None and not (isinstance(found, str) and HOST_ID.fullmatch(found)):
        raise InputError("host must be 32 hex digits, or empty")
    return found


def _group(body: Mapping[str, Any]) -> str | None:
    """The IP multicast group that the member has joined, if it says so; "": none."""
    found = body.get("group")
    return found if found in (None, "") else str(_field(body, "group", str))


def _ranks(body: Mapping[str, Any]) -> list[int]:
    ranks = body.get("ranks")
    if not isinstance(ranks, list) or len(ranks) > MAX_WORKERS or any(type(rank) is not int for rank in ranks):
        raise InputError("ranks must be a list of numbers")
    return ranks


def _algorithm(body: Mapping[str, Any]) -> str | None:
    """The host algorithm of a group, if it is to have another than its job's."""
    if body.get("algorithm") is None:
        return None
    name = str(_field(body, "algorithm", str))
    if not (is_algorithm(name) and without_switch(name) and of_some(name) == name):
        raise InputError(f"algorithm is {name!r}, must be a host algorithm for any ranks, such as `ring`")
    return name


def _field(body: Mapping[str, Any], name: str, kind: type) -> Any:
    value = body.get(name)
    if type(value) is not kind:  # a bool is not an int here
        raise InputError(f"{name} must be {'a number' if kind is int else 'a string'}")
    if isinstance(value, str) and not 0 < len(value) <= 256:
        raise InputError(f"{name} must have 1 to 256 characters")
    if isinstance(value, str) and not value.isprintable():  # JSON can spell half a surrogate pair, which no file can hold
        raise InputError(f"{name} must be printable text")
    return value
