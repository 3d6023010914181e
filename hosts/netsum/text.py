# SPDX-License-Identifier: MIT
"""Numbers in sentences and in options."""

from __future__ import annotations

from typing import Final

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def counted(number: int, noun: str) -> str:
    """``1 block``, ``2 blocks``, ``0 entries``, ``3 switches``; the noun is given in the singular."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("ry"):
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def parse_size(text: str) -> int:
    """Bytes of ``4096``, ``4K`` or ``1M``; ValueError for anything else."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if unit not in _UNITS or not number.isdigit():
        raise ValueError(f"{text!r} is not a size such as 4096, 64K or 1M")
    return int(number) * _UNITS[unit]


def format_size(nbytes: int) -> str:
    """The shortest text that :func:`parse_size` reads as ``nbytes``."""
    name, unit = max(((name, unit) for name, unit in _UNITS.items() if nbytes % unit == 0), key=lambda each: each[1])
    return f"{nbytes // unit}{name}"
