"""The controller's HTTP API for one rank of one job: join, rejoin, leave, and ask whom a block waits for."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import secrets
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from netsum.descriptor import Descriptor
from netsum.errors import Desynchronized, Evicted, JoinError, NetsumError, NoSuchMember, NotReady, Unauthorized

Answer = TypeVar("Answer")

_REQUEST_TIMEOUT: Final = 10.0
_REJOIN_TIMEOUT: Final = 1.0
"""Seconds. Short, because a call is under way, and its own timeout must not be delayed."""
_LEAVE_TIMEOUT: Final = 2.0
_WHY_TIMEOUT: Final = 3.0
_FIRST_RETRY: Final = 0.05
_SLOWEST_RETRY: Final = 1.0


class ControllerClient:
    def __init__(self, job: str, rank: int, token: str, controller: str) -> None:
        self._url = f"{controller.rstrip('/')}/v1/jobs/{urllib.parse.quote(job, safe='')}"
        self._job, self._rank, self._token, self.controller = job, rank, token, controller
        self._instance = secrets.token_hex(8)
        self._trust = _trust() if controller.startswith("https://") else None

    @classmethod
    def from_options(
        cls, job: str | None, rank: int | None, token: str | None, controller: str | None
    ) -> ControllerClient:
        """The client for these options; JoinError names the missing or wrong ones."""
        given = {"job": job, "rank": rank, "token": token, "controller": controller}
        missing = [name for name, value in given.items() if value is None]
        if job is None or rank is None or token is None or controller is None:
            names = ", ".join(f"`{name}` (or NETSUM_{name.upper()})" for name in missing)
            raise JoinError(f"to join a job, give {names}; or a descriptor file (NETSUM_DESCRIPTOR)")
        if not controller.startswith(("http://", "https://")):
            raise JoinError(f"the controller is {controller!r}, not a URL such as http://127.0.0.1:8080")
        return cls(job, rank, token, controller)

    @classmethod
    def of_descriptor(cls, descriptor: Descriptor, token: str | None) -> ControllerClient | None:
        """The client of a descriptor that did not come from the controller; None if it names no controller, or there is no
        token."""
        if descriptor.controller is None or token is None:
            return None
        return cls(descriptor.job, descriptor.rank, token, descriptor.controller)

    def _ask(self, method: str, path: str, body: Any = None, timeout: float = _REQUEST_TIMEOUT) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        # No proxy: the controller is a neighbour.
        tls = urllib.request.HTTPSHandler(context=self._trust)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), tls)
        with opener.open(request, timeout=timeout) as answer:
            return json.load(answer)

    def rejoin(
        self, epoch: int, needs: int, link: Mapping[str, str] | None = None, peer: str | None = None
    ) -> Descriptor:
        """Ask once what has become of this rank's epoch; ``needs`` is the first block whose result it lacks. ``link`` and
        ``peer`` are as in :meth:`join`. Raises :class:`NotReady` (ask again), :class:`Desynchronized` (it cannot be continued),
        :class:`Evicted`, or what :meth:`join` raises."""
        body = {"rank": self._rank, "instance": self._instance, "epoch": epoch, "needs": needs}
        try:
            return Descriptor.from_dict(self._ask("POST", "/join", self._with(body, link, peer), _REJOIN_TIMEOUT))
        except urllib.error.HTTPError as error:
            with error:
                reason, retry = self._refusal(error)
            if isinstance(reason, NotReady):
                reason.retry = retry or 0.0
            raise reason from None
        except (OSError, http.client.HTTPException) as error:
            raise NotReady(f"the controller at {self.controller} does not answer: {_plain(error)}") from None
        except ValueError as error:
            raise JoinError(f"the controller at {self.controller} gave no descriptor: {error}") from None

    def group(self, epoch: int, label: str, ranks: Sequence[int], deadline: float) -> ControllerClient:
        """The client for the group of these ranks of the job, which include this one. ``label`` distinguishes it from other
        groups of the same ranks. Raises what :meth:`join` raises, or :class:`Desynchronized` if ``epoch`` is over."""
        body = {"rank": self._rank, "instance": self._instance, "epoch": epoch, "label": label, "ranks": list(ranks)}
        answer = self._until(deadline, lambda left: self._ask("POST", "/groups", body, left))
        return ControllerClient(str(answer["job"]), int(answer["rank"]), self._token, self.controller)

    def members(self, deadline: float) -> list[dict[str, Any]]:
        """The members in rank order, with ``host``, ``joined``, ``left`` and ``evicted``. Raises what :meth:`join` raises."""
        return self._until(deadline, lambda left: list(self._ask("GET", "/members", timeout=left)["members"]))

    def derived_key(self, purpose: str) -> bytes:
        """16 bytes that follow from the job's name, its token and the purpose."""
        token = hashlib.blake2b(self._token.encode(), digest_size=64).digest()
        return hashlib.blake2b(f"{self._job}\0{purpose}".encode(), key=token, digest_size=16).digest()

    def renew_instance(self) -> None:
        """Make the next :meth:`join` that of a new process: if the rank is taken, even by us, that begins a new epoch for all."""
        self._instance = secrets.token_hex(8)

    @staticmethod
    def _with(body: dict[str, Any], link: Mapping[str, str] | None, peer: str | None) -> dict[str, Any]:
        more = {"link": None if link is None else dict(link), "peer": peer}
        return {**body, **{name: value for name, value in more.items() if value is not None}}

    def join(self, link: Mapping[str, str] | None, deadline: float, peer: str | None = None) -> Descriptor:
        """Ask until the controller gives a descriptor, or until the deadline. ``link`` is how this rank reaches its switch,
        ``peer`` the HOST:PORT at which the other members reach it."""
        body = self._with({"rank": self._rank, "instance": self._instance}, link, peer)
        return self._until(deadline, lambda left: Descriptor.from_dict(self._ask("POST", "/join", body, left)))

    def _until(self, deadline: float, ask: Callable[[float], Answer]) -> Answer:
        pause = _FIRST_RETRY
        while True:
            try:
                return ask(min(_REQUEST_TIMEOUT, max(_FIRST_RETRY, deadline - time.monotonic())))
            except urllib.error.HTTPError as error:
                with error:
                    reason, retry = self._refusal(error)
                if retry is None:
                    raise reason from None
                pause = max(pause, retry)
            except (OSError, http.client.HTTPException) as error:
                reason = NotReady(f"the controller at {self.controller} does not answer: {_plain(error)}")
            except (ValueError, KeyError) as error:
                raise JoinError(f"the controller at {self.controller} gave no descriptor: {error}") from None
            if time.monotonic() + pause > deadline:
                raise reason
            time.sleep(pause)
            pause = min(2 * pause, _SLOWEST_RETRY)

    def _refusal(self, error: urllib.error.HTTPError) -> tuple[NetsumError, float | None]:
        """The error for an HTTP error status, and the seconds to wait before asking again if that may help."""
        try:
            answer = json.load(error)
            text = str(answer["error"])
            retry = float(answer.get("retry_ms", 1000 * _FIRST_RETRY))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException):
            # Not the controller's words, or a controller that ended while it spoke: the status is all there is.
            text, retry = f"HTTP status {error.code}", 1000 * _FIRST_RETRY
        where = f"job {self._job!r}, rank {self._rank}: {text}"
        if error.code == http.client.GONE:
            return Desynchronized(where), None
        if error.code == http.client.FORBIDDEN:
            return Evicted(where), None
        if error.code == http.client.UNAUTHORIZED:
            return Unauthorized(where), None
        if error.code == http.client.NOT_FOUND:
            return NoSuchMember(where), None
        if error.code in (http.client.CONFLICT, http.client.SERVICE_UNAVAILABLE):
            return NotReady(where), retry / 1000
        return JoinError(where), None

    def leave(self) -> None:
        """Give the rank up. If the controller cannot be told, it finds out by itself."""
        try:
            self._ask("POST", "/leave", {"rank": self._rank, "instance": self._instance}, _LEAVE_TIMEOUT)
        except (OSError, ValueError, http.client.HTTPException):
            return

    def explain(self, block_id: int) -> tuple[str, tuple[int, ...]]:
        """Whom a block waits for according to the switch's record: a sentence, and the ranks. Without a record no rank is named:
        a contribution from this rank would have created one, so nobody else is known to be late."""
        try:
            answer = self._ask("GET", f"/why?block={block_id}", timeout=_WHY_TIMEOUT)
            state, missing = answer.get("state", "not open"), answer.get("missing", [])
            ranks = tuple(int(each["rank"]) for each in missing) if state == "open" else ()
            causes = {each["rank"]: f", which {each['cause']}" for each in answer.get("waiting_for", [])}
            names = "; ".join(
                f"rank {each['rank']} ({each.get('host', '?')}){causes.get(each['rank'], '')}" for each in missing
            )
            trouble = "; ".join(map(str, answer.get("trouble", [])))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException) as error:
            return f"the controller could not be asked why ({_plain(error)})", ()
        if ranks:
            return f"waiting for {names}", ranks
        return trouble or _STATES.get(state, f"the block is {state} at the switch"), ()


_STATES: Final = {
    "open": "the block is open at the switch, but which rank it waits for is not known",
    "absent": "no contribution to the block has reached the switch, not even this rank's",
    "done": "the block is finished at the switch, but its result has not reached this rank",
    "recycled": "the block is finished at the switch and recycled; its result never reached this rank",
}


def _trust() -> ssl.SSLContext:
    """Trusts the authorities in NETSUM_CA (PEM), or the system's if it is not set."""
    path = os.environ.get("NETSUM_CA") or None
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise JoinError(f"NETSUM_CA is {path!r}: {error.strerror or error}") from None


def _plain(error: BaseException) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)
