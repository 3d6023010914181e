"""The live page's own files, which hold nothing that is secret."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
"""Path -> file and content type."""

PAGE_HEADERS: Final = {
    # Nothing from elsewhere, nothing inline: a job's name is text and can be no script.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def page(path: str) -> tuple[str, bytes]:
    """Content type and bytes of one of :data:`PAGE`."""
    name, content_type = PAGE[path]
    return content_type, (files(__package__) / name).read_bytes()
