# SPDX-License-Identifier: MIT
"""A reduction that the switch makes, or the ranks themselves, or both at once, each a part of the blocks.

It begins at the switch, where the ranks compare what they call and agree on the way, so that errors of one rank reach the others
as in every call. Exponents belong to blocks, and an array is cut between blocks: the bits are the same by every way.

Cost: a round trip and a chunk more than the way itself, for sizes that do not go by the switch alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from netsum.collectives.call import Call, Context
from netsum.collectives.history import Fingerprint, History
from netsum.collectives.negotiation import negotiate
from netsum.collectives.nonfinite import not_finite
from netsum.collectives.options import ARITHMETIC, ReductionOptions
from netsum.collectives.partition import Layout
from netsum.collectives.way_selection import BOTH, SizeClass, WaySelection, codes_of, in_words
from netsum.core.progress import SUBMITTED, Flow, PartEnded, Work, nested
from netsum.descriptor import SWITCH
from netsum.errors import CallError, CallTimeoutError, MismatchError, NotFiniteError
from netsum.numeric.fixed_point import FLOATS, Array, type_name

READY: Final = 0
PREPARING: Final = 1
FAILED: Final = 2
"""The state of the companion job. The ranks agree on the largest."""

_ENDS: Final = (MismatchError, CallTimeoutError)
"""Errors of a call that end a communicator, so that no other call waits for this one's end."""

Reduce = Callable[[Context, str, Array, Layout, ReductionOptions, History], Flow]
""":func:`netsum.collectives.reductions.reduce_array`."""


class CompanionJob(Protocol):
    """The job of the same ranks that sums by a host algorithm: :class:`netsum.companion.Companion`."""

    selection: WaySelection

    @property
    def state(self) -> int: ...

    @property
    def busy(self) -> bool:
        """True if a call of its own is in progress."""

    def prepare(self) -> None:
        """Begin to make it, in the background; the first time only."""

    def start(self, call: Call[Array], block_bytes: int) -> Work[Array]:
        """Begin a call there, which a thread drives. Raises ClosedError."""

    def stop(self, reason: str) -> None:
        """Use it no more, since not every rank can."""

    def abandon(self) -> None:
        """End it, and the calls in it, at once."""

    def note(self, text: str) -> None:
        """Log a choice."""


def may_leave_switch(options: ReductionOptions) -> bool:
    """True if the result has the same bits by every way. Random rounding follows from the number of the call."""
    return options.scale != "float" and options.rounding == "nearest"


