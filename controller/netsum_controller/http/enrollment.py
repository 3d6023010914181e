# SPDX-License-Identifier: MIT
"""What a host sends to enroll, and what it gets: ``POST /v1/jobs``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from netsum.join_url import JOB_NAME, is_job_name
from netsum.wire.schema import MAX_WORKERS

from netsum_controller.errors import InputError

_LEAST_MTU: Final = 576
_LARGEST_MTU: Final = 65535
_MOST_MBPS: Final = 10_000_000
HOST_ID: Final = re.compile("([0-9a-f]{32})?")


@dataclass(frozen=True)
class Enrollment:
    """One rank of a job of ``size`` ranks, on a host whose interface towards the controller has this IPv4 ``address``, ``mtu``
    (bytes of an IP packet) and speed (``link_mbps``; 0: not known). Ranks that can share memory have the same ``host``
    (:func:`netsum.intranode.identity.host_identity`); "": this one can share none. Raises :class:`InputError` that names what is
    wrong."""

    job: str
    size: int
    rank: int
    mtu: int
    address: str
    host: str = ""
    link_mbps: int = 0

    def __post_init__(self) -> None:
        if not is_job_name(self.job):
            raise InputError(f"job must be {JOB_NAME}")
        if not 1 <= self.size <= MAX_WORKERS:
            raise InputError(f"size must be 1..{MAX_WORKERS}, not {self.size}")
        if not 0 <= self.rank < self.size:
            raise InputError(f"rank must be 0..{self.size - 1}, as the job has {self.size} ranks, not {self.rank}")
        if not _LEAST_MTU <= self.mtu <= _LARGEST_MTU:
            raise InputError(f"mtu must be {_LEAST_MTU}..{_LARGEST_MTU}, not {self.mtu}")
        if not 0 <= self.link_mbps <= _MOST_MBPS:
            raise InputError(f"link_mbps must be 0..{_MOST_MBPS}, not {self.link_mbps}")
        try:
            address = ipaddress.IPv4Address(self.address)
        except ValueError:
            raise InputError("address must be an IPv4 address like 10.0.0.1") from None
        if address.is_unspecified or address.is_multicast or address.is_reserved:
            raise InputError(f"address must be a host's, not {self.address}")


@dataclass(frozen=True)
class EnrolledJob:
    """The job's name, and its own token, with which the rank joins."""

    job: str
    token: str


Enroll = Callable[[Enrollment], EnrolledJob]
"""Creates the rank's job, or finds it. Called with the state lock held, and again for a rank that did not receive the answer.
Raises :class:`netsum_controller.errors.ControllerError`; after :class:`netsum_controller.errors.BusyError` the host sends the
enrollment again."""
