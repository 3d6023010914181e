# SPDX-License-Identifier: MIT
"""Diagrams in Mermaid, which the repository's web page draws itself, as SVG for the site: no script runs in the browser."""

from __future__ import annotations

import itertools
from typing import Any

_numbers = itertools.count()


def svg(source: str, *, identity: str = "") -> str:
    """Return the drawing. Styles in it apply to the element with its id, so each of a page needs another ``identity``."""
    import mermaidx  # noqa: PLC0415 - only `make docs` needs it, in an environment of its own

    drawn: str = mermaidx.render(source, theme="neutral").svg()
    return drawn.replace("my-svg", identity) if identity else drawn


def fence(source: str, _language: str, _css_class: str, _options: Any, _markdown: Any, **_given: Any) -> str:
    """Draw the code block, on white also where the page is dark; superfences calls it."""
    return f'<div style="background: white; overflow-x: auto">{svg(source, identity=f"diagram-{next(_numbers)}")}</div>'
