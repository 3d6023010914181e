# SPDX-License-Identifier: MIT
"""Tables of the documentation."""

from __future__ import annotations

from pathlib import Path


def table(page: Path, start: str) -> list[list[str]]:
    """The cells of the page's first table whose head begins with ``start``, without markup and the line below the head."""
    lines = page.read_text("utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"| {start} |"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip(" *`") for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]
