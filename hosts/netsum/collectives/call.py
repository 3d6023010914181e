# SPDX-License-Identifier: MIT
"""A call: as a method of the communicator prepares it (:class:`Call`), and as it runs (:class:`Context`)."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

from netsum.collectives.history import Fingerprint, History
from netsum.core.blocks import Block
from netsum.core.endpoint import CallMemory
from netsum.core.progress import CallProgress, Flow, Work
from netsum.descriptor import Descriptor
from netsum.errors import CallError
from netsum.numeric.fixed_point import Array
from netsum.report import Report

Result = TypeVar("Result")
Given = ParamSpec("Given")
PART_OF: Final[ContextVar[Fingerprint]] = ContextVar("PART_OF", default=())


@contextmanager
def part_of(*what: object) -> Iterator[None]:
    """Make the calls that begin within this context part of a larger one. ``what`` must be equal on all ranks, as the calls
    themselves must be: else they raise MismatchError."""
    before = PART_OF.set((*PART_OF.get(), *what))
    try:
        yield
    finally:
        PART_OF.reset(before)


class Submission(Protocol):
    """The session to which blocks are submitted."""

    def submit(self, block: Block) -> object:
        """Queue the next block."""

    def submit_all(self, blocks: Sequence[Block]) -> object:
        """Queue the next blocks."""

    @property
    def queued(self) -> int:
        """The number of blocks that wait for the window."""

    @property
    def group(self) -> int:
        """The number of blocks to convert and submit at a time."""

    @property
    def combiner(self) -> str:
        """The combiner: ``switch`` or ``others``."""

    def send_mismatch(self) -> None:
        """Tell the other ranks that this one's call is not theirs, which ends the communicator on all of them."""

    @property
    def by_chain(self) -> bool:
        """True if packets go from member to member, so that lanes may be floats."""

    @property
    def call_memory(self) -> CallMemory | None:
        """Memory that all ranks share."""


@dataclass
class MemoryUse:
    """Whether large calls may go through memory that all ranks share (:mod:`netsum.collectives.whole_call`). It follows from the
    epoch's first descriptor and from results, so all ranks hold the same."""

    possible: bool


@dataclass
class Context:
    """The view of a communicator that a flow needs.

    Attributes:
        session: takes the call's blocks.
        gen: the call's generation number.
        call_fingerprint: of what the call is and how many blocks it has, which these carry if there is no opening block; else 0.
        whole: what the call is part of (:func:`part_of`), which the ranks compare too.
        degrade: blocks of this job age out, unless the call is ``no_aging``.
        contribute: whether this rank contributes; if not, it takes part but adds nothing.
        error: why this rank gives the call up, if it does.
        out: the caller's array for the result, if it may be written to before the end; ``filled``: that is done.
        copied: the result is copied as soon as the flow returns it, so it may be memory that is used again.
        memory_use: the communicator's.
        deadline: when the call must have ended (``time.monotonic()``); None: not known.
    """

    session: Submission
    rank: int
    workers: int
    block_bytes: int
    gen: int
    call_fingerprint: int = field(default=0, kw_only=True)
    whole: Fingerprint = field(default=(), kw_only=True)
    degrade: bool = False
    no_aging: bool = False
    contribute: bool = True
    error: CallError | None = None
    report: Report = field(default_factory=Report)
    progress: CallProgress = field(default_factory=CallProgress)
    out: Array | None = None
    filled: bool = False
    copied: bool = False
    memory_use: MemoryUse = field(default_factory=lambda: MemoryUse(False))
    deadline: float | None = None


@dataclass
class Call(Generic[Result]):
    """A collective whose arguments have been checked. ``flow`` makes the generator that the engine drives, ``nbytes`` is the size
    of this rank's array, ``timeout`` is in seconds (None: the communicator's); ``no_aging``, ``contribute`` and ``error`` are
    those of :class:`Context`."""

    collective: str
    flow: Callable[[Context], Flow]
    nbytes: int = 0
    no_aging: bool = True
    contribute: bool = True
    error: CallError | None = None
    timeout: float | None = None


