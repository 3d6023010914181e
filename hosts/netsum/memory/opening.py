# SPDX-License-Identifier: MIT
"""Opening a region: from the controller, or from a descriptor."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from netsum.controller_http import ControllerRequests
from netsum.descriptor import MemberLink
from netsum.errors import JoinError
from netsum.memory.array import MemoryArray
from netsum.memory.client import MemoryClient
from netsum.memory.descriptor import RegionDescriptor
from netsum.settings import Environment, seconds
from netsum.transports.base import Transport
from netsum.transports.factory import open_link

_IP_MTU: Final = 14
_USUAL_MTU: Final = 1500
_LARGEST_MTU: Final = 65535
_FIRST_PORT: Final = 49152
"""Ports from here on are not assigned (RFC 6335)."""


def open(  # noqa: A001 - netsum.memory.open, like io.open
    name: str | None = None,
    *,
    controller: str | None = None,
    token: str | None = None,
    host: str | None = None,
    readonly: bool = False,
    descriptor: RegionDescriptor | str | os.PathLike[str] | None = None,
    dtype: Any = None,
    shape: tuple[int, ...] | None = None,
    link: Mapping[str, str] | None = None,
    transport: Transport | Callable[[RegionDescriptor], Transport] | None = None,
    client: MemoryClient | None = None,
    timeout: float = 30.0,
    call_timeout: float | None = None,
) -> MemoryArray:
    """Open a region of memory in the network. Arguments that are not given come from the environment
    (:mod:`netsum.settings`).

    Args:
        name: the region's name.
        controller, token: the controller's URL, and the region's token (of `netsum memory create`); or
        descriptor: a :class:`RegionDescriptor`, or its file.
        host: this host's name in the topology, where the kernel does not know the way to the switch (rootless fabrics).
        readonly: ask for the key that allows reading only.
        dtype, shape: see the region's bytes as this array instead of the region's own.
        link: how to reach the switch, if not by the descriptor's link: ``{"kind": "udp"}`` and so on.
        transport: carries the packets instead of the descriptor's link; or what makes one for a descriptor.
        client: that of another array (``array.client``), which both then share.
        timeout: seconds within which the controller must answer.
        call_timeout: default timeout for every call.

    Raises:
        UnauthorizedError, UnknownRankError, NotReadyError, InvalidTimeoutError, JoinError: the region was not opened.
    """
    environment = Environment.read()
    limit = environment.timeout if call_timeout is None else seconds(call_timeout, "call_timeout")
    if descriptor is None:
        descriptor = _request_region(
            name,
            controller or environment.controller or (None if environment.join is None else environment.join.controller),
            token or environment.token,
            host or environment.host,
            readonly=readonly,
            deadline=time.monotonic() + seconds(timeout),
        )
    elif not isinstance(descriptor, RegionDescriptor):
        descriptor = _read(Path(descriptor))
    try:
        descriptor = descriptor.viewed(None if dtype is None else _name_of(dtype), shape)
        if link is not None:
            descriptor = replace(descriptor, link=MemberLink(**link))
    except (TypeError, ValueError) as error:
        raise JoinError(f"region {descriptor.name!r}: {error}") from None
    if client is not None:
        return MemoryArray(client, descriptor, _piece(descriptor, transport), owns_client=False)
    return _opened(descriptor, transport, limit)


def _opened(
    descriptor: RegionDescriptor, transport: Transport | Callable[[RegionDescriptor], Transport] | None, limit: float
) -> MemoryArray:
    if descriptor.link.kind != "udp" and not descriptor.host.udp_port:
        port = _FIRST_PORT + secrets.randbelow((1 << 16) - _FIRST_PORT)
        descriptor = replace(descriptor, host=replace(descriptor.host, udp_port=port))
    piece = _piece(descriptor, transport)
    made = transport if isinstance(transport, Transport) else (transport or open_link)(descriptor)
    client = MemoryClient(made, timeout=limit, shards=descriptor.shards)
    return MemoryArray(client, descriptor, piece)


def _request_region(
    name: str | None, controller: str | None, token: str | None, host: str | None, *, readonly: bool, deadline: float
) -> RegionDescriptor:
    if name is None or controller is None:
        missing = "`name`" if name is None else "`controller` (or NETSUM_CONTROLLER)"
        raise JoinError(f"to open a region, give {missing}; or a descriptor")
    path = f"/v1/memory/regions/{urllib.parse.quote(name, safe='')}"
    requests = ControllerRequests(path, token, controller, f"region {name!r}")
    query = {**({"host": host} if host else {}), **({"access": "read"} if readonly else {})}
    suffix = "?" + urllib.parse.urlencode(query) if query else ""
    return requests.until(deadline, lambda left: RegionDescriptor.from_dict(requests.request("GET", suffix, timeout=left)))


def _read(path: Path) -> RegionDescriptor:
    try:
        return RegionDescriptor.from_json(path.read_bytes())
    except OSError as error:
        raise JoinError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise JoinError(f"{path}: {error}") from None


def _name_of(dtype: Any) -> str:
    """numpy's or torch's name of a type."""
    return str(dtype).rpartition(".")[2] if str(dtype).startswith("torch.") else getattr(dtype, "__name__", str(dtype))


def _piece(descriptor: RegionDescriptor, transport: object) -> int:
    mtu = descriptor.mtu or (_LARGEST_MTU if descriptor.payload else None)
    if mtu is None:
        mtu = path_mtu(descriptor.switch.ip) if transport is None and descriptor.link.kind == "udp" else _USUAL_MTU
    try:
        return descriptor.piece(mtu)
    except ValueError as error:
        raise JoinError(f"region {descriptor.name!r}: {error}") from None


def path_mtu(ip: str) -> int:
    """The largest IP packet that the kernel sends to this address. Raises JoinError if it knows no way there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ip, 9))
        except OSError as error:
            raise JoinError(f"no way to the memory at {ip}: {error.strerror or error}") from None
        return probe.getsockopt(socket.IPPROTO_IP, _IP_MTU) if sys.platform == "linux" else _USUAL_MTU