class SelectedSum:
    """One reduction whose way is selected."""

    def __init__(
        self,
        reduce: Reduce,
        job: CompanionJob,
        array: Array,
        options: ReductionOptions,
        history: History,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reduce, self._job, self._clock = reduce, job, clock
        self._array, self._options, self._history = array, options, history

    def flow(self, context: Context, name: str) -> Flow:
        """The flow; returns the flat result."""
        array, options, job = self._array, self._options, self._job
        share = job.selection.of(array.nbytes, divisible=True)
        cut = 0 if share is None else self._cut(context, share.share)
        kind = job.selection.of(array.nbytes, divisible=cut > 0)
        if kind is None or kind.settled == SWITCH:
            return (yield from self._by_switch(context, name))
        fingerprint = (name, type_name(array.dtype), array.shape, options.agreed, f"{kind.share:g} of it by the switch")
        open_choice = kind.settled is None
        codes = [job.state, *kind.codes()] if open_choice else []
        agreed = yield from negotiate(context, fingerprint, codes_of(codes))
        if agreed.members is not None and agreed.members < context.workers:
            job.stop("a rank was evicted")
            return (yield from self._by_switch(context, name))
        state, *times = agreed.values.tolist() if open_choice else [READY]
        if state == FAILED:
            job.stop("a rank cannot reach the others")
        if state != READY:
            job.prepare()
            return (yield from self._by_switch(context, name))
        way = kind.settled or kind.choose(times)
        if open_choice and kind.settled is not None:
            job.note(in_words(kind, array.nbytes))
        if kind.settled is None:
            return (yield from self._tried(context, name, kind, way, cut))
        return (yield from self._by(context, name, way, cut))

    def _cut(self, context: Context, share: float) -> int:
        """The number of elements, whole blocks whatever their lanes, that the switch sums of an array which both share; 0 if the
        array cannot be divided."""
        array, options = self._array, self._options
        if options.op not in ARITHMETIC or options.exact or type_name(array.dtype) not in FLOATS:
            return 0  # integers have one lane for the whole call, and what is exact has another layout
        unit = context.block_bytes
        cut = round(array.size * share / unit) * unit
        return cut if cut < array.size else 0

    def _tried(self, context: Context, name: str, kind: SizeClass, way: str, cut: int) -> Flow:
        """By a way that is timed. Calls after this one wait, as this one has for those in the companion."""
        yield lambda: not self._job.busy
        began = self._clock()
        result = yield from nested(self._by(context, name, way, cut))
        kind.record(way, self._clock() - began)
        return result

    def _by(self, context: Context, name: str, way: str, cut: int) -> Flow:
        if way == SWITCH:
            return self._by_switch(context, name)
        return self._by_both(context, name, cut if way == BOTH else 0)

    def _by_switch(self, context: Context, name: str) -> Flow:
        array = self._array
        (result,) = yield from self._reduce(context, name, array, Layout.whole(array.size), self._options, self._history)
        return result

    def _by_both(self, context: Context, name: str, cut: int) -> Flow:
        """The first ``cut`` elements by the switch, none if that is 0, and the others by the companion."""
        array, out = self._array.reshape(-1), context.out
        fits = out is not None and out.dtype == array.dtype and out.size == array.size
        result = out.reshape(-1) if fits and out is not None else np.empty(array.size, array.dtype)
        own = _Part(self, slice(0, cut), result, context.block_bytes)
        other = _Part(self, slice(cut, array.size), result, context.block_bytes)
        left = None if context.deadline is None else max(0.0, context.deadline - time.monotonic())
        call: Call[Array] = Call(name, lambda its: other.flow(its, name), other.array.nbytes, timeout=left)
        part = self._job.start(call, context.block_bytes)
        try:
            error = yield from self._switch_part(context, name, own, cut)
            if not cut and not self._predicts:
                yield SUBMITTED
            yield PartEnded(part)
        finally:
            if not part.over:  # the communicator has ended: nothing of this rank's array may go out any more
                self._job.abandon()
        context.report.include(part.report)
        try:
            part.wait()
        except _ENDS:
            raise
        except CallError as other_error:
            error = error or other_error
        if error is not None:
            raise self._in_whole(context, error)
        if self._predicts and cut:
            self._learn(name, own, other)
        context.filled = fits  # a part fills only its own
        return result

    def _switch_part(self, context: Context, name: str, own: _Part, cut: int) -> Flow:
        """The flow of this part; returns its error. The companion's part still uses the caller's array then."""
        if not cut:
            return None
        flow = own.flow(context, name)
        try:
            # With predictions, the next call needs what both parts learn.
            yield from nested(flow) if self._predicts else flow
        except _ENDS:
            raise
        except CallError as error:
            return error
        return None

    @property
    def _predicts(self) -> bool:
        return self._options.scale == "predicted"

    def _in_whole(self, context: Context, error: CallError) -> CallError:
        """The error with the index in the whole array, of a value that is not finite."""
        return (not_finite(context.rank, self._array) or error) if isinstance(error, NotFiniteError) else error

    def kind_of(self, name: str) -> Fingerprint:
        """The whole call's, under which predictions are kept."""
        return name, type_name(self._array.dtype), self._array.shape, self._options.agreed

    def _learn(self, name: str, own: _Part, other: _Part) -> None:
        found = [part.history.predictions.exponents.get(part.kind_of(name)) for part in (own, other)]
        both = [each for each in found if each is not None]
        if len(both) == 2:
            self._history.predictions.learn(self.kind_of(name), np.concatenate(both))


class _Part:
    """Some elements of an array, whose sum goes to the same place of the ``result``. What is predicted for them is what was
    predicted for these blocks of the whole array."""

    def __init__(self, whole: SelectedSum, where: slice, result: Array, block_bytes: int) -> None:
        self._whole, self._where, self._result = whole, where, result[where]
        self._block_bytes = block_bytes
        self.array = whole._array.reshape(-1)[where]
        options = whole._options
        residual = None if options.residual is None else options.residual.reshape(-1)[where]
        self._options = options if residual is None else replace(options, residual=residual)
        self._is_whole = len(self.array) == whole._array.size
        self.history = whole._history if self._is_whole else History(whole._history.count_redone)

    def kind_of(self, name: str) -> Fingerprint:
        return name, type_name(self.array.dtype), self.array.shape, self._options.agreed

    def flow(self, context: Context, name: str) -> Flow:
        array = self._whole._array if self._is_whole else self.array
        if not self._is_whole:
            self._predict(name)
        context.out = self._result
        layout = Layout.whole(array.size)
        (found,) = yield from self._whole._reduce(context, name, array, layout, self._options, self.history)
        if not np.may_share_memory(found, self._result):
            self._result[...] = found
        return self._result

    def _predict(self, name: str) -> None:
        known = self._whole._history.predictions.exponents.get(self._whole.kind_of(name))
        if known is not None:
            width = self._block_bytes // self._options.float_lane(self.array.dtype).bytes
            blocks = slice(self._where.start // width, -(-self._where.stop // width))
            self.history.predictions.learn(self.kind_of(name), known[blocks])
