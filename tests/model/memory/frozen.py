# SPDX-License-Identifier: MIT
"""A device's state as a value, so that what it does can be looked up; and the device again from the value."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

ROOT = "the device itself"


def freeze(thing: Any, root: object = None) -> Any:
    """A hashable value. Objects are their class and attributes; ``root`` is what may be referred to from within."""
    if isinstance(thing, (int, str, bytes, tuple, type, type(None))):
        return thing
    if thing is root:
        return (ROOT,)
    if isinstance(thing, list):
        return (list, tuple(freeze(each, root) for each in thing))
    if isinstance(thing, set):
        return (set, tuple(sorted(thing)))
    if isinstance(thing, dict):
        pairs = [(key, freeze(value, root)) for key, value in thing.items()]
        ordered = isinstance(thing, OrderedDict)  # one whose order matters
        return (OrderedDict if ordered else dict, tuple(pairs if ordered else sorted(pairs, key=lambda pair: pair[0])))
    inside = root if root is not None else thing
    return (type(thing), tuple((name, freeze(value, inside)) for name, value in sorted(vars(thing).items())))


def thaw(value: Any, root: object = None) -> Any:
    """A frozen state as an object of its own."""
    if not isinstance(value, tuple) or not value:
        return value
    kind = value[0]
    if kind == ROOT:
        return root
    if not isinstance(kind, type):
        return value
    if kind is list:
        return [thaw(each, root) for each in value[1]]
    if kind is set:
        return set(value[1])
    if kind in (dict, OrderedDict):
        return kind((key, thaw(each, root)) for key, each in value[1])
    thing: Any = object.__new__(kind)
    inside = root if root is not None else thing
    for name, each in value[1]:
        setattr(thing, name, thaw(each, inside))
    return thing
