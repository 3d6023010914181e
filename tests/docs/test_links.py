# SPDX-License-Identifier: MIT
"""Every link within the documentation leads somewhere, and so does every `make` target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, links, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for target, anchor in links(page):
        there = (page.parent / target).resolve() if target else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(f"{target}#{anchor}" if anchor else target)
    assert not dead


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    code = re.compile(r"(?:^    |`|^(?=make \S+ *(?:#|$)))make ([a-z0-9-]+)", re.MULTILINE)  # not a line of a sentence
    named = {page.name: set(code.findall(page.read_text("utf-8"))) for page in pages()}
    assert {"demo", "test"} <= named["README.md"]
    assert {"stragglers", "detection"} <= named["concepts.md"]
    assert {page: names - targets for page, names in named.items() if names - targets} == {}


def test_readme_links_every_page() -> None:
    linked = {(ROOT / target).resolve() for target, _ in links(ROOT / "README.md")}
    assert {page.name for page in pages() if page.resolve() not in linked} == {"README.md"}
