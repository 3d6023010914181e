"""Loads YAML and remembers each value's line, so that an error can quote ``file:line``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from netsum_controller.errors import InputError

Key = str | int
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class MarkedYaml:
    """A parsed document: ``data`` as plain values, ``lines`` from a value's path to its line (from 1)."""

    source: str
    data: Any
    lines: dict[tuple[Key, ...], int] = field(default_factory=dict)

    def line(self, path: Sequence[Key]) -> int:
        """Line of the value at ``path``, or of the innermost part of the path that exists."""
        parts = tuple(path)
        while parts not in self.lines and parts:
            parts = parts[:-1]
        return self.lines.get(parts, 1)

    def where(self, path: Sequence[Key]) -> str:
        return f"{self.source}:{self.line(path)}"


def parse_yaml(text: str, source: str) -> MarkedYaml:
    """Parse one document. :class:`InputError` on bad syntax, a repeated key or a key that is not a scalar."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        raise InputError(f"{source}: not valid YAML: {error.reason} (at character {error.position})") from None
    lines: dict[tuple[Key, ...], int] = {}

    def scalar(node: yaml.Node) -> Any:
        try:
            return loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, TypeError):
            # what PyYAML raises for `!!int ""`, `!!bool x`, 2001-02-30
            line, kind = node.start_mark.line + 1, node.tag.rpartition(":")[2]
            raise InputError(f"{source}:{line}: not valid YAML: {node.value!r} cannot be read as {kind}") from None

    def build(node: yaml.Node, path: tuple[Key, ...]) -> Any:
        lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            return [build(item, (*path, index)) for index, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return scalar(node)
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise InputError(f"{source}:{line}: a key must be a plain word")
            key = scalar(key_node)
            if key in mapping:
                raise InputError(f"{source}:{line}: {key!r} is given twice")
            mapping[key] = build(value_node, (*path, key))
            lines[*path, key] = line
        return mapping

    try:
        node = loader.get_single_node()
        if node is None:
            raise InputError(f"{source}: the file is empty")
        return MarkedYaml(source, build(node, ()), lines)
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


def _sentence(path: Sequence[Key], error: Any) -> str:
    """One pydantic error, in words."""
    location = ".".join(str(part) if str(part).isprintable() else repr(part) for part in path)
    kind, message = error["type"], str(error["msg"]).removeprefix("Value error, ")
    if kind == "missing":
        return f"{location}: is missing"
    if kind == "extra_forbidden":
        return f"{location}: there is no such setting"
    value = error.get("input")
    quoted = f" (it is {value!r})" if isinstance(value, str | int | float | bool) else ""
    return f"{location}: {message}{quoted}" if location else message


class PathError(ValueError):
    """Raised by a model's validator about one place inside the model; ``path`` leads there from the model."""

    def __init__(self, path: Sequence[Key], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)


def validate(model: type[Model], document: MarkedYaml) -> Model:
    """Make a model from the document; :class:`InputError` quotes the first wrong line and counts the others."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        problems = error.errors()
    placed = []
    for problem in problems:
        cause = problem.get("ctx", {}).get("error")
        path = (*problem["loc"], *(cause.path if isinstance(cause, PathError) else ()))
        placed.append((document.line(path), path, problem))
    placed.sort(key=lambda item: item[0])
    line, path, first = placed[0]
    more = f" (and {len(placed) - 1} more)" if len(placed) > 1 else ""
    raise InputError(f"{document.source}:{line}: {_sentence(path, first)}{more}")
