"""Loading: what is refused, and that the message names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from netsum_switch.codegen import dump
from netsum_switch.errors import JsonError, UnsupportedError
from netsum_switch.pipeline import load_pipeline

from tests.switch.harness.controller import PROGRAMS

Change = Callable[[dict[str, Any]], None]


def text(name: str) -> str:
    return (PROGRAMS / f"{name}.json").read_text()


def changed(name: str, change: Change) -> str:
    program = json.loads(text(name))
    change(program)
    return json.dumps(program)


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.json")))
def test_every_program_of_ours_loads(name: str) -> None:
    pipeline = load_pipeline(text(name))
    assert pipeline.tables


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a BMv2 JSON object"),
        ("{}", "no __meta__.version"),
        ('{"__meta__": {"version": [2, 23]}}', "no section 'header_types'"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_documents_that_are_no_program(document: str | bytes, message: str) -> None:
    with pytest.raises(JsonError, match=message):
        load_pipeline(document)


@pytest.mark.parametrize("version", [[1, 0], [3, 0], [2, 25]])
def test_other_versions(version: list[int]) -> None:
    with pytest.raises(JsonError, match=rf"version {version[0]}\.{version[1]}; this switch reads 2\.0 to 2\.24"):
        load_pipeline(changed("reports", lambda program: program["__meta__"].update(version=version)))


def meter(program: dict[str, Any]) -> None:
    program["meter_arrays"] = [{"name": "IngressImpl.police", "id": 0}]


def value_set(program: dict[str, Any]) -> None:
    program["parse_vsets"] = [{"name": "ports", "id": 0}]


def profile(program: dict[str, Any]) -> None:
    program["pipelines"][0]["action_profiles"] = [{"name": "ecmp", "id": 0}]


def extern(program: dict[str, Any]) -> None:
    program["extern_instances"] = [{"name": "mine", "id": 0}]


def union_stack(program: dict[str, Any]) -> None:
    program["header_union_stacks"] = [{"name": "options", "id": 0}]


def primitive(program: dict[str, Any]) -> None:
    next(each for each in program["actions"] if each["primitives"])["primitives"][0]["op"] = "teleport"


def operator(program: dict[str, Any]) -> None:
    program["pipelines"][0]["conditionals"][0]["expression"]["value"]["op"] = "<=>"


def algorithm(program: dict[str, Any]) -> None:
    for each in program["calculations"]:
        each["algo"] = "md5"


def parser_operation(program: dict[str, Any]) -> None:
    program["parsers"][0]["parse_states"][0]["parser_ops"][0]["op"] = "skip"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (meter, "meters .IngressImpl.police"),
        (value_set, "parser value sets .ports"),
        (profile, "action profiles .ecmp"),
        (extern, "extern instances .mine"),
        (union_stack, "stacks of header unions .options"),
        (primitive, "primitive 'teleport'"),
        (operator, "operator '<=>'"),
        (algorithm, "hash algorithm 'md5'"),
        (parser_operation, "parser operation 'skip'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change: Change, named: str) -> None:
    with pytest.raises(UnsupportedError, match=named):
        load_pipeline(changed("calculations", change))


@pytest.mark.parametrize("section", ["headers", "actions", "pipelines", "deparsers"])
def test_incomplete_programs(section: str) -> None:
    def cut(program: dict[str, Any]) -> None:
        program[section] = [{}]

    with pytest.raises((JsonError, UnsupportedError)):
        load_pipeline(changed("calculations", cut))


def test_names_that_would_become_one_variable() -> None:
    def confuse(program: dict[str, Any]) -> None:
        header = next(each for each in program["header_types"] if each["name"] == "ethernet_t")
        header["fields"] += [["a.b", 8, False], ["a_b", 8, False]]

    with pytest.raises(UnsupportedError, match="too much alike"):
        load_pipeline(changed("calculations", confuse))


def test_dump_is_the_python_that_runs() -> None:
    source = dump(text("contract"))
    assert source == load_pipeline(text("contract")).code
    compile(source, "<contract>", "exec")
    assert "def ingress(" in source
