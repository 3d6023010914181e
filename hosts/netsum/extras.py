"""Installation of an extra by this installation's own source: from the folder, the file or the address that it came from."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import unquote, urlsplit

OF_THE_LIBRARY: Final = {"metrics", "packet", "torch", "bfloat16"}
"""The extras that the library alone has; the clone has all."""


def _origin() -> dict[str, Any]:
    """The origin that pip noted (PEP 610), or the clone that it runs from; nothing if that was an index."""
    # In a clone, a build leaves metadata that Python finds before those of the installation.
    noted = (found.read_text("direct_url.json") for found in distributions(name="netsum"))
    origin: dict[str, Any] = json.loads(next(filter(None, noted), "{}"))
    hosts = Path(__file__).parents[1]
    if not origin and (hosts / "pyproject.toml").exists():
        return {"url": hosts.as_uri(), "dir_info": {}}
    return origin


def advice(extra: str) -> str:
    """The command line that installs the extra, or without one (""), the library alone."""
    origin = _origin()
    url = str(origin.get("url", ""))
    asked = f"[{extra}]" if extra else ""
    if "dir_info" in origin:
        return _from_folder(Path(unquote(urlsplit(url).path)), extra, editable=bool(origin["dir_info"].get("editable")))
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return (
        f"pip install {quote(f'netsum{asked} @ {url}')}"
        if url
        else f"pip install 'DIR{asked}' (DIR: a clone of netsum)"
    )


def _from_folder(folder: Path, extra: str, *, editable: bool) -> str:
    """From a clone, or its part ``hosts``, which is the library alone."""
    clone = folder.parent if folder.name == "hosts" and (folder.parent / "pyproject.toml").exists() else folder
    library = clone / "hosts"
    if not extra:
        return f"pip install {quote(str(library if library.is_dir() else folder))}"
    source = folder if extra in OF_THE_LIBRARY else clone
    return f"pip install {'-e ' if editable else ''}{quote(f'{source}[{extra}]')}"
