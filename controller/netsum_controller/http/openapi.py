# SPDX-License-Identifier: MIT
"""The HTTP endpoint as an OpenAPI document: ``GET /openapi.json``, and the page of the documentation.

What types say is taken from the types; ``tests/controller/test_openapi.py`` holds the rest to the routes and to real answers.
"""

from __future__ import annotations

import re
from copy import deepcopy
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from netsum.descriptor import Descriptor
from netsum.wire.schema import MAX_WORKERS
from pydantic import TypeAdapter

from netsum_controller.http.enrollment import HOST_ID, Enrollment
from netsum_controller.http.routes import ROUTES, Route
from netsum_controller.memory.devices import DeviceReport
from netsum_controller.monitoring.job_status import JobDiagnosis
from netsum_controller.state.model import SERIAL
from netsum_controller.web.live_page import PAGE

Json = dict[str, Any]

_ROLE: Final = re.compile(r":\w+:`~?")
_REF: Final = "#/components/schemas/{model}"
_TYPES: Final = {"Descriptor": Descriptor, "Diagnosis": JobDiagnosis, "DeviceReport": DeviceReport, "Enrollment": Enrollment}

_DESCRIPTION: Final = (
    "The endpoint of `netsum serve` and `netsum aggregator`, which members and memory devices use. Each answer ends its "
    "connection. A body has at most 64 KiB and needs `Content-Length`. An error is one sentence in `error`."
)

_ERRORS: Final = {
    400: "The request makes no sense; the sentence names what is wrong.",
    401: "The token is missing or wrong. A job that does not exist looks the same.",
    403: "The rank is evicted (`reason`: `evicted`).",
    404: "There is no such job, rank, region or host, or the server has no such path.",
    408: "The request was not received in time.",
    409: "Not now: send it again after `retry_ms`. With `next_epoch`, an epoch that resumes the member's is about to begin.",
    410: "The epoch cannot be continued (`reason`: `anew`): join again without `epoch`.",
    411: "`Content-Length` is missing.",
    413: "The body is too large.",
    503: "A switch or the state file does not answer, or the server has too many connections.",
}
_OF_POST: Final = (400, 401, 404, 408, 409, 411, 413, 503)
_OF_GET: Final = (400, 401, 404, 409, 503)


def _number(description: str, low: int = 0, high: int = SERIAL - 1) -> Json:
    return {"type": "integer", "minimum": low, "maximum": high, "description": description}


def _text(description: str, **more: Any) -> Json:
    return {"type": "string", "minLength": 1, "maxLength": 256, "description": description, **more}


