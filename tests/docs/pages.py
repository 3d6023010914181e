# SPDX-License-Identifier: MIT
"""Code blocks of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)[ ]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#]+)?(?:#([^)]*))?\)")


class Block(NamedTuple):
    """A fenced block: its language, what follows on that line, and the text."""

    language: str
    title: str
    text: str


class Command(NamedTuple):
    """One ``$ ...`` line of a console block, and what it prints."""

    line: str
    output: str


def pages() -> list[Path]:
    """Every page of the documentation."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(path: Path) -> list[Block]:
    """The page's fenced blocks that name a language."""
    return [Block(*found) for found in _BLOCK.findall(path.read_text("utf-8"))]


def write_files(folder: Path, *pages: Path) -> None:
    """Write each block of the pages whose title is ``file=NAME`` into a file of that name."""
    for page in pages:
        for block in blocks(page):
            if block.title.startswith("file="):
                (folder / block.title.removeprefix("file=")).write_text(block.text, "utf-8")


def commands(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output)


def links(path: Path) -> Iterator[tuple[str, str]]:
    """Links within the repository: (file or empty, anchor or empty)."""
    for found in _LINK.finditer(path.read_text("utf-8")):
        yield found[1] or "", found[2] or ""


def anchors(path: Path) -> set[str]:
    """The anchors that the page's headings get."""
    titles = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
