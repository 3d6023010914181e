# SPDX-License-Identifier: MIT
"""GET /openapi.json describes the server: every route, and what each takes and answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from netsum_controller import Controller, JobSpec
from netsum_controller.http.openapi import _OPERATIONS, openapi_document
from netsum_controller.http.routes import ROUTES, Route, matching

from tests.controller.memory_devices import FakeMemory
from tests.controller.test_http import Caller
from tests.docs.pages import ROOT

DESCRIBED = openapi_document()
WHO = {"rank": 0, "instance": "a"}


@pytest.fixture
def call(controller: Controller, spec: JobSpec) -> Caller:
    controller.create_job(spec)
    return Caller(controller.serve())


def conforms(value: Any, schema: Any) -> list[str]:
    whole = {"components": DESCRIBED["components"], **schema}
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(whole).iter_errors(value)]


def operation(method: str, path: str) -> Any:
    (route,) = (route for route in matching(path.partition("?")[0])[0] if route.method == method)
    return DESCRIBED["paths"][route.path][method.lower()]


def test_every_route_is_described_and_nothing_else() -> None:
    described = {(method.upper(), path) for path, methods in DESCRIBED["paths"].items() for method in methods}
    assert described == {route[:2] for route in ROUTES}
    assert _OPERATIONS.keys() == {route.call for route in ROUTES}


def test_the_document_is_whole() -> None:
    """Each schema is one, and each reference leads to one."""
    schemas = DESCRIBED["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*map(references, node.values()))
        return set().union(*map(references, node)) if isinstance(node, list) else set()

    names = {reference.removeprefix("#/components/schemas/") for reference in references(DESCRIBED)}
    assert names <= schemas.keys()
    assert schemas.keys() <= names, "no operation uses them"
    tokens = {
        name for methods in DESCRIBED["paths"].values() for one in methods.values() for name in one.get("security", [{}])[0]
    }
    assert tokens == DESCRIBED["components"]["securitySchemes"].keys()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_the_server_has_every_route(route: Route, call: Caller) -> None:
    """Without a token: what it refuses is a request, not a path. Metrics and the live page are served only if asked for."""
    path = route.path.replace("{job}", "resnet").replace("{region}", "x").replace("{host}", "h1")
    if route.call in ("metrics", "live", "page"):
        return
    status, answer = call(route.method, path, WHO if route.method == "POST" else None, None)
    assert status == {"openapi": 200, "enroll": 404}.get(route.call, 401), answer
    assert "no such" not in answer.get("error", "")


def test_it_is_served(call: Caller, controller: Controller) -> None:
    assert call("GET", "/openapi.json", token=None) == (200, DESCRIBED)
    assert controller.context.counters.of("http") == {("openapi", "200"): 1}


def test_a_path_has_no_other_routes() -> None:
    for path in ("/v1/jobs/a/b/join", "/v1/jobs/a/steal", "/v2/jobs/a/join", "/v1", "/metrics/x", "/v1/memory/regions"):
        assert matching(path) == ([], "")
    assert matching("/v1/jobs/a%2Fb/join/") == ([Route("POST", "/v1/jobs/{job}/join", "join")], "a/b")


def test_answers_are_as_described(controller: Controller, call: Caller, memory: FakeMemory) -> None:
    region = memory.create(dtype="float32", shape=(10,), devices=("h1",), shards=1)
    held = [{"region": region.id, "shard": 0, "epoch": 1, "position": 4, "ready": True}]
    _, joined = call("POST", "/v1/jobs/resnet/join", WHO)
    rejoin = {**WHO, "epoch": joined["epoch"], "block": joined["first_block_id"], "sent": 1, "octets": 100, "received": 0}
    group = {**WHO, "epoch": joined["epoch"], "label": "a", "ranks": [0, 2]}
    device = {"incarnation": "h1 life 1", "shards": held}
    for method, path, body, token in (
        ("POST", "/v1/jobs/resnet/join", rejoin, None),
        ("POST", "/v1/jobs/resnet/groups", group, None),
        ("POST", "/v1/jobs/resnet/groups", {**group, "algorithm": "ring"}, None),
        ("GET", "/v1/jobs/resnet/members", None, None),
        ("GET", "/v1/jobs/resnet/diagnosis", None, None),
        ("GET", f"/v1/jobs/resnet/diagnosis?block={joined['first_block_id']}", None, None),
        ("GET", "/v1/memory/regions/x?host=h3&access=read", None, region.token),
        ("GET", "/v1/memory/regions/x", None, region.token),
        ("POST", "/v1/memory/devices/h1", device, controller.device_token),
        ("POST", "/v1/jobs/resnet/leave", WHO, None),
    ):
        described = operation(method, path)
        status, answer = call(method, path, body, *(() if token is None else (token,)))
        assert status == 200, (path, answer)
        assert conforms(answer, described["responses"]["200"]["content"]["application/json"]["schema"]) == [], path
        if body is not None:
            assert conforms(body, described["requestBody"]["content"]["application/json"]["schema"]) == [], path


def test_errors_are_as_described(call: Caller) -> None:
    for path, body, token in (
        ("/v1/jobs/resnet/join", {"rank": 0}, "wrong"),
        ("/v1/jobs/resnet/join", {"rank": 0}, None),
        ("/v1/jobs/resnet/join", {"rank": 9, "instance": "a"}, None),
        ("/v1/jobs/resnet/join", {**WHO, "epoch": 999_999}, None),
    ):
        status, answer = call("POST", path, body, *(() if token is None else (token,)))
        assert status >= 400
        assert conforms(answer, operation("POST", path)["responses"][str(status)]["content"]["application/json"]["schema"]) == []


@pytest.mark.parametrize("algorithm", ["switch", "auto", "plan:/etc/passwd", "chain:4x4", "rings", 3])
def test_a_group_has_a_host_algorithm_for_any_ranks(call: Caller, algorithm: object) -> None:
    _, joined = call("POST", "/v1/jobs/resnet/join", WHO)
    group = {**WHO, "epoch": joined["epoch"], "label": "a", "ranks": [0, 2], "algorithm": algorithm}
    status, answer = call("POST", "/v1/jobs/resnet/groups", group)
    assert (status, "algorithm" in answer["error"]) == (400, True)


def test_a_wrong_body_is_refused_by_the_description_too(call: Caller) -> None:
    for body in (
        {"rank": "0", "instance": "a"},
        {"rank": 0},
        {"rank": 0, "instance": ""},
        {**WHO, "host": "x"},
        {**WHO, "sent": -1},
    ):
        assert call("POST", "/v1/jobs/resnet/join", body)[0] == 400
        assert conforms(body, operation("POST", "/v1/jobs/resnet/join")["requestBody"]["content"]["application/json"]["schema"])


def test_every_field_that_the_server_reads_is_described() -> None:
    source = (ROOT / "controller" / "netsum_controller" / "http" / "api.py").read_text("utf-8")
    read = set(re.findall(r'(?:_field\(body, |body\.get\()"(\w+)"', source))
    schemas = DESCRIBED["components"]["schemas"]
    assert {"rank", "instance", "link", "peer"} <= read
    assert read <= {name for schema in ("Join", "Leave", "Group", "Enrollment") for name in schemas[schema]["properties"]}


def test_the_comment_lists_every_route() -> None:
    text = (ROOT / "controller" / "netsum_controller" / "http" / "api.py").read_text("utf-8")
    for route in ROUTES:
        name = route.path.replace("{job}", "NAME").replace("{region}", "NAME").replace("{host}", "HOST")
        assert name in text, route
