# SPDX-License-Identifier: MIT
"""``device.json``: whose memory a folder has, and which files it must have."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from netsum.user_state import read_json, write_json

from netsum_memory.errors import DeviceError
from netsum_memory.journal import End
from netsum_memory.sealed import damaged

_FORMAT: Final = 2


class Identity(NamedTuple):
    """``boot``: of the machine in whose RAM some of the files may still be; None: all is on the disk. ``ran``: of the machine
    on which the device ran last. ``number``: the least that the newest checkpoint may have; None: there is nothing yet.
    ``end``: of the journal, if the device was ended in order."""

    incarnation: str
    boot: str | None
    ran: str
    number: int | None = None
    end: End | None = None


def read_identity(path: Path) -> Identity | None:
    """The contents of the file; None if there is none. Raises :class:`DeviceError` if it is damaged."""
    if not path.exists():
        return None
    known = read_json(path)
    if isinstance(known, dict) and "sum" not in known and known.get("format") != _FORMAT:
        raise DeviceError(f"{path} is of format {known.get('format')}; this netsum-memory knows {_FORMAT}")
    if not isinstance(known, dict) or known.pop("sum", None) != _sum(known):
        raise damaged(path, "is damaged")
    end = known["end"]
    return Identity(known["incarnation"], known["boot"], known["ran"], known["number"], None if end is None else End(*end))


def write_identity(path: Path, identity: Identity) -> None:
    """Raises OSError."""
    content = {"format": _FORMAT, **identity._asdict()}
    write_json(path, {**content, "sum": _sum(content)})


def _sum(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
