# SPDX-License-Identifier: MIT
"""Reference of the controller's HTTP endpoint: a page made of its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netsum_controller.http.openapi import openapi_document

Json = Mapping[str, Any]


def page() -> str:
    """Return the Markdown of all operations and the objects that they exchange."""
    return "\n".join(_lines(openapi_document()))


def _lines(document: Json) -> Iterator[str]:
    yield f"# HTTP API\n\n{document['info']['description']} The same as OpenAPI {document['openapi']}: `GET /openapi.json`.\n"
    yield "Tokens are sent as `Authorization: Bearer TOKEN`:\n\n| token | meaning |\n|---|---|"
    for name, scheme in document["components"]["securitySchemes"].items():
        yield f"| {name} | {_cell(scheme['description'])} |"
    yield "\n## Operations\n"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(method.upper(), path, operation)
    yield "## Errors\n\nThe body is an [Error](#error).\n\n| status | meaning |\n|---|---|"
    every = (operation for methods in document["paths"].values() for operation in methods.values())
    errors = {status: response["description"] for each in every for status, response in each["responses"].items()}
    yield from (f"| {status} | {_cell(text)} |" for status, text in sorted(errors.items()) if status != "200")
    yield "\n## Objects\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"### {name}\n\n{schema.get('description', '')}\n"
        yield from _fields(schema)


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f"### {method} {path}\n\n{operation['summary']}\n"
    for requirement in operation.get("security", ()):
        yield f"* Token: {', '.join(requirement)}"
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query":
            yield f"* Query `{parameter['name']}`: {_type(parameter['schema'])} {parameter['schema'].get('description', '')}"
    if body := operation.get("requestBody"):
        yield f"* Body: {_type(body['content']['application/json']['schema'])}"
    for kind, content in operation["responses"]["200"]["content"].items():
        yield f"* Answer: {_type(content['schema']) if kind == 'application/json' else f'`{kind}`'}"
    if errors := [status for status in operation["responses"] if status != "200"]:
        yield f"* Errors: {', '.join(errors)}"
    yield ""


def _fields(schema: Json) -> Iterator[str]:
    if "properties" not in schema:
        yield f"{_type(schema)}\n"
        return
    yield "| field | type | meaning |\n|---|---|---|"
    for name, field in schema["properties"].items():
        needed = "" if name in schema.get("required", ()) else "; optional"
        yield f"| `{name}` | {_cell(_type(field))}{needed} | {_cell(field.get('description', ''))} |"
    yield ""


def _type(schema: Json) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    for joint, word in (("anyOf", " or "), ("allOf", " and ")):
        if joint in schema:
            return word.join(_type(each) for each in schema[joint])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    if kind == "object" and schema.get("properties"):
        return "{" + ", ".join(f"`{name}`" for name in schema["properties"]) + "}"
    bounds = f" {schema['minimum']}..{schema['maximum']}" if {"minimum", "maximum"} <= schema.keys() else ""
    return (" or ".join(kind) if isinstance(kind, list) else kind) + bounds


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
