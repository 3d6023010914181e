"""Loading: what is refused, by a message that names it."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from netsum_switch.codegen import dump
from netsum_switch.codegen.engine import PythonPipeline
from netsum_switch.errors import JsonError, SwitchError, UnsupportedError
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
def test_every_program_of_ours_loads(name: str, engine: str) -> None:
    pipeline = load_pipeline(text(name), engine=engine)
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
    program["meter_arrays"] = [{"name": "IngressImpl.police", "id": 0, "type": "bytes", "size": 1, "rate_count": 3}]


def selector(program: dict[str, Any]) -> None:
    choose = {"algo": "fnv", "input": []}
    program["pipelines"][0]["action_profiles"] = [{"name": "ecmp", "id": 0, "selector": choose}]


def extern(program: dict[str, Any]) -> None:
    program["extern_instances"] = [{"name": "mine", "id": 0}]


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
        (meter, "meter IngressImpl.police has 3 rates"),
        (selector, "hash algorithm 'fnv'"),
        (extern, "extern instances .mine"),
        (primitive, "primitive 'teleport'"),
        (operator, "operator '<=>'"),
        (algorithm, "hash algorithm 'md5'"),
        (parser_operation, "parser operation 'skip'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change: Change, named: str, engine: str) -> None:
    with pytest.raises(UnsupportedError, match=named):
        load_pipeline(changed("calculations", change), engine=engine)


@pytest.mark.parametrize("section", ["headers", "actions", "pipelines", "deparsers"])
def test_incomplete_programs(section: str, engine: str) -> None:
    def cut(program: dict[str, Any]) -> None:
        program[section] = [{}]

    with pytest.raises((JsonError, UnsupportedError)):
        load_pipeline(changed("calculations", cut), engine=engine)


def test_names_that_would_become_one_variable() -> None:
    def confuse(program: dict[str, Any]) -> None:
        header = next(each for each in program["header_types"] if each["name"] == "ethernet_t")
        header["fields"] += [["a.b", 8, False], ["a_b", 8, False]]

    with pytest.raises(UnsupportedError, match="too much alike"):
        load_pipeline(changed("calculations", confuse))


EVIL = "[].append(__import__('builtins').setattr) or 1"


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a JSON document, its source locations left out."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        if key != "source_info":
            yield (*path, key)
            yield from places(child, (*path, key))


def put(document: Any, path: tuple[Any, ...], value: Any) -> str:
    changed_copy = json.loads(json.dumps(document))
    inner = changed_copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(changed_copy)


@pytest.mark.parametrize("name", ["stacks", "replication", "calculations", "reports", "varbits", "constructs"])
@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(EVIL, id="code"),
        pytest.param(None, id="null"),
        *(
            pytest.param(junk, id=name, marks=pytest.mark.full)
            for name, junk in (("negative", -1), ("list", []), ("object", {}))
        ),
    ],
)
def test_damaged_programs_are_refused_and_nothing_of_them_becomes_code(name: str, junk: Any) -> None:
    """Any damage ends in one of our errors, or in a program without the text that was put into it."""
    document = json.loads(text(name))
    chance = random.Random(f"{name} {junk}")
    everywhere = list(places(document))
    for path in chance.sample(everywhere, 60):
        try:
            pipeline = load_pipeline(put(document, path, junk), engine="python")
        except SwitchError:
            continue
        assert isinstance(pipeline, PythonPipeline)
        names = {
            node.id for node in ast.walk(ast.parse(pipeline.code)) if isinstance(node, ast.Name)
        }  # in a string it may be
        assert "__import__" not in names, path


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("learn_lists", 0, "id"), "id of .* not a number"),
        (("errors", 1, 1), "is not a name and a number"),
        (("header_types", 0, "fields", 0, 1), "the width of .* not a number of bits"),
        (("pipelines", 0, "tables", 0, "action_ids", 0), "action_ids of .* not a list of numbers"),
    ],
)
def test_numbers_are_numbers(path: tuple[Any, ...], message: str) -> None:
    with pytest.raises(JsonError, match=message):
        load_pipeline(put(json.loads(text("reports")), path, EVIL))


def test_a_program_nested_too_deeply() -> None:
    with pytest.raises(JsonError, match="not JSON"):
        load_pipeline("[" * 100_000)


def test_arrays_that_do_not_fit_the_memory() -> None:
    document = json.loads(text("matching"))
    with pytest.raises(UnsupportedError, match="cells has 1099511627776 cells"):
        load_pipeline(put(document, ("register_arrays", 0, "size"), 1 << 40))


def test_dump_is_the_python_that_runs() -> None:
    source = dump(text("contract"))
    pipeline = load_pipeline(text("contract"), engine="python")
    assert isinstance(pipeline, PythonPipeline)
    assert source == pipeline.code
    compile(source, "<contract>", "exec")
    assert "def ingress(" in source
