"""Makes the two functions that pack and parse a header of a schema.

A header costs about a microsecond each way: the schema's fields are grouped into whole bytes once, and the two functions
are generated from the groups, as :mod:`dataclasses` does for its methods.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from netsum.wire.schema import Field, byte_groups, positions

_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}


Made = TypeVar("Made", bound=tuple[int, ...])


def _units(fields: Sequence[Field]) -> Iterator[tuple[int, list[tuple[Field, int]]]]:
    """Fields grouped into numbers that :mod:`struct` has a format for: (bytes, [(field, its lowest bit)])."""
    group: list[Field] = []
    for _, _, members in byte_groups(fields):
        group += [field for field, _ in members]
        size = sum(field.bits for field in group) // 8
        if size in _FORMATS:
            yield size, list(positions(group))
            group = []


def packing(
    fields: Sequence[Field],
    made: type[Made],
    called: str,
    split: Mapping[str, tuple[str, int]] | None = None,
) -> tuple[Callable[[Made], bytes], Callable[[bytes | memoryview], Made]]:
    """``pack(header)``, which masks values to their widths, and ``parse(data)``, which takes the header at the start of the data
    and raises :class:`ValueError` if there are too few bytes, for ``made``, a :class:`typing.NamedTuple`; errors say ``called``
    for it. ``split`` says of a field of the wire which field of the tuple it is a part of, and from which bit on; others have the
    same name in both. The tuple may leave out fields that are always 0."""
    units = list(_units(fields))
    layout = struct.Struct(">" + "".join(_FORMATS[size] for size, _ in units))
    packed = []
    parts: dict[str, list[str]] = {name: [] for name in made._fields}  # type: ignore[attr-defined]  # it is a NamedTuple
    for index, (size, members) in enumerate(units):
        terms = []
        for field, shift in members:
            name, low = (split or {}).get(field.name, (field.name, 0))
            if name not in parts:
                continue
            mask = (1 << field.bits) - 1
            whole = field.bits == 8 * size and not low
            terms.append(f"{name} & {mask}" if whole else f"({name} >> {low} & {mask}) << {shift}")
            parts[name].append(f"u{index}" if whole else f"(u{index} >> {shift} & {mask}) << {low}")
        packed.append(" | ".join(terms) or "0")
    taken = ", ".join(f"u{index}" for index in range(len(units)))
    short = f"a {called} has {layout.size} bytes, this packet has {{len(data)}}"
    source = (
        f"def pack(header):\n    {', '.join(parts)}, = header\n    return _pack({', '.join(packed)})\n"
        f"def parse(data):\n    try:\n        {taken} = _unpack(data)\n"
        f"    except _error:\n        raise ValueError(f'{short}') from None\n"
        f"    return _make(({', '.join(' | '.join(parts[name]) for name in parts)},))\n"
    )
    make, error = partial(tuple.__new__, made), struct.error
    scope: dict[str, Any] = {"_pack": layout.pack, "_unpack": layout.unpack_from, "_make": make, "_error": error}
    exec(source, scope)  # our own schema, nothing from outside
    return cast("Callable[[Made], bytes]", scope["pack"]), cast("Callable[[bytes | memoryview], Made]", scope["parse"])
