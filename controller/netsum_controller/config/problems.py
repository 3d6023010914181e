"""What is wrong with a file's values, in words. pydantic finds it; its own sentences are about types of Python, not for users."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from netsum.text import counted
from pydantic import ValidationError

Key = str | int

_TEXT = "must be text"
_WHOLE = "must be a whole number"
_NUMBER = "must be a number"
_LIST = "must be a list, like [h1, h2]"
_MAPPING = "must be a mapping of names to values"

_WORDS: dict[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "there is no such setting",
    "invalid_key": "the name of a setting must be text",
    "string_type": _TEXT,
    "string_unicode": _TEXT,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "tuple_type": _LIST,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "greater_than_equal": "must be {ge} or more",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be {le} or less",
    "less_than": "must be less than {lt}",
    "enum": "must be {expected}",
    "string_too_short": "must have {min_length} characters or more",
    "string_too_long": "must have {max_length} characters or fewer",
}
_KEY = "[key]"
"""What pydantic adds to the path of a key that is wrong itself."""

_SECRET = ("token",)
"""What no message shows."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


class Problem(NamedTuple):
    """One thing that is wrong: the path of the value in the file, and a sentence about it without a subject."""

    path: tuple[Key, ...]
    words: str

    def __str__(self) -> str:
        location = ".".join(str(part) if str(part).isprintable() else repr(part) for part in self.path)
        return f"{location}: {self.words}" if location else self.words


class Problems(ValueError):
    """Raised by a model's validator about places inside the model; the paths lead there from the model."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


def problems_of(error: ValidationError) -> list[Problem]:
    """All that pydantic and the models' own validators have found."""
    found: list[Problem] = []
    for one in error.errors(include_url=False):
        path = one["loc"][:-1] if one["loc"][-1:] == (_KEY,) else one["loc"]
        cause = one.get("ctx", {}).get("error")
        if isinstance(cause, Problems):
            found += [Problem((*path, *inner.path), inner.words) for inner in cause.problems]
        else:
            found.append(_problem(path, one["type"], one.get("ctx", {}), one.get("input")))
    return found


def _problem(path: Sequence[Key], kind: str, context: Mapping[str, Any], value: Any) -> Problem:
    if kind == "missing" and isinstance(path[-1], int):  # the second of a pair
        return Problem(tuple(path[:-1]), f"needs at least {counted(path[-1] + 1, 'entry')}")
    if kind in ("missing", "extra_forbidden"):
        return Problem(tuple(path), _WORDS[kind])
    if kind == "value_error":
        words = str(context["error"])
    elif kind == "too_short":
        words = f"needs at least {counted(context['min_length'], 'entry')}"
    elif kind == "too_long":
        words = f"may have at most {counted(context['max_length'], 'entry')}"
    else:
        words = _WORDS.get(kind, "cannot be used here").format_map({key: _plain(one) for key, one in context.items()})
    told = tuple(path[-1:]) == _SECRET or words.startswith(f"is {value}")
    return Problem(tuple(path), words if told else words + _given(kind, value))


def _plain(value: Any) -> Any:
    """3600000 instead of 3600000.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _given(kind: str, value: Any) -> str:
    """What stands in the file instead, as it is written there."""
    if isinstance(value, list | dict | tuple):
        return ""
    if value is None:
        return " (it is empty)"
    if isinstance(value, bool):
        said = "true" if value else "false"
    else:  # a number, or a date
        said = _SHORT.repr(value) if isinstance(value, str | int) else str(value)
    return f" (it is {said}{'; put quotes around it' if kind == 'string_type' else ''})"
