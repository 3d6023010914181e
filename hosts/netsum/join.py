"""Joining a job: from the controller, or from a descriptor file."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from netsum.communicator import Communicator
from netsum.descriptor import Descriptor, Link
from netsum.environment import Environment
from netsum.errors import JoinError, NoSuchMember, NotReady, Unauthorized
from netsum.transports.base import Transport
from netsum.transports.choose import open_transport

_REQUEST_TIMEOUT: Final = 10.0
_LEAVE_TIMEOUT: Final = 2.0
_WHY_TIMEOUT: Final = 3.0
_FIRST_RETRY: Final = 0.05
_SLOWEST_RETRY: Final = 1.0


def join(
    job: str | None = None,
    rank: int | None = None,
    *,
    token: str | None = None,
    controller: str | None = None,
    descriptor: Descriptor | str | os.PathLike[str] | None = None,
    link: Mapping[str, str] | None = None,
    transport: Transport | Callable[[Descriptor], Transport] | None = None,
    timeout: float = 30.0,
    call_timeout: float | None = None,
) -> Communicator:
    """Take a rank of a job.

    What is not given comes from the environment (:mod:`netsum.environment`).

    Args:
        job, rank: which one.
        token, controller: the job's secret and the controller's URL; or
        descriptor: a :class:`Descriptor`, or its file (``{rank}`` stands for the rank). A file is good for one run: a
            second one would take the first one's results for its own, and is refused by the ``.used`` file beside it.
        link: how to reach the switch, if the descriptor's link is not right: ``{"kind": "udp"}`` and so on.
        transport: what carries the packets instead of the descriptor's link.
        timeout: seconds until the controller must have answered and the switch must know us.
        call_timeout: default for every call of the communicator.

    Raises:
        Unauthorized, NoSuchMember, NotReady, JoinError: nothing was joined.
    """
    environment = Environment.read()
    given_rank, rank = rank, environment.rank if rank is None else rank
    deadline = time.monotonic() + timeout
    token = token or environment.token
    descriptor = descriptor if descriptor is not None else (None if controller else environment.descriptor)
    door: _Door | None = None
    give_back: Callable[[], None] | None = None
    if descriptor is None:
        door = _Door.find(job or environment.job, rank, token, controller or environment.controller)
        descriptor, give_back = door.join(link, deadline), door.leave
    elif isinstance(descriptor, Descriptor):
        _same(descriptor, job, given_rank)
        descriptor = _over(descriptor, link)
    else:
        descriptor, give_back = _read(descriptor, rank, job)
        descriptor = _over(descriptor, link)
    asked = door or _Door.known(descriptor, token)
    try:
        made = transport(descriptor) if callable(transport) else transport or open_transport(descriptor)
    except BaseException:
        if give_back is not None:
            give_back()
        raise
    return Communicator(
        descriptor,
        made,
        timeout=environment.timeout if call_timeout is None else call_timeout,
        join_deadline=deadline,
        explain=asked.explain if asked is not None else None,
        leave=door.leave if door is not None else None,
    )


def _same(descriptor: Descriptor, job: str | None, rank: int | None) -> None:
    """JoinError when the descriptor is not of the job and rank that the caller named."""
    if (job or descriptor.job, descriptor.rank if rank is None else rank) != (descriptor.job, descriptor.rank):
        raise JoinError(
            f"the descriptor is of job {descriptor.job!r}, rank {descriptor.rank}; "
            f"asked for was job {job or descriptor.job!r}, rank {descriptor.rank if rank is None else rank}"
        )


def _over(descriptor: Descriptor, link: Mapping[str, str] | None) -> Descriptor:
    """The descriptor with the caller's link in place of its own."""
    if link is None:
        return descriptor
    try:
        return replace(descriptor, link=Link(**link))
    except (TypeError, ValueError) as error:
        raise JoinError(f"the link {dict(link)} is not one: {error}") from None


def _read(path: str | os.PathLike[str], rank: int | None, job: str | None) -> tuple[Descriptor, Callable[[], None]]:
    """The file's descriptor, and what makes the file good again when nothing was sent."""
    name = os.fspath(path)
    if "{rank}" in name:
        if rank is None:
            raise JoinError(f"{name}: which rank? give `rank`, or set NETSUM_RANK")
        name = name.replace("{rank}", str(rank))
    try:
        text = Path(name).read_bytes()
        descriptor = Descriptor.from_json(text)
        _same(descriptor, job, rank)
        marker = _use_once(Path(name), text)
    except OSError as error:
        raise JoinError(f"{error.filename or name}: {error.strerror or error}") from None
    except ValueError as error:
        raise JoinError(f"{name}: {error}") from None
    return descriptor, lambda: marker.unlink(missing_ok=True)


