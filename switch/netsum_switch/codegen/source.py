"""Lines of Python with an indentation, and the names of the generated code's variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


def ident(name: str) -> str:
    """A JSON name as part of a Python name. BMv2's names are unique in their letters, digits and underscores."""
    return re.sub(r"\W", "_", name)


def field_var(header: str, field: str) -> str:
    """The local variable of a field; ``$valid$`` is the header's validity, 0 or 1."""
    return valid_var(header) if field == "$valid$" else f"{ident(header)}__{ident(field)}"


def valid_var(header: str) -> str:
    return f"v_{ident(header)}"


def next_var(stack: str) -> str:
    """The number of extracted headers of a stack, which is the index of the next one."""
    return f"next_{ident(stack)}"


def bits_var(header: str, field: str) -> str:
    """The number of bits in a varbit field."""
    return f"bits_{field_var(header, field)}"


def raw_var(header: str) -> str:
    """The header's bytes as they came in or were packed again."""
    return f"raw_{ident(header)}"


def dirty_var(header: str) -> str:
    """1 if a field was written after the bytes were made."""
    return f"dirty_{ident(header)}"


class Source:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block; an empty one becomes ``pass``."""
        self.line(head)
        self._depth += 1
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self.line("pass")
        self._depth -= 1

    def extend(self, other: Source) -> None:
        """Append another source's lines at this indentation."""
        for text in other.lines:
            self.line(text)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def words(self) -> set[str]:
        """Every name that occurs."""
        return set(re.findall(r"\w+", self.text))
