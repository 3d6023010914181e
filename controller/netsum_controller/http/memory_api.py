"""Memory's part of the HTTP endpoint: for clients, and for the devices themselves. See :mod:`netsum_controller.http.api`."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qs

from netsum_controller.context import ControllerContext
from netsum_controller.errors import InputError, UnauthorizedError
from netsum_controller.memory.devices import DeviceReport
from netsum_controller.regions.heartbeat import take_heartbeat
from netsum_controller.regions.lifecycle import authorised, describe_region, device_token

_MAX_FIELDS = 4


def answer_client(context: ControllerContext, name: str, token: str, query: str) -> dict[str, Any]:
    """What a client needs to know of a region. With ``access=read`` it gets the key that only reads."""
    region, writes = authorised(context, name, token)
    try:
        given = parse_qs(query, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InputError(f"the query has more than {_MAX_FIELDS} fields") from None
    access, host = given.get("access", ["write"])[0], given.get("host", [None])[0]
    if access not in ("read", "write"):
        raise InputError(f"access is `read` or `write`, not {access!r}")
    return describe_region(context, region, write=writes and access == "write", host=host)


def authorise_device(context: ControllerContext, host: str, token: str) -> None:
    """Raise :class:`UnauthorizedError` unless the token is the devices'."""
    if not compare_digest(token.encode(), device_token(context).encode()):
        raise UnauthorizedError(host, "memory device")


def answer_device(context: ControllerContext, host: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Note what a device says; returns what it is to hold."""
    return take_heartbeat(context, host, DeviceReport.of(body))