def _use_once(path: Path, text: bytes) -> Path:
    """Note beside the file that it has been used, and return the note; ValueError if it had been.

    Block ids start again with the file, and the switch still holds the results of the first run under them.
    """
    digest = hashlib.blake2b(text, digest_size=16).hexdigest()
    marker = path.with_name(f"{path.name}.used")
    try:
        with marker.open("x") as file:
            file.write(digest)
        return marker
    except FileExistsError:
        if marker.read_text() == digest:
            raise ValueError(
                "this descriptor has been used; make new ones with `netsum job join-file`, for all ranks"
            ) from None
    replacement = path.with_name(f"{path.name}.used.{os.getpid()}")
    replacement.write_text(digest)
    replacement.replace(marker)
    return marker


class _Door:
    """The controller's HTTP endpoint, for one rank of one job."""

    def __init__(self, job: str, rank: int, token: str, controller: str) -> None:
        self._url = f"{controller.rstrip('/')}/v1/jobs/{urllib.parse.quote(job, safe='')}"
        self._job, self._rank, self._token, self._controller = job, rank, token, controller
        self._instance = secrets.token_hex(8)

    @classmethod
    def find(cls, job: str | None, rank: int | None, token: str | None, controller: str | None) -> _Door:
        given = {"job": job, "rank": rank, "token": token, "controller": controller}
        missing = [name for name, value in given.items() if value is None]
        if job is None or rank is None or token is None or controller is None:
            names = ", ".join(f"`{name}` (or NETSUM_{name.upper()})" for name in missing)
            raise JoinError(f"to join a job, give {names}; or a descriptor file (NETSUM_DESCRIPTOR)")
        if not controller.startswith(("http://", "https://")):
            raise JoinError(f"the controller is {controller!r}, not a URL such as http://127.0.0.1:8080")
        return cls(job, rank, token, controller)

    @classmethod
    def known(cls, descriptor: Descriptor, token: str | None) -> _Door | None:
        """The door of a descriptor that came another way, to ask at; None when it names no controller or we no token."""
        if descriptor.controller is None or token is None:
            return None
        return cls(descriptor.job, descriptor.rank, token, descriptor.controller)

    def _ask(self, method: str, path: str, body: Any = None, timeout: float = _REQUEST_TIMEOUT) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        # No proxy: the controller is a neighbour.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=timeout) as answer:
            return json.load(answer)

    def join(self, link: Mapping[str, str] | None, deadline: float) -> Descriptor:
        """Ask until the controller gives a descriptor or the deadline has come."""
        body: dict[str, Any] = {"rank": self._rank, "instance": self._instance}
        if link is not None:
            body["link"] = dict(link)
        pause = _FIRST_RETRY
        while True:
            try:
                left = min(_REQUEST_TIMEOUT, max(_FIRST_RETRY, deadline - time.monotonic()))
                return Descriptor.from_dict(self._ask("POST", "/join", body, left))
            except urllib.error.HTTPError as error:
                with error:
                    reason, retry = self._refusal(error)
                if retry is None:
                    raise reason from None
                pause = max(pause, retry)
            except (OSError, http.client.HTTPException) as error:
                reason = NotReady(f"the controller at {self._controller} does not answer: {_plain(error)}")
            except ValueError as error:
                raise JoinError(f"the controller at {self._controller} gave no descriptor: {error}") from None
            if time.monotonic() + pause > deadline:
                raise reason
            time.sleep(pause)
            pause = min(2 * pause, _SLOWEST_RETRY)

    def _refusal(self, error: urllib.error.HTTPError) -> tuple[JoinError, float | None]:
        """The error for an answer that is none, and the seconds to wait before asking again, if that may help."""
        try:
            answer = json.load(error)
            text = str(answer["error"])
            retry = float(answer.get("retry_ms", 1000 * _FIRST_RETRY))
        except (ValueError, KeyError, TypeError, AttributeError):
            text, retry = f"HTTP status {error.code}", 1000 * _FIRST_RETRY
        where = f"job {self._job!r}, rank {self._rank}: {text}"
        if error.code == http.client.UNAUTHORIZED:
            return Unauthorized(where), None
        if error.code == http.client.NOT_FOUND:
            return NoSuchMember(where), None
        if error.code in (http.client.CONFLICT, http.client.SERVICE_UNAVAILABLE):
            return NotReady(where), retry / 1000
        return JoinError(where), None

    def leave(self) -> None:
        """Give the rank up; the controller finds out by itself if it cannot be told."""
        try:
            self._ask("POST", "/leave", {"rank": self._rank, "instance": self._instance}, _LEAVE_TIMEOUT)
        except (OSError, ValueError, http.client.HTTPException):
            return

    def explain(self, block_id: int) -> tuple[str, tuple[int, ...]]:
        """Whom a block waits for, as the switch's record has it."""
        try:
            answer = self._ask("GET", f"/why?block={block_id}", timeout=_WHY_TIMEOUT)
            missing = answer.get("missing", [])
            ranks = tuple(int(each["rank"]) for each in missing)
            names = ", ".join(f"rank {each['rank']} ({each.get('host', '?')})" for each in missing)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException) as error:
            return f"the controller could not be asked why ({_plain(error)})", ()
        return (
            f"waiting for {names}" if names else f"the block is {answer.get('state', 'not open')} at the switch"
        ), ranks


def _plain(error: BaseException) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)
