"""Match objects: what one key field of a table entry accepts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exact:
    """One value."""

    value: int


@dataclass(frozen=True, slots=True)
class Lpm:
    """Values whose first `prefix_len` bits are those of `value`."""

    value: int
    prefix_len: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """Values that agree with `value` where `mask` is 1. An optional field is this with a mask of all ones or 0."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """Values from `low` to `high`, inclusive."""

    low: int
    high: int


Match = Exact | Lpm | Ternary | Range


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key field of a table. `match_type`: exact, lpm, ternary, range or valid (a header's validity, width 1)."""

    name: str
    match_type: str
    width: int


def fault(match: Match, key: KeyInfo) -> str | None:
    """What is wrong with a match for this key field, or None."""
    top = (1 << key.width) - 1
    kinds = {"exact": Exact, "valid": Exact, "lpm": Lpm, "ternary": Ternary, "range": Range}
    if not isinstance(match, kinds[key.match_type]):
        return f"key field {key.name} takes a match of type {key.match_type}"
    inside = 0 <= match.low <= match.high <= top if isinstance(match, Range) else 0 <= match.value <= top
    if isinstance(match, Lpm):
        inside = inside and 0 <= match.prefix_len <= key.width
    elif isinstance(match, Ternary):
        inside = inside and 0 <= match.mask <= top
    return None if inside else f"the match for key field {key.name} does not fit its {key.width} bits"


def canonical(match: Match, width: int) -> Match:
    """The same match with ignored bits set to 0: equal exactly if both match the same values."""
    if isinstance(match, Ternary):
        return Ternary(match.value & match.mask, match.mask)
    if isinstance(match, Lpm) and 0 <= match.prefix_len <= width:
        return Lpm(mask_of(match, width)[0], match.prefix_len)
    return match


def mask_of(match: Match, width: int) -> tuple[int, int]:
    """The (value, mask) of a match; (0, 0) for a range."""
    if isinstance(match, Exact):
        return match.value, (1 << width) - 1
    if isinstance(match, Lpm):
        mask = (1 << width) - (1 << width - match.prefix_len)
        return match.value & mask, mask
    if isinstance(match, Ternary):
        return match.value & match.mask, match.mask
    return 0, 0
