"""How this installation gets an extra: from the folder, the file or the address that it came from."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit


def _origin() -> dict[str, Any]:
    """What pip noted of where netsum came from (PEP 610); nothing if that was an index."""
    # In a clone, a build leaves metadata that Python finds before those of the installation.
    noted = (found.read_text("direct_url.json") for found in distributions(name="netsum"))
    origin: dict[str, Any] = json.loads(next(filter(None, noted), "{}"))
    return origin


def advice(extra: str) -> str:
    """The command line that installs the extra."""
    origin = _origin()
    url = str(origin.get("url", ""))
    if "dir_info" in origin:
        folder = Path(unquote(urlsplit(url).path))
        if folder.name == "hosts" and (folder.parent / "pyproject.toml").exists():
            folder = folder.parent  # the library alone was installed from the clone; extras are the whole's
        flag = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {flag}{quote(f'{folder}[{extra}]')}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return f"pip install {quote(f'netsum[{extra}] @ {url}' if url else f'netsum[{extra}]')}"
