"""Joining a job: from the controller, or from a descriptor file."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from netsum.communicator import Communicator
from netsum.descriptor import ALGORITHMS, AUTO, SWITCH, Descriptor, Link
from netsum.door import Door
from netsum.environment import Environment
from netsum.errors import JoinError
from netsum.logs import configure
from netsum.transports.base import Transport
from netsum.transports.choose import open_transport


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
    algorithm: str | None = None,
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
        algorithm: of a job without a switch, in place of the job's; the same on every rank.

    Raises:
        Unauthorized, NoSuchMember, NotReady, JoinError: nothing was joined.
    """
    environment = Environment.read()
    configure(environment.log, environment.log_level)
    given_rank, rank = rank, environment.rank if rank is None else rank
    deadline = time.monotonic() + timeout
    token = token or environment.token
    descriptor = descriptor if descriptor is not None else (None if controller else environment.descriptor)
    algorithm = _known(algorithm) or environment.algorithm
    door: Door | None = None
    give_back: Callable[[], None] | None = None
    if descriptor is None:
        door = Door.find(job or environment.job, rank, token, controller or environment.controller)
        descriptor, give_back = door.join(link, deadline), door.leave
    elif isinstance(descriptor, Descriptor):
        _same(descriptor, job, given_rank)
        descriptor = _over(descriptor, link)
    else:
        descriptor, give_back = _read(descriptor, rank, job)
        descriptor = _over(descriptor, link)
    asked = door or Door.known(descriptor, token)
    try:
        descriptor = _by(descriptor, algorithm)
        made = transport if isinstance(transport, Transport) else (transport or open_transport)(descriptor)
    except BaseException:
        if give_back is not None:
            give_back()
        raise
    reopen = None if isinstance(transport, Transport) else transport or open_transport
    call_timeout = environment.timeout if call_timeout is None else call_timeout
    return Communicator(
        descriptor,
        made,
        timeout=call_timeout,
        join_deadline=deadline,
        explain=asked.explain if asked is not None else None,
        seat=_Seat(door, reopen, link, call_timeout, algorithm) if door is not None and reopen is not None else None,
        leave=door.leave if door is not None else None,
    )


class _Seat:
    """A rank that was taken at the controller, and can be taken again."""

    def __init__(
        self,
        door: Door,
        open_transport: Callable[[Descriptor], Transport],
        link: Mapping[str, str] | None,
        call_timeout: float,
        algorithm: str | None,
    ) -> None:
        self._door = door
        self._link = link
        self._call_timeout = call_timeout
        self._algorithm = algorithm
        self.open_transport = open_transport

    def rejoin(self, epoch: int, needs: int) -> Descriptor:
        """What has become of the epoch (:meth:`Door.rejoin`)."""
        return _host_algorithm(self._door.rejoin(epoch, needs, self._link), self._algorithm)

    def join_anew(self, deadline: float) -> Descriptor:
        """Take the rank again as somebody new, until ``deadline`` (``time.monotonic()``)."""
        self._door.again()
        return _host_algorithm(self._door.join(self._link, deadline), self._algorithm)

    def group(self, epoch: int, label: str, ranks: Sequence[int], deadline: float) -> Communicator:
        """The communicator of a group of these ranks, this one among them."""
        door = self._door.group(epoch, label, ranks, deadline)
        descriptor = _host_algorithm(door.join(self._link, deadline), self._algorithm)
        try:
            made = self.open_transport(descriptor)
        except BaseException:
            door.leave()
            raise
        return Communicator(
            descriptor,
            made,
            timeout=self._call_timeout,
            join_deadline=deadline,
            explain=door.explain,
            seat=_Seat(door, self.open_transport, self._link, self._call_timeout, self._algorithm),
            leave=door.leave,
        )


def _known(algorithm: str | None) -> str | None:
    """The algorithm, if it is one."""
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise JoinError(f"algorithm is {algorithm!r}, must be one of {', '.join(ALGORITHMS)}")
    return algorithm


def _by(descriptor: Descriptor, algorithm: str | None) -> Descriptor:
    """The descriptor with the caller's algorithm in place of its own; JoinError when only the controller can change it."""
    if descriptor.by_switch and algorithm not in (None, SWITCH, AUTO):
        raise JoinError(
            f"job {descriptor.job!r} is combined by a switch, asked for was {algorithm!r}: "
            f"`netsum job create --algorithm {algorithm}` makes a job without one"
        )
    if not descriptor.by_switch and algorithm == SWITCH:
        raise JoinError(
            f"job {descriptor.job!r} has no switch (algorithm {descriptor.algorithm}), asked for was {SWITCH!r}: "
            f"`netsum job create --algorithm {SWITCH}` makes a job with one"
        )
    return _host_algorithm(descriptor, algorithm)


def _host_algorithm(descriptor: Descriptor, algorithm: str | None) -> Descriptor:
    """The descriptor with the caller's algorithm in place of its own, if there is no switch."""
    if descriptor.by_switch or algorithm in (None, SWITCH):
        return descriptor
    return replace(descriptor, algorithm=algorithm)


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
