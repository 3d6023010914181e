# SPDX-License-Identifier: MIT
"""The controller's HTTP API for one rank of one job: join, rejoin, leave, and find out whom a block waits for."""

from __future__ import annotations

import hashlib
import http.client
import secrets
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from netsum.controller_http import ControllerRequests, plain
from netsum.core.recovery import RejoinReport
from netsum.descriptor import Descriptor
from netsum.errors import JoinError
from netsum.intranode.identity import host_identity

_REJOIN_TIMEOUT: Final = 1.0
"""Seconds. Short, because a call is in progress, and its own timeout must not be delayed."""
_LEAVE_TIMEOUT: Final = 2.0
_DIAGNOSIS_TIMEOUT: Final = 3.0


class ControllerClient(ControllerRequests):
    def __init__(self, job: str, rank: int, token: str, controller: str) -> None:
        super().__init__(f"/v1/jobs/{urllib.parse.quote(job, safe='')}", token, controller, f"job {job!r}, rank {rank}")
        self._job, self._rank, self._secret = job, rank, token
        self._instance = secrets.token_hex(8)

    @classmethod
    def from_options(cls, job: str | None, rank: int | None, token: str | None, controller: str | None) -> ControllerClient:
        """The client for these options; JoinError names the missing or wrong ones."""
        given = {"job": job, "rank": rank, "token": token, "controller": controller}
        missing = [name for name, value in given.items() if value is None]
        if job is None or rank is None or token is None or controller is None:
            names = ", ".join(f"`{name}` (or NETSUM_{name.upper()})" for name in missing)
            raise JoinError(
                f"to join a job, give {names}; or an aggregator's join line (NETSUM_JOIN); or a descriptor file "
                "(NETSUM_DESCRIPTOR); `netsum run -n N SCRIPT.py` sets all this"
            )
        return cls(job, rank, token, controller)

    @classmethod
    def of_descriptor(cls, descriptor: Descriptor, token: str | None) -> ControllerClient | None:
        """The client of a descriptor that did not come from the controller; None if it names no controller, or there is no
        token."""
        if descriptor.controller is None or token is None:
            return None
        return cls(descriptor.job, descriptor.rank, token, descriptor.controller)

    def rejoin(
        self, epoch: int, report: RejoinReport, link: Mapping[str, str] | None = None, peer: str | None = None
    ) -> Descriptor:
        """Query once what has become of this rank's epoch; ``report`` is its report, or what it waits for. ``link`` and ``peer``
        are as in :meth:`join`. Raises :class:`NotReadyError` (try again), :class:`DesynchronizedError` (it cannot be continued),
        :class:`EvictedError`, or what :meth:`join` raises."""
        reported = {} if report is None else report._asdict()
        body = {"rank": self._rank, "instance": self._instance, "epoch": epoch, **reported}
        body = self._with(body, link, peer)
        return self.once(lambda: Descriptor.from_dict(self.request("POST", "/join", body, _REJOIN_TIMEOUT)))

    def report_group(self, epoch: int, group: str, deadline: float) -> None:
        """Report that this rank has joined its descriptor's IP multicast ``group``. Raises what :meth:`rejoin` raises."""
        body = {"rank": self._rank, "instance": self._instance, "epoch": epoch, "group": group}
        self.until(deadline, lambda left: self.request("POST", "/join", body, left))

    def group(
        self, epoch: int, label: str, ranks: Sequence[int], deadline: float, algorithm: str | None = None
    ) -> ControllerClient:
        """The client for the group of these ranks of the job, which include this one. ``label`` distinguishes it from other
        groups of the same ranks; ``algorithm`` is a host algorithm instead of the job's. Raises what :meth:`join` raises, or
        :class:`DesynchronizedError` if ``epoch`` is over."""
        body = {"rank": self._rank, "instance": self._instance, "epoch": epoch, "label": label, "ranks": list(ranks)}
        if algorithm is not None:
            body["algorithm"] = algorithm
        answer = self.until(deadline, lambda left: self.request("POST", "/groups", body, left))
        return ControllerClient(str(answer["job"]), int(answer["rank"]), self._secret, self.controller)

    def members(self, deadline: float) -> list[dict[str, Any]]:
        """The members in rank order, with ``host``, ``joined``, ``left`` and ``evicted``. Raises what :meth:`join` raises."""
        return self.until(deadline, lambda left: list(self.request("GET", "/members", timeout=left)["members"]))

    def derived_key(self, purpose: str) -> bytes:
        """16 bytes that follow from the job's name, its token and the purpose."""
        token = hashlib.blake2b(self._secret.encode(), digest_size=64).digest()
        return hashlib.blake2b(f"{self._job}\0{purpose}".encode(), key=token, digest_size=16).digest()

    def renew_instance(self) -> None:
        """Make the next :meth:`join` that of a new process: if the rank is taken, even by us, that begins a new epoch for all."""
        self._instance = secrets.token_hex(8)

    @staticmethod
    def _with(body: dict[str, Any], link: Mapping[str, str] | None, peer: str | None) -> dict[str, Any]:
        more = {"link": None if link is None else dict(link), "peer": peer}
        return {**body, **{name: value for name, value in more.items() if value is not None}}

    def join(self, link: Mapping[str, str] | None, deadline: float, peer: str | None = None) -> Descriptor:
        """Query until the controller gives a descriptor, or until the deadline. ``link`` is how this rank reaches its switch,
        ``peer`` the HOST:PORT at which the other members reach it."""
        body = self._with({"rank": self._rank, "instance": self._instance, "host": host_identity()}, link, peer)
        return self.until(deadline, lambda left: Descriptor.from_dict(self.request("POST", "/join", body, left)))

    def leave(self) -> None:
        """Give the rank up. If the controller cannot be told, it finds out by itself."""
        try:
            self.request("POST", "/leave", {"rank": self._rank, "instance": self._instance}, _LEAVE_TIMEOUT)
        except (OSError, ValueError, http.client.HTTPException):
            return

    def explain(self, block_id: int) -> tuple[str, tuple[int, ...]]:
        """The ranks a block waits for according to the switch's record: a sentence, and the ranks. Without a record no rank is
        named: a contribution from this rank would have created one, so no other rank is known to be late."""
        try:
            answer = self.request("GET", f"/diagnosis?block={block_id}", timeout=_DIAGNOSIS_TIMEOUT)
            state, missing = answer.get("state", "not open"), answer.get("missing", [])
            ranks = tuple(int(each["rank"]) for each in missing) if state == "open" else ()
            causes = {each["rank"]: f", which {each['cause']}" for each in answer.get("waiting_for", [])}
            names = "; ".join(f"rank {each['rank']} ({each.get('host', '?')}){causes.get(each['rank'], '')}" for each in missing)
            trouble = "; ".join(map(str, answer.get("trouble", [])))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException) as error:
            return f"the controller could not be queried for why ({plain(error)})", ()
        if ranks:
            return f"waiting for {names}", ranks
        return trouble or _STATES.get(state, f"the block is {state} at the switch"), ()


_KEPT: Final = ": does a firewall here keep UDP from the switch, or is this host's MAC address another than in the topology?"
_STATES: Final = {
    "open": "the block is open at the switch, but which rank it waits for is not known",
    "absent": "no contribution to the block has reached the switch, not even this rank's",
    "done": f"the block is finished at the switch, but its result has not reached this rank{_KEPT}",
    "recycled": f"the block is finished at the switch and recycled; its result never reached this rank{_KEPT}",
}
