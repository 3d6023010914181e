"""Every link within the documentation leads somewhere."""

from __future__ import annotations

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


def test_readme_links_every_page() -> None:
    linked = {(ROOT / target).resolve() for target, _ in links(ROOT / "README.md")}
    assert {page.name for page in pages() if page.resolve() not in linked} == {"README.md"}
