# SPDX-License-Identifier: MIT
"""The routes of the controller's HTTP endpoint. :mod:`netsum_controller.http.openapi` describes each."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote

from netsum_controller.web.live_page import PAGE


class Route(NamedTuple):
    """A method, and a path with at most one parameter, in braces. ``call`` is its name in ``netsum_http_requests_total``."""

    method: str
    path: str
    call: str


OPENAPI_PATH: Final = "/openapi.json"

ROUTES: Final = (
    Route("POST", "/v1/jobs", "enroll"),
    Route("POST", "/v1/jobs/{job}/join", "join"),
    Route("POST", "/v1/jobs/{job}/leave", "leave"),
    Route("POST", "/v1/jobs/{job}/groups", "groups"),
    Route("GET", "/v1/jobs/{job}/diagnosis", "diagnosis"),
    Route("GET", "/v1/jobs/{job}/members", "members"),
    Route("GET", "/v1/memory/regions/{region}", "memory regions"),
    Route("POST", "/v1/memory/devices/{host}", "memory devices"),
    Route("GET", "/metrics", "metrics"),
    Route("GET", "/v1/live", "live"),
    *(Route("GET", path, "page") for path in PAGE),
    Route("GET", OPENAPI_PATH, "openapi"),
)


def matching(path: str) -> tuple[list[Route], str]:
    """Return the routes of a request's path, one for each method, and the value of their parameter ("" if they have none)."""
    given = path.strip("/").split("/")
    found, value = [], ""
    for route in ROUTES:
        parts = route.path.strip("/").split("/")
        if len(parts) == len(given) and all(part == one or part[:1] == "{" for part, one in zip(parts, given, strict=True)):
            found.append(route)
            value = next((unquote(one) for part, one in zip(parts, given, strict=True) if part[:1] == "{"), "")
    return found, value
