"""A call before it begins, and the two ways to make it: waiting for its result, or in the background."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from netsum.collectives.call import Context
from netsum.engine import Flow, Work
from netsum.errors import CallError

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Make = Callable[[Context], Flow]


@dataclass(frozen=True)
class Call(Generic[Result]):
    """A collective with its arguments checked; ``make`` gives its flow. ``timeout`` None: the communicator's. ``firm``, ``give``
    and ``error``: see :class:`netsum.collectives.call.Context`."""

    collective: str
    make: Make
    timeout: float | None
    nbytes: int = 0
    firm: bool = True
    give: bool = True
    error: CallError | None = None


class Caller(Protocol):
    """What begins calls."""

    def _make(self, call: Call[Result], *, background: bool) -> Work[Result]:
        """Begin a call after all earlier ones."""

    def _give_up(self, name: str, error: Exception, given: Mapping[str, Any], *, background: bool) -> None:
        """Tell the others that this rank cannot make the call with what it was given."""


Prepare = Callable[Concatenate[Any, Arguments], Call[Result]]


def blocking(prepare: Prepare[Arguments, Result]) -> Callable[Concatenate[Any, Arguments], Result]:
    """The method that makes the prepared call and returns its result."""

    @wraps(prepare)
    def method(caller: Caller, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return caller._make(_prepared(prepare, caller, args, kwargs, background=False), background=False).wait()

    return _shown(method, prepare, prepare.__name__.lstrip("_"), "{}")


def in_background(prepare: Prepare[Arguments, Result]) -> Callable[Concatenate[Any, Arguments], Work[Result]]:
    """The method that begins the prepared call; ``wait()`` on what it returns gives the result. What was given must not change
    until then."""

    @wraps(prepare)
    def method(caller: Caller, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Work[Result]:
        return caller._make(_prepared(prepare, caller, args, kwargs, background=True), background=True)

    name = prepare.__name__.lstrip("_")
    method.__doc__ = (
        f"Begin :meth:`{name}`; ``wait()`` on what this returns gives the result. ``x`` must not change until then."
    )
    return _shown(method, prepare, f"{name}_async", "Work[{}]")


def _prepared(
    prepare: Callable[..., Call[Result]], caller: Caller, args: Any, given: Mapping[str, Any], *, background: bool
) -> Call[Result]:
    """The call; or what is wrong with it, which the others are told of."""
    try:
        return prepare(caller, *args, **given)
    except Exception as error:
        caller._give_up(prepare.__name__.lstrip("_"), error, given, background=background)
        raise


Method = TypeVar("Method", bound=Callable[..., Any])


def _shown(method: Method, prepare: Callable[..., Any], name: str, returns: str) -> Method:
    """The method as ``help()`` is to show it: under its own name, and with what it returns in place of the Call."""
    signature = inspect.signature(prepare)
    result = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    method.__name__, method.__qualname__ = name, f"Communicator.{name}"
    vars(method)["__signature__"] = signature.replace(return_annotation=returns.format(result))
    return method
