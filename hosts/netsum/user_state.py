# SPDX-License-Identifier: MIT
"""The files in which a user's results are kept: files of JSON in a folder of the user's own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def state_folder() -> Path:
    """``netsum`` in the XDG state directory; it need not exist."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "netsum"


def read_json(path: Path) -> Any:
    """The contents of the file; None if there is no such file, or no JSON in it."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file, whole or not at all, and its folder if need be. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
