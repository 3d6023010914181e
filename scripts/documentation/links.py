# SPDX-License-Identifier: MIT
"""Links and anchors of pages that are written for the repository's web page, as the site needs them.

A link that leaves docs/ is turned: to the site's own page of a file at the root, to the repository for anything else, or, where
the repository's URL is not known, into plain text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ROOT_PAGES: Final = {
    "README.md": "index.md",
    "PROTOCOL.md": "specification.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting-vulnerabilities.md",
}
"""Markdown file at the root -> its page on the site."""

_SOURCES: Final = {page: name for name, page in ROOT_PAGES.items()}
_LINK: Final = re.compile(
    r"(?P<open>!?\[)(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]"
    r"\((?!\w+:|#)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
_CODE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_FENCE: Final = re.compile(r"^(```\w+) .+$", re.MULTILINE)


def site_markdown(markdown: str, page: str, repository: str | None, site: Container[str]) -> str:
    """Return the Markdown of a ``page`` of the site with its links turned, and without what follows a fence's language, which
    tells tests how to run the block. ``site``: the paths of all files of docs/."""
    source = _SOURCES.get(page, f"docs/{page}")
    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_turned(markdown[end : code.start()], source, page, repository, site), _FENCE.sub(r"\1", code[0])]
        end = code.end()
    return "".join([*parts, _turned(markdown[end:], source, page, repository, site)])


def _turned(text: str, source: str, page: str, repository: str | None, site: Container[str]) -> str:
    def turn(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"]))
        there = ROOT_PAGES.get(target, target.removeprefix("docs/"))
        if target in ROOT_PAGES or (target.startswith("docs/") and there in site):
            where = posixpath.relpath(there, posixpath.dirname(page) or ".")
        elif not (ROOT / target).exists():
            return link[0]  # mkdocs reports it
        elif repository:
            where = f"{repository.rstrip('/')}/{'tree' if (ROOT / target).is_dir() else 'blob'}/main/{target}"
        else:
            return link["text"]
        return f"{link['open']}{link['text']}]({where}{link['anchor'] or ''})"

    return _LINK.sub(turn, text)


def slugify(heading: str, separator: str) -> str:
    """Return a heading's anchor as the repository's web page makes it."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]*>", "", heading).lower()).strip().replace(" ", separator)
