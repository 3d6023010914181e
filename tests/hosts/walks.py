"""An array's way: which files of the library an allreduce enters, in which order, and which of them handle its values."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import netsum
import numpy as np
from netsum.communicator import Communicator

from tests.threads import returned

ROOM = Path(netsum.__file__).parent


class Walk:
    """A context manager that watches this thread. ``entered``: the library's files in the order in which one of their functions
    is first called; ``handled``: the files whose functions get the array's values as an argument, each time that another one
    does."""

    def __init__(self, values: int) -> None:
        """``values``: how many values the array has; smaller arrays are not it."""
        self.entered: list[str] = []
        self.handled: list[str] = []
        self._values = values
        self._resumed: list[FrameType] = []  # generators that have begun: to go on with one is not to enter it again

    def __enter__(self) -> Walk:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        path = Path(code.co_filename)
        if not path.is_relative_to(ROOM) or code.co_name in ("<lambda>", "<genexpr>", "<listcomp>"):
            return
        if code.co_flags & inspect.CO_GENERATOR:
            if frame in self._resumed:
                return
            self._resumed.append(frame)
        name = str(path.relative_to(ROOM))
        if name not in self.entered:
            self.entered.append(name)
        arguments = [frame.f_locals.get(each) for each in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
        if any(map(self._is_array, arguments)) and self.handled[-1:] != [name]:
            self.handled.append(name)

    def _is_array(self, argument: Any) -> bool:
        return isinstance(argument, np.ndarray) and argument.size >= self._values


def walk_of(communicators: Sequence[Communicator], array: np.ndarray[Any, Any], **options: Any) -> Walk:
    """The walk of rank 0's array through an allreduce; the other ranks are called from threads."""
    walk = Walk(array.size)

    def watched() -> Any:
        with walk:
            return communicators[0].allreduce(array, **options)

    returned([watched, *(partial(comm.allreduce, array, **options) for comm in communicators[1:])])
    return walk
