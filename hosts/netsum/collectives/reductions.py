# SPDX-License-Identifier: MIT
"""The reductions that a communicator offers: allreduce, reduce and reduce_scatter.

In all of them every rank contributes an array, the switch combines the arrays block by block, and a layout says who gets which
part of the result.

Cost, for S bytes of lanes a rank: S out; in, what the rank gets, and a header for each block that it does not get. The agreement
adds a round trip (none with predicted scales). Lanes of a sum: 4 bytes an element for float32, float16 and bfloat16, 8 for
float64, as many as needed for integers. All other operations use the type's own width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from netsum.collectives.arguments import as_array, check_root, rows_to_each, write_out, wrong_out
from netsum.collectives.call import Call, Caller, Context, collective, in_background
from netsum.collectives.elementwise import gathered_sum, lanewise, product
from netsum.collectives.fixed_sums import agreed_sum, chained_sum, exact_sum, integer_sum
from netsum.collectives.history import Fingerprint, History
from netsum.collectives.negotiation import NO_CODES, negotiate
from netsum.collectives.nonfinite import not_finite
from netsum.collectives.options import ARITHMETIC, INTEGER_MEAN, ReductionOptions
from netsum.collectives.partition import Layout
from netsum.collectives.predicted_sum import predicted_sum
from netsum.collectives.selected_sum import CompanionJob, SelectedSum, may_leave_switch
from netsum.core.progress import SUBMITTED, Flow
from netsum.errors import CallError, DegradedError, ResultLostError, UnsupportedError
from netsum.numeric.fixed_point import INTEGERS, Array, type_name
from netsum.wire.schema import EVERYONE


def reduce_array(context: Context, name: str, array: Array, layout: Layout, options: ReductionOptions, history: History) -> Flow:
    """The flow of a reduction of a C-contiguous array, with the arithmetic that its operation and type need; returns the layout's
    segments as flat arrays, which are empty where this rank gets none."""
    fingerprint: Fingerprint = (name, type_name(array.dtype), array.shape, options.agreed)
    if len(layout.counts) > 1 or layout.owners[0] != EVERYONE:
        fingerprint += (layout.counts, layout.owners)
    if not array.size:
        yield from negotiate(context, fingerprint, NO_CODES)
        if context.error is not None:
            raise context.error
        yield SUBMITTED
        return [np.empty(0, array.dtype)] * len(layout.counts)
    if not context.contribute:
        array = np.zeros_like(array)
    error = context.error
    if options.exact:
        mean = options.op == "mean"
        if array.dtype == np.float64:
            parts = yield from gathered_sum(context, name, array, layout, mean=mean)
        else:
            parts = yield from exact_sum(context, array, layout, fingerprint, error, mean=mean)
        return _checked(context, parts, options, error)
    if options.scale == "float":
        parts = yield from chained_sum(context, array, layout, options, fingerprint, error)
    elif options.op == INTEGER_MEAN or (options.op == "sum" and type_name(array.dtype) in INTEGERS):
        parts = yield from integer_sum(context, array, layout, fingerprint, mean=options.op == INTEGER_MEAN)
    elif options.op not in ARITHMETIC:
        if not options.propagates:
            error = error or not_finite(context.rank, array)
        parts = yield from lanewise(context, array, layout, options, fingerprint, error)
    else:
        known = options.scale == "predicted" and fingerprint in history.predictions.exponents
        float_sum = predicted_sum if known else agreed_sum
        parts = yield from float_sum(context, array, layout, options, fingerprint, history, error)
    return _checked(context, parts, options, error)


def _checked(context: Context, parts: list[Array], options: ReductionOptions, error: CallError | None) -> list[Array]:
    """The segments, if the report says that they are good for the caller."""
    if error is not None:
        raise error  # the others do not know of it, since they finished without this rank
    if context.report.lost:
        raise ResultLostError(context.report)
    if options.on_late == "raise" and context.report.degraded:
        raise DegradedError(context.report)
    return parts


class Reductions(Caller):
    """Methods of :class:`netsum.Communicator`, which raise :mod:`netsum.errors`."""

    _companion: CompanionJob | None
    """Sums large arrays where the switch alone would take longer; None: all go by the switch."""

    @collective
    def allreduce(
        self,
        x: ArrayLike,
        op: str = "sum",
        out: Array | None = None,
        *,
        scale: str = "agreed",
        bits: int | None = None,
        rounding: str = "nearest",
        exact: bool = False,
        residual: Array | None = None,
        nonfinite: str = "raise",
        on_late: str = "accept",
        contribute: bool = True,
        timeout: float | None = None,
    ) -> Call[Array]:
        """Reduce ``x`` over all ranks; every rank gets the result.

        Args:
            x: array of any shape and size; the same shape and type on all ranks.
            op: ``sum``, ``mean``, ``integer_mean``, ``product``, or another operation of :class:`netsum.wire.Op`, such as
                ``max``; docs/hosts.md says which types each takes. ``product`` runs on the hosts, at the cost of an
                :meth:`all_gather`.
            out: array for the result, of x's shape and type; may be ``x`` itself. Default: a new one. After an error, what is in
                it means nothing, unless it is ``x``, which is then as before.
            scale: ``agreed``: the ranks first agree on the range of every block. ``predicted``: they take it from the last call
                of the same kind and skip that round trip; blocks for which it is too small or far too coarse are repeated.
                ``float``: float32 and float64 are added as they are, in the order of the chain; only in jobs by chain.
            bits: 8 or 16: carry a sum or mean of floats in lanes of this many bits, a quarter or half of float32's bytes; the
                quantum grows as below, with w = ``bits``. Default: 32, or 64 for float64.
            rounding: ``nearest``, or ``stochastic``: up or down at random, so that errors cancel out over many calls; an element
                of the sum is then off by less than n quanta. The same on all ranks.
            exact: True: a sum or mean of floats is the true one, rounded once: the same whatever the number and order of ranks.
                NaN and infinities are added as IEEE 754 says. Meant for losses, norms and small layers: it moves ten times the
                bytes of float32, and float64 is gathered and added by Python on every rank.
            residual: array of floats of x's shape, for a sum or mean of floats: gets what rounding has kept out of this rank's
                contribution. Added to the next ``x``, it makes the errors of few bits cancel out (error feedback).
            nonfinite: what becomes of a NaN or an infinity in floats, the same on all ranks. ``raise``: NotFiniteError.
                ``propagate``: the element's result is what IEEE arithmetic gives; all others are as if it were not there. It
                    costs two round
                trips, and a byte more for each element of the blocks that it is in.
            on_late: in a job that degrades, what to do about late ranks. ``accept``: take partial results (``mean`` divides by
                the number of ranks in it). ``carry``: the same, and what this rank sent too late goes into its next call of
                the same kind (sums and means of floats). ``wait``, on all ranks: wait for every rank. ``raise``: raise
                DegradedError.
            contribute: False: take part without adding ``x``, which only tells the shape and type; the result counts this rank
                as late. For jobs that degrade: a rank that is behind catches up without computing (see :meth:`lag`).
            timeout: seconds; default: the communicator's.

        Returns:
            ``out``, or a new array. Integer results are exact. An element of a float sum is off by at most n/2 quanta (n ranks),
            a quantum being at most 2^(e+1) / floor((2^w - 1) / 2n) in a block whose magnitudes are below 2^e, with w = 32 (64 for
            float64). With predicted scales e is up to floor(b / 8) + 2 + ceil(log2 n) larger, where 2^b is the largest power of
            two in a lane. ``report.quantum`` tells the actual quantum.

        Raises:
            UnsupportedError: the type, the operation or ``out`` is wrong. The others raise AbortedError, as for all wrong
                arguments.
            NotFiniteError: this rank's ``x`` has a NaN or an infinity (not if ``exact``). The others raise AbortedError.
            SumOverflowError: an integer sum does not fit the type; on every rank.
            MismatchError: the ranks made different calls; on every rank.
            ResultLostError: this rank was so late that results are gone; nothing was returned.
            DegradedError: partial results and ``on_late="raise"``.
            InvalidTimeoutError, CallTimeoutError, RejectedError, EvictedError, DesynchronizedError, ClosedError: see
                :mod:`netsum.errors`.

        Cost: S bytes of lanes out and S in, whatever the number of ranks, in two round trips (one with predicted scales). In an
        ``auto`` job beside an aggregator, large arrays may go by a ring of the hosts, or by both at once, with the same bits.
        """
        array = as_array(x)
        given = ReductionOptions(op, scale, bits, rounding, exact, nonfinite, on_late, residual)
        options = given.check(array, workers=self.size, degrade=self._degrades)
        if not contribute and (not self._degrades or options.no_aging):
            raise UnsupportedError("contribute=False is for calls of a job that degrades: elsewhere every rank is waited for")
        error = wrong_out(out, array.shape, array.dtype)
        if op == "product":
            multiply = partial(product, array=array, propagates=options.propagates)
            return Call("allreduce", write_out(out, multiply), array.nbytes, error=error, timeout=timeout)

        def flow(context: Context) -> Flow:
            companion = self._companion
            if companion is not None and may_leave_switch(options):
                selected = SelectedSum(reduce_array, companion, array, options, self._history)
                result = yield from selected.flow(context, "allreduce")
            else:
                layout = Layout.whole(array.size)
                (result,) = yield from reduce_array(context, "allreduce", array, layout, options, self._history)
            return result.reshape(array.shape)

        return Call(
            "allreduce",
            write_out(out, flow, array),
            array.nbytes,
            no_aging=options.no_aging,
            contribute=contribute,
            error=error,
            timeout=timeout,
        )

    allreduce_async = in_background(allreduce)

    @collective
    def reduce(
        self,
        x: ArrayLike,
        root: int = 0,
        op: str = "sum",
        out: Array | None = None,
        *,
        exact: bool = False,
        nonfinite: str = "raise",
        on_late: str = "accept",
        timeout: float | None = None,
    ) -> Call[Array | None]:
        """Reduce ``x`` over all ranks; ``root`` gets the result, the others None.

        Arguments, result and errors are those of :meth:`allreduce`; ``product`` and ``on_late="carry"`` are not offered, and only
        the root raises SumOverflowError. Cost: S bytes of lanes out of every rank, S into the root, a header for each block
        into the others.
        """
        array = as_array(x)
        options = self._options(array, op, exact, nonfinite, on_late)
        check_root(root, self.size)
        error = wrong_out(out, array.shape, array.dtype) if self.rank == root else None

        def flow(context: Context) -> Flow:
            layout = Layout.whole(array.size, root)
            (result,) = yield from reduce_array(context, "reduce", array, layout, options, self._history)
            return result.reshape(array.shape) if context.rank == root else None

        return Call("reduce", write_out(out, flow, array), array.nbytes, no_aging=options.no_aging, error=error, timeout=timeout)

    reduce_async = in_background(reduce)

    @collective
    def reduce_scatter(
        self,
        x: ArrayLike,
        op: str = "sum",
        out: Array | None = None,
        *,
        counts: Sequence[int] | None = None,
        exact: bool = False,
        nonfinite: str = "raise",
        on_late: str = "accept",
        timeout: float | None = None,
    ) -> Call[Array]:
        """Reduce ``x`` over all ranks; each rank gets its rows (along the first axis) of the result.

        ``counts`` is how many rows each rank gets, adding up to those of ``x``; default: equal numbers. The other arguments,
        result and errors are those of :meth:`allreduce`; ``product`` and ``on_late="carry"`` are not offered, and only the ranks
        whose part does not fit raise SumOverflowError. Cost: S bytes of lanes out of every rank, S/n into it, and a header for
        each block of the others' parts.
        """
        array = np.atleast_1d(as_array(x))
        options = self._options(array, op, exact, nonfinite, on_late)
        rows = rows_to_each(counts, len(array), self.size)
        shape = (rows[self.rank], *array.shape[1:])
        error = wrong_out(out, shape, array.dtype)

        def flow(context: Context) -> Flow:
            elements = int(np.prod(array.shape[1:], dtype=np.int64))
            layout = Layout([count * elements for count in rows], range(len(rows)))
            parts = yield from reduce_array(context, "reduce_scatter", array, layout, options, self._history)
            return parts[context.rank].reshape(shape)

        return Call(
            "reduce_scatter",
            write_out(out, flow, array),
            array.nbytes,
            no_aging=options.no_aging,
            error=error,
            timeout=timeout,
        )

    reduce_scatter_async = in_background(reduce_scatter)

    def _options(self, array: Array, op: str, exact: bool, nonfinite: str, on_late: str) -> ReductionOptions:
        if on_late == "carry" or op == "product":
            what = "on_late='carry'" if on_late == "carry" else "op='product'"
            raise UnsupportedError(f"{what} is for allreduce, whose result every rank gets")
        given = ReductionOptions(op, exact=exact, nonfinite=nonfinite, on_late=on_late)
        return given.check(array, workers=self.size, degrade=self._degrades)