class Caller(ABC):
    """The view of the communicator that the collectives need; they are its methods (:func:`collective`)."""

    _descriptor: Descriptor
    _degrades: bool
    _history: History

    @property
    def rank(self) -> int:
        """This member's rank, 0..size-1."""
        return self._descriptor.rank

    @property
    def size(self) -> int:
        """Number of members of the job, including evicted ones: ranks are 0..size-1."""
        return self._descriptor.workers

    @property
    def history(self) -> History:
        """The memory of the communicator between the calls of an epoch, and of those that resume it; another object after a
        resync."""
        return self._history

    def compose(self, collective: str, prepare: Callable[[], Call[Result]], timeout: float | None) -> Result:
        """Make one call whose flow is composed of several (:func:`netsum.core.progress.nested`), and wait for its result.
        ``prepare`` checks its arguments; if they are wrong, the other ranks are told."""
        return self._begin(collective, prepare, timeout).wait()

    @abstractmethod
    def _start(self, call: Call[Result], timeout: float | None, *, background: bool) -> Work[Result]:
        """Begin a call, after all earlier ones."""

    @abstractmethod
    def _give_up(self, collective: str, error: Exception, timeout: float | None, *, background: bool) -> None:
        """Tell the other ranks that this one cannot make the call."""

    def _begin(
        self,
        collective: str,
        prepare: Callable[[], Call[Result]],
        timeout: float | None,
        *,
        background: bool = False,
    ) -> Work[Result]:
        """Check the arguments (``prepare``) and begin the call. If they are wrong, the other ranks are told so that none of them
        waits. ``background``: a thread also drives the call."""
        try:
            call = prepare()
        except Exception as error:
            self._give_up(collective, error, timeout, background=background)
            raise
        return self._start(call, call.timeout if timeout is None else timeout, background=background)


AnyCaller = TypeVar("AnyCaller", bound=Caller)
Prepare = Callable[Concatenate[AnyCaller, Given], Call[Result]]


def collective(prepare: Prepare[AnyCaller, Given, Result]) -> Callable[Concatenate[AnyCaller, Given], Result]:
    """Make of a method that prepares a call one that makes it and returns its result. It has a keyword ``timeout``."""

    def method(self: AnyCaller, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return _work(prepare, self, args, kwargs, background=False).wait()

    _describe(method, prepare, "{}")
    return method


def in_background(
    method: Callable[Concatenate[AnyCaller, Given], Result],
) -> Callable[Concatenate[AnyCaller, Given], Work[Result]]:
    """Make the twin of a :func:`collective` that begins the call, and returns the work in progress."""
    prepare: Prepare[AnyCaller, Given, Result] = method.__wrapped__  # type: ignore[attr-defined]  # by functools.wraps

    def twin(self: AnyCaller, /, *args: Given.args, **kwargs: Given.kwargs) -> Work[Result]:
        return _work(prepare, self, args, kwargs, background=True)

    _describe(twin, prepare, "Work[{}]")
    twin.__doc__ = (
        f"Begin :meth:`{prepare.__name__}`; ``wait()`` on what this returns gives the result. What was given must not change "
        "until then."
    )
    twin.__name__, twin.__qualname__ = f"{prepare.__name__}_async", f"{prepare.__qualname__}_async"
    return twin


def _work(prepare: Callable[..., Call[Result]], caller: Caller, args: Any, kwargs: Any, *, background: bool) -> Work[Result]:
    call = partial(prepare, caller, *args, **kwargs)
    return caller._begin(prepare.__name__, call, kwargs.get("timeout"), background=background)


def _describe(method: Any, prepare: Callable[..., object], returns: str) -> None:
    """Give ``method`` the name, docstring and signature of ``prepare``, but what the call returns."""
    update_wrapper(method, prepare)
    signature = inspect.signature(prepare)
    result = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    method.__signature__ = signature.replace(return_annotation=returns.format(result))
