# SPDX-License-Identifier: MIT
"""Installation of an extra by this installation's own source: from the folder, the file or the address that it came from."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit


def _origin() -> dict[str, Any]:
    """The origin that pip noted (PEP 610), or the clone that it runs from; nothing if that was an index."""
    # In a clone, a build leaves metadata that Python finds before those of the installation.
    noted = (found.read_text("direct_url.json") for found in distributions(name="netsum"))
    origin: dict[str, Any] = json.loads(next(filter(None, noted), "{}"))
    clone = Path(__file__).parents[2]
    if not origin and (clone / "pyproject.toml").exists():
        return {"url": clone.as_uri(), "dir_info": {}}
    return origin


def advice(extra: str) -> str:
    """The command line that installs the extra, or without one (""), netsum alone."""
    origin = _origin()
    url = str(origin.get("url", ""))
    suffix = f"[{extra}]" if extra else ""
    if "dir_info" in origin:
        folder = unquote(urlsplit(url).path)
        editable = extra and origin["dir_info"].get("editable")  # netsum alone is for another environment
        return f"pip install {'-e ' if editable else ''}{quote(f'{folder}{suffix}')}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return f"pip install {quote(f'netsum{suffix} @ {url}')}" if url else f"pip install 'DIR{suffix}' (DIR: a clone of netsum)"