def _object(required: str = "", **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": required.split()}


def _ref(name: str) -> Json:
    return {"$ref": _REF.format(model=name)}


_MEMBER: Final = {
    "rank": _number("The member's rank.", high=MAX_WORKERS - 1),
    "instance": _text("Random, and new in each process: another instance of a rank replaces the one before."),
}
_HOST: Final = {
    "type": "string",
    "pattern": f"^{HOST_ID.pattern}$",
    "description": "32 hex digits that ranks which can share memory have in common; empty: this one can share none.",
}
_SCHEMAS: Final[Json] = {
    "Error": _object(
        "error",
        error={"type": "string"},
        reason={"enum": ["evicted", "anew"]},
        retry_ms={"type": "number"},
        next_epoch={"type": "integer"},
    ),
    "Join": _object(
        "rank instance",
        **_MEMBER,
        link={"type": "object", "description": "The member's link to its switch, if not the topology's: `kind` and its parts."},
        peer=_text("HOST:PORT (TCP) at which the other members reach this one."),
        host=_HOST,
        epoch=_number("The epoch that the member is in: a rejoin."),
        next_epoch=_number("With `needs`: the epoch that the member has been told of, and has stopped for."),
        needs=_number("The first block whose result the member lacks."),
        block=_number("The block that the member waits for, with the three that follow."),
        sent=_number("How often it has sent that block."),
        octets=_number("Bytes of those packets."),
        received=_number("Packets that have come to it in this epoch."),
        group=_text(
            "With `epoch`: the IP multicast group (HOST:PORT) of its descriptor, which the member has joined; empty: none.",
            minLength=0,
        ),
    ),
    "Leave": _object("rank instance", **_MEMBER),
    "Group": _object(
        "rank instance epoch label ranks",
        **_MEMBER,
        epoch=_number("The epoch that the member is in."),
        label=_text("Tells groups of the same ranks from one another."),
        ranks={"type": "array", "items": _number("A rank.", high=MAX_WORKERS - 1), "maxItems": MAX_WORKERS},
        algorithm=_text("A host algorithm instead of the job's."),
    ),
    "Members": _object(
        "job epoch members",
        job={"type": "string"},
        epoch={"type": "integer"},
        members={
            "type": "array",
            "items": _object(
                "rank host joined left evicted address",
                rank={"type": "integer"},
                host={"type": "string"},
                joined={"type": "boolean"},
                left={"type": "boolean"},
                evicted={"type": "boolean"},
                address={"type": ["string", "null"], "description": "At which other hosts reach this one."},
            ),
        },
    ),
    "Region": _object(
        "name id base size granule shards replicas kind dtype shape options key rights virtual_ip virtual_mac port payload state",
        **{name: {"type": "integer"} for name in ("id", "base", "size", "granule", "shards", "replicas", "port", "payload")},
        **{name: {"type": "string"} for name in ("name", "kind", "virtual_ip", "virtual_mac", "state")},
        dtype={"type": ["string", "null"]},
        shape={"type": ["array", "null"], "items": {"type": "integer"}},
        options={"type": "object"},
        key={"type": ["integer", "string"], "description": "Goes into each packet: the right to what `rights` says."},
        rights={"enum": ["read", "write"]},
        mtu={"type": "integer", "description": "With `host` in the query, as the three that follow."},
        mac={"type": "string"},
        host=_object("ip mac", ip={"type": "string"}, mac={"type": "string"}),
        link={"type": "object"},
    ),
    "DeviceOrders": _object(
        "interval lease virtual_ip mac port shards keep",
        interval={"type": "number", "description": "Seconds between two reports."},
        lease={"type": "number", "description": "Seconds without a report after which the device counts as dead."},
        virtual_ip={"type": "string"},
        mac={"type": "string"},
        port={"type": "integer"},
        shards={"type": "array", "items": {"type": "object"}},
        keep={"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    ),
}


def _operation(summary: str, token: str | None, answer: Json | str, body: str = "", query: Json | None = None) -> Json:
    content = {"application/json": {"schema": answer}} if isinstance(answer, dict) else {answer: {"schema": {"type": "string"}}}
    operation: Json = {"summary": summary, "responses": {"200": {"description": "As asked for.", "content": content}}}
    if token is not None:
        operation["security"] = [{token: []}]
    if body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    if query:
        operation["parameters"] = [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()]
    return operation


_OPERATIONS: Final = {
    "enroll": _operation(
        "Enroll a rank by the job's name and size, and get the job's own token. Only `netsum aggregator` takes enrollments.",
        "joinToken",
        _object("job token", job={"type": "string"}, token={"type": "string"}),
        "Enrollment",
    ),
    "join": _operation(
        "Join a job, or, with `epoch`, rejoin it; a rank that waits says what for. The answer is the member's descriptor.",
        "jobToken",
        _ref("Descriptor"),
        "Join",
    ),
    "leave": _operation("Leave a job.", "jobToken", _object("left", left={"type": "boolean"}), "Leave"),
    "groups": _operation(
        "Create a group of ranks, which is a job of its own, or find it.",
        "jobToken",
        _object("job rank", job={"type": "string"}, rank={"type": "integer"}),
        "Group",
    ),
    "diagnosis": _operation(
        "List the open blocks and the ranks that they wait for. With `block`, the answer has that block's fields, not `blocks`.",
        "jobToken",
        {"anyOf": [_ref("Diagnosis"), {"allOf": [_ref("BlockReport"), _object("job epoch", job={}, epoch={})]}]},
        query={"block": _number("One block only.")},
    ),
    "members": _operation("List the members of the job's epoch.", "jobToken", _ref("Members")),
    "memory regions": _operation(
        "Describe a region of memory to a client.",
        "regionToken",
        _ref("Region"),
        query={"access": {"enum": ["read", "write"], "default": "write"}, "host": _text("The client's host.")},
    ),
    "memory devices": _operation(
        "Report what a memory device holds, and get what it is to hold.", "deviceToken", _ref("DeviceOrders"), "DeviceReport"
    ),
    "metrics": _operation("Metrics for Prometheus, in the format that `Accept` asks for.", "metricsToken", "text/plain"),
    "live": _operation("The live page's events, as they happen.", "metricsToken", "text/event-stream"),
    "page": _operation("A file of the live page (`netsum serve --web`).", None, "text/html"),
    "openapi": _operation("This document.", None, {"type": "object"}),
}
"""By :attr:`netsum_controller.http.routes.Route.call`."""

_TOKENS: Final = {
    "jobToken": "The job's token, which `netsum job create` prints.",
    "joinToken": "The token of the line that `netsum aggregator` prints.",
    "regionToken": "The region's token, which grants to read and write, or the one that grants to read.",
    "deviceToken": "The memory devices' token: `netsum memory token`.",
    "metricsToken": "The token of `netsum serve --metrics-token`; none is needed where none was given.",
}


def _described(route: Route) -> Json:
    operation = deepcopy(_OPERATIONS[route.call])
    responses = operation["responses"]
    if route.call == "page":
        content = responses["200"]["content"]
        content[PAGE[route.path][1].partition(";")[0]] = content.pop("text/html")
    if "{" in route.path:
        name = route.path.partition("{")[2].partition("}")[0]
        parameter = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"] = [parameter, *operation.get("parameters", ())]
    if "security" in operation:
        errors = {*(_OF_POST if route.method == "POST" else _OF_GET), *((403, 410) if route.call == "join" else ())}
        for status in sorted(errors):
            responses[str(status)] = {
                "description": _ERRORS[status],
                "content": {"application/json": {"schema": _ref("Error")}},
            }
    return operation


@cache
def openapi_document() -> Json:
    """Return the document, of OpenAPI 3.1. All callers share it, so they must not change it."""
    paths: dict[str, Json] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _described(route)
    schemas = dict(_SCHEMAS)
    for name, described in _TYPES.items():
        schema = TypeAdapter(described).json_schema(ref_template=_REF)
        schemas |= schema.pop("$defs", {})
        schemas[name] = schema
    for schema in schemas.values():
        if "description" in schema:  # a docstring
            schema["description"] = " ".join(_ROLE.sub("`", schema["description"]).split())
    return {
        "openapi": "3.1.0",
        "info": {"title": "netsum controller", "version": version("netsum"), "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": text} for name, text in _TOKENS.items()
            },
        },
    }
