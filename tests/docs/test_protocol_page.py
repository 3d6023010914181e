# SPDX-License-Identifier: MIT
"""PROTOCOL.md: its example runs. Its rules and tables: tests/conformance/test_specification.py."""

from __future__ import annotations

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "PROTOCOL.md"


def test_python_example_runs() -> None:
    (example,) = [block for block in blocks(PAGE) if block.title == "scapy"]
    exec(compile(example.text, str(PAGE), "exec"), {})
