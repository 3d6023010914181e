"""docs/wire.md is the schema."""

from __future__ import annotations

import pytest
from netsum.wire import schema
from netsum.wire.to_docs import page_text

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "wire.md"
TEXT = " ".join(PAGE.read_text("utf-8").split())


@pytest.mark.parametrize(
    "fields",
    [schema.TRIO_FIELDS, schema.EXTENSION_FIELDS, schema.QUERY_FIELDS, schema.RECORD_FIELDS],
    ids=["trio", "extension", "query", "record"],
)
def test_tables_are_the_schema(fields: tuple[schema.Field, ...]) -> None:
    rows = "\n".join(f"| {field.name} | {field.bits} | {field.doc} |" for field in fields)
    assert rows in PAGE.read_text("utf-8")


def test_the_table_of_operations_is_the_schemas() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page_text(text), "run `make p4` and commit the result"


def test_python_example_runs() -> None:
    (example,) = [block for block in blocks(PAGE) if block.title == "scapy"]
    exec(compile(example.text, str(PAGE), "exec"), {})
