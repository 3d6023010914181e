# SPDX-License-Identifier: MIT
"""YAML files into pydantic models, with errors that quote the line."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from netsum.text import counted
from pydantic import BaseModel, ConfigDict, ValidationError

from netsum_controller.errors import InputError

# What is wrong with a file's values, in words. pydantic finds it; its own sentences are about types of Python, not for
# users.


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
"""Parts that pydantic adds to the path of a key that is wrong itself."""

_SECRET = ("token",)
"""Values that no message shows."""

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
    complete = tuple(path[-1:]) == _SECRET or words.startswith(f"is {value}")
    return Problem(tuple(path), words if complete else words + _given(kind, value))


def _plain(value: Any) -> Any:
    """3600000 instead of 3600000.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _given(kind: str, value: Any) -> str:
    """The text in the file instead, as it is written there."""
    if isinstance(value, list | dict | tuple):
        return ""
    if value is None:
        return " (it is empty)"
    if isinstance(value, bool):
        said = "true" if value else "false"
    else:  # a number, or a date
        said = _SHORT.repr(value) if isinstance(value, str | int) else str(value)
    return f" (it is {said}{'; put quotes around it' if kind == 'string_type' else ''})"


# Loads YAML and remembers each value's line, so that an error can quote ``file:line``.


Model = TypeVar("Model", bound=BaseModel)


class Closed(BaseModel):
    """A part of a file that users write: it takes no setting that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Strict(Closed):
    """It also takes no number for a text."""

    model_config = ConfigDict(strict=True)


@dataclass(frozen=True)
class MarkedYaml:
    """A parsed document: ``data`` as plain values, ``lines`` from a value's path to its line (from 1). ``problems`` are what
    could not be read, each with its line; ``options`` name the settings that come from the command line, by their first key."""

    source: str
    data: Any
    lines: Mapping[tuple[Key, ...], int] = field(default_factory=dict)
    problems: Sequence[tuple[int, Problem]] = ()
    options: Mapping[Key, str] = field(default_factory=dict)

    def line(self, path: Sequence[Key]) -> int:
        """Line of the value at ``path``, or of the innermost part of the path that exists."""
        parts = tuple(path)
        while parts not in self.lines and parts:
            parts = parts[:-1]
        return self.lines.get(parts, 1)

    def where(self, path: Sequence[Key]) -> str:
        option = self.options.get(path[0]) if path else None
        return f"{self.source}:{self.line(path)}" if option is None else f"option {option}"


class _Reader:
    """Builds plain values of YAML's nodes."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self.lines: dict[tuple[Key, ...], int] = {}
        self.problems: list[tuple[int, Problem]] = []

    def build(self, node: yaml.Node, path: tuple[Key, ...] = ()) -> Any:
        self.lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._scalar(node, path)

    def _scalar(self, node: yaml.Node, path: tuple[Key, ...]) -> Any:
        try:
            return self._loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, TypeError):
            # what PyYAML raises for `!!int ""`, `!!bool x`, 2001-02-30
            kind = node.tag.rpartition(":")[2]
            self._wrong(node, path, f"not valid YAML: {node.value!r} cannot be read as {kind}")
            return None

    def _mapping(self, node: yaml.MappingNode, path: tuple[Key, ...]) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._wrong(key_node, path, "a key must be a plain word")
                continue
            key = self._scalar(key_node, path)
            if key in mapping:
                self._wrong(key_node, (*path, key), "is given twice")
            mapping[key] = self.build(value_node, (*path, key))
            self.lines[*path, key] = key_node.start_mark.line + 1
        return mapping

    def _wrong(self, node: yaml.Node, path: tuple[Key, ...], words: str) -> None:
        self.problems.append((node.start_mark.line + 1, Problem(path, words)))


def parse_yaml(text: str, source: str) -> MarkedYaml:
    """Parse one document. :class:`InputError` on bad syntax. A repeated key, a key that is not a scalar and a scalar that cannot
    be read are among the document's ``problems``."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        raise InputError(f"{source}: not valid YAML: {error.reason} (at character {error.position})") from None
    try:
        node = loader.get_single_node()
        if node is None:
            raise InputError(f"{source}: the file is empty")
        reader = _Reader(loader)
        return MarkedYaml(source, reader.build(node), reader.lines, reader.problems)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{source}:{line}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(f"{source}: nested too deeply, or an alias that contains itself") from None
    finally:
        loader.dispose()


def load_yaml(path: str | Path) -> MarkedYaml:
    """Parse a file. Raises :class:`InputError` when it cannot be read or is not valid."""
    try:
        return parse_yaml(Path(path).read_text("utf-8"), str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None


def validate(model: type[Model], document: MarkedYaml, more: Callable[[Any], Sequence[Problem]] = lambda _data: ()) -> Model:
    """Make a model from the document. :class:`InputError` has a line for everything that is wrong, in the order of the file:
    what the reader could not read, what the model does not take, and what ``more`` finds in such data."""
    unread = {problem.path for _, problem in document.problems}
    found = [(line, f"{document.source}:{line}: {problem}") for line, problem in document.problems]
    try:
        made = model.model_validate(document.data)
    except ValidationError as error:
        wrong = problems_of(error)
        wrong += [problem for problem in more(document.data) if problem not in wrong]
        wrong = [problem for problem in wrong if problem.path not in unread]
        found += [(document.line(problem.path), f"{document.where(problem.path)}: {problem}") for problem in wrong]
    if not found:
        return made
    raise InputError(*(words for _, words in sorted(found, key=lambda item: item[0])))
