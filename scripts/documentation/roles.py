# SPDX-License-Identifier: MIT
"""Docstrings' Sphinx roles, such as ``:class:`netsum.Work```, as links of mkdocstrings."""

from __future__ import annotations

import re
from typing import Final

_ROLE: Final = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`~?([\w.\s]+)`")
_LITERAL: Final = re.compile(r"^(.*)::$", re.MULTILINE)


def to_markdown(text: str) -> str:
    """Return a docstring's text with its roles as links, and its literal blocks behind ``::`` as Markdown's. A name that no
    page has stays code."""

    def link(role: re.Match[str]) -> str:
        name = "".join(role[1].split())
        return f'<autoref identifier="{name}" optional><code>{name}</code></autoref>'

    return _LITERAL.sub(lambda line: f"{line[1]}:" if line[1].strip() else "", _ROLE.sub(link, text))
