"""Loads YAML and remembers each value's line, so that an error can quote ``file:line``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from netsum_controller.config.problems import Key, Problem, problems_of
from netsum_controller.errors import InputError

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


def validate(
    model: type[Model], document: MarkedYaml, more: Callable[[Any], Sequence[Problem]] = lambda _data: ()
) -> Model:
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
