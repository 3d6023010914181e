# SPDX-License-Identifier: MIT
"""The base of all table entries: a key, an action and parameters, all as names and ints. (Ids and byte strings exist only in
:mod:`netsum_controller.p4runtime.p4info`.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import ClassVar


@dataclass(frozen=True)
class TableEntry:
    """One entry of one table. A subclass names its table, its action and which of its fields are the key; the field names are
    those of the P4 program. Where the longest prefix matches, ``prefix`` says which field has the length of a key's."""

    TABLE: ClassVar[str]
    ACTION: ClassVar[str]
    KEY: ClassVar[tuple[str, ...]]
    PREFIX: ClassVar[Mapping[str, str]]

    def __init_subclass__(
        cls, *, table: str, action: str, key: tuple[str, ...], prefix: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        cls.TABLE, cls.ACTION, cls.KEY, cls.PREFIX = table, action, key, prefix

    @property
    def match(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.KEY}

    @property
    def params(self) -> dict[str, int]:
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in self.KEY}

    @property
    def identity(self) -> tuple[str, tuple[int, ...]]:
        """The unique key of an entry on a switch: the table and the key."""
        return self.TABLE, tuple(getattr(self, name) for name in self.KEY)

    def __str__(self) -> str:
        keys = " ".join(f"{name}={value:#x}" if value > 65535 else f"{name}={value}" for name, value in self.match.items())
        return f"{self.TABLE} {keys}"


@dataclass(frozen=True)
class ForeignEntry:
    """An entry in one of our tables that the controller would not make, for example with another action. ``raw`` is its
    protobuf."""

    table: str
    key: tuple[int, ...]
    raw: bytes

    @property
    def identity(self) -> tuple[str, tuple[int, ...]]:
        return self.table, self.key

    def __str__(self) -> str:
        return f"{self.table} {' '.join(str(value) for value in self.key)}"
