# SPDX-License-Identifier: MIT
"""Loading: what is refused, by a message that names it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm
import pytest
from netsum_switch.errors import JsonError, SwitchError, UnsupportedError
from netsum_switch.lowering.control import has_loop
from netsum_switch.pipeline import dump, load_pipeline

from tests.switch.harness.controller import PROGRAMS


def text(name: str) -> str:
    return (PROGRAMS / f"{name}.json").read_text()


def put(name: str, path: tuple[Any, ...], value: Any) -> str:
    """A program of ours with something else in that place."""
    inner = program = json.loads(text(name))
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
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
        ("{}", "no section 'header_types'"),  # the oldest compilers wrote no version
        ('{"__meta__": {"version": 2}}', r"__meta__.version is 2, not two numbers"),
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
        load_pipeline(put("reports", ("__meta__", "version"), version))


METER = {"name": "IngressImpl.police", "id": 0, "type": "bytes", "size": 1, "rate_count": 3}
SELECTOR = {"name": "ecmp", "id": 0, "selector": {"algo": "fnv", "input": []}}


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("meter_arrays",), [METER], "meter IngressImpl.police has 3 rates"),
        (("pipelines", 0, "action_profiles"), [SELECTOR], "hash algorithm 'fnv'"),
        (("extern_instances",), [{"name": "mine", "id": 0}], "extern instances .mine"),
        (("actions", 1, "primitives", 0, "op"), "teleport", "primitive 'teleport'"),
        (("pipelines", 0, "conditionals", 0, "expression", "value", "op"), "<=>", "operator '<=>'"),
        (("calculations", 0, "algo"), "md5", "hash algorithm 'md5'"),
        (("parsers", 0, "parse_states", 0, "parser_ops", 0, "op"), "skip", "parser operation 'skip'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(path: tuple[Any, ...], value: Any, named: str) -> None:
    with pytest.raises(UnsupportedError, match=named):
        load_pipeline(put("calculations", path, value))


@pytest.mark.parametrize("section", ["headers", "actions", "pipelines", "deparsers"])
def test_incomplete_programs(section: str) -> None:
    with pytest.raises((JsonError, UnsupportedError)):
        load_pipeline(put("calculations", (section,), [{}]))


def test_names_that_would_become_one_variable() -> None:
    program = json.loads(text("calculations"))
    header = next(each for each in program["header_types"] if each["name"] == "ethernet_t")
    header["fields"] += [["a.b", 8, False], ["a_b", 8, False]]
    with pytest.raises(UnsupportedError, match="too much alike"):
        load_pipeline(json.dumps(program))


EVIL = "[].append(__import__('builtins').setattr) or 1"


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a JSON document, its source locations left out."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        if key != "source_info":
            yield (*path, key)
            yield from places(child, (*path, key))


@pytest.mark.parametrize("name", ["stacks", "replication", "calculations", "reports", "varbits", "constructs"])
@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(EVIL, id="code"),
        pytest.param(None, id="null"),
        *(pytest.param(junk, id=name, marks=pytest.mark.full) for name, junk in (("negative", -1), ("list", []), ("object", {}))),
    ],
)
def test_damaged_programs_are_refused_and_nothing_of_them_becomes_code(name: str, junk: Any) -> None:
    """Any damage ends in one of our errors, or in a program without the text that was put into it."""
    chance = random.Random(f"{name} {junk}")
    everywhere = list(places(json.loads(text(name))))
    for path in chance.sample(everywhere, 60):
        try:
            code = dump(put(name, path, junk))
        except SwitchError:
            continue
        assert "__import__" not in code, path
        llvm.parse_assembly(code).verify()


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
        load_pipeline(put("reports", path, EVIL))


def test_a_control_of_many_nodes() -> None:
    chain: dict[str, list[str | None]] = {str(number): [str(number + 1), None] for number in range(5000)}
    assert not has_loop(chain | {"5000": [None]}, "0")
    assert has_loop(chain | {"5000": ["4000"]}, "0")
    assert not has_loop({**chain, "5000": [None], "aside": ["aside"]}, "0")  # nothing leads there
    assert not has_loop({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": [None]}, "a")


def test_a_program_nested_too_deeply() -> None:
    with pytest.raises(JsonError, match="not JSON"):
        load_pipeline("[" * 100_000)


def test_arrays_that_do_not_fit_the_memory() -> None:
    with pytest.raises(UnsupportedError, match="cells has 1099511627776 cells"):
        load_pipeline(put("matching", ("register_arrays", 0, "size"), 1 << 40))


def test_dump_is_the_code_that_runs() -> None:
    source = dump(text("contract"))
    assert "@process(" in source
    llvm.parse_assembly(source).verify()
