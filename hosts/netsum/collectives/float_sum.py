"""Sums and means of floats: at scales that the ranks agree on first, or at predicted ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum import exponents, fixed_point
from netsum.collectives.blocks import GROUP, Blocks, Group, Numbers
from netsum.collectives.call import Context, Verdict, agree, agree_on, open_call
from netsum.collectives.finite import not_finite
from netsum.collectives.layout import Layout
from netsum.collectives.options import Options
from netsum.collectives.stream import Stream, all_in, blocks_of, place
from netsum.engine import SUBMITTED, Flow
from netsum.errors import CallError
from netsum.fixed_point import Array
from netsum.wire.schema import Lane, Op, Status

KINDS: Final = 1024
"""Kinds of calls that predictions are kept for."""
LOWEST: Final = -1073
"""Exponent of float64's smallest number: below it there is nothing to predict."""


@dataclass
class Predictions:
    """Exponents for the next call of the same kind, by signature; every rank holds the same, made from results."""

    exponents: dict[tuple[object, ...], NDArray[np.int64]] = field(default_factory=dict)

    def learn(self, signature: tuple[object, ...], following: NDArray[np.int64]) -> None:
        """Remember for the next call; the kind that was learnt longest ago goes when there are too many."""
        self.exponents.pop(signature, None)
        self.exponents[signature] = following
        if len(self.exponents) > KINDS:
            del self.exponents[next(iter(self.exponents))]


@dataclass
class Carried:
    """Gradients that came too late for their sum, by signature: they go into the next sum of the same kind (error feedback; Seide
    et al., Interspeech 2014, did it for what quantisation left over)."""

    rest: dict[tuple[object, ...], Array] = field(default_factory=dict)

    def take(self, signature: tuple[object, ...]) -> Array | None:
        """What is left over from earlier calls, for the one that begins now: it is that call's from here on."""
        return self.rest.pop(signature, None)

    def leave(self, signature: tuple[object, ...], rest: Array) -> None:
        """Remember what a call could not give. Calls may overlap, so there may be something already; what both make may be no
        number that can be sent, which the next call says."""
        before = self.rest.get(signature)
        with np.errstate(over="ignore"):
            self.rest[signature] = rest if before is None else before + rest


class FloatSum:
    """One sum or mean of floats. ``error``: why this rank gives the call up."""

    def __init__(
        self,
        context: Context,
        flat: Array,
        signature: tuple[object, ...],
        predictions: Predictions,
        redone: Any,
        error: CallError | None,
        *,
        shape: tuple[int, ...],
        layout: Layout,
        options: Options,
        carried: Carried | None = None,
    ) -> None:
        self._context = context
        self._dtype = flat.dtype
        # The short types are summed as float32, which holds them exactly.
        self._flat = flat.astype(np.float32) if flat.dtype.itemsize == 2 else flat
        self._signature = signature
        self._mean = options.op == "mean"
        self._carried = carried if error is None else None
        self._predictions = predictions
        self._redone = redone
        self._lane = fixed_point.float_lane(flat.dtype) if options.lane is None else options.lane
        # The same numbers on every run, and others on every rank and in every call.
        self._dither = np.random.default_rng([context.rank, context.gen]) if options.rounding == "stochastic" else None
        self._bits = fixed_point.scale_bits(self._lane, context.workers)
        self._blocks = Blocks(context, layout, self._lane)
        self._flat = self._blocks.cut.padded(self._flat)
        self._taken = None if self._carried is None else self._carried.take(signature)
        if self._taken is not None:
            with np.errstate(over="ignore"):
                self._flat = self._flat + self._taken
            error = not_finite(context.rank, self._flat, shape, " with what late calls have carried over")
        self._result = np.zeros(len(self._flat), flat.dtype)  # what is skipped stays 0
        self.error = error

    def _codes(self) -> exponents.Codes:
        """Codes of all blocks; zeros when the values are not finite, since the call is given up then."""
        if self.error is not None:
            return np.zeros(self._blocks.number, np.uint16)
        parts = [exponents.float_codes(self._blocks.rows(self._flat, numbers)) for numbers in self._blocks.groups()]
        return np.concatenate(parts)

    def _encode(self, rows: Array, powers: NDArray[np.int64]) -> Array:
        return fixed_point.encode_floats(rows, powers, self._lane, self._context.workers, self._dither)

    def _note_quantum(self, powers: NDArray[np.int64]) -> None:
        """The report says how coarse the coarsest of these blocks' exponents is."""
        if len(powers):
            with np.errstate(over="ignore", under="ignore"):
                coarsest = float(np.ldexp(1.0, int(powers.max()) - self._bits))
            self._context.report.quantum = max(self._context.report.quantum, coarsest)

    def _decode(self, group: Group, powers: NDArray[np.int64]) -> None:
        """Put the group's rows where they belong."""
        workers, lane = self._context.workers, self._lane
        divisor = np.maximum(group.src_cnt, 1) if self._mean else None
        values = fixed_point.decode_floats(group.results, powers, group.data_cnt, lane, workers, self._dtype, divisor)
        place(self._result, values, group.numbers, group.mine)

    def agreed(self, remember: bool) -> Flow:
        """Agree on the exponents first."""
        try:
            missed = yield from self._agreed(remember)
        except BaseException:
            self._keep_taken()
            raise
        if self.error is not None:
            self._keep_taken()
        elif self._carried is not None and missed:
            rest = np.zeros_like(self._flat)
            for where in blocks_of(missed, self._blocks.width):
                rest[where] = self._flat[where]
            self._carried.leave(self._signature, rest)
        return self._blocks.cut.parts(self._result)

    def _keep_taken(self) -> None:
        """Nothing of the call counts, so what it took along was not given. (What is no number never can be.)"""
        if self._carried is not None and self._taken is not None and np.isfinite(self._taken).all():
            self._carried.leave(self._signature, self._taken)

    def _agreed(self, remember: bool) -> Flow:
        """The numbers of the blocks that are without this rank's contribution."""
        codes = self._codes()
        agreed = yield from agree(self._context, self._signature, codes, self.error)
        blocks = self._blocks

        def ready(numbers: range) -> Any:
            return lambda: numbers.stop <= exponents.FIRST_CODES or agreed.missing == 0

        def powers(numbers: Numbers) -> NDArray[np.int64]:
            return exponents.float_exponents(agreed.values[np.asarray(numbers, np.int64)])

        def choose(numbers: range) -> Numbers:
            """Blocks that are zeros on every rank are not sent. (In a job that degrades they are: a rank that has lost the
            codes must be able to count its blocks.)"""
            if self._context.degrade:
                return numbers
            there = agreed.values[numbers.start : numbers.stop] != exponents.ZERO_CODE
            zeros = len(numbers) - int(there.sum())
            self._context.report.skipped += zeros
            self._context.outline.skipped += zeros
            return numbers if there.all() else numbers.start + np.flatnonzero(there)

        def encode(numbers: Numbers) -> Array:
            rows, passed = blocks.rows(self._flat, numbers), agreed.unfit(numbers)
            if passed is not None:
                rows = np.where(passed[:, None], 0, rows)
            return self._encode(rows, powers(numbers))

        def decode(group: Group) -> None:
            self._decode(group, powers(group.numbers))

        if remember:
            yield lambda: agreed.missing == 0
            # The next call may start when this one has submitted its last block: by then every rank must hold the
            # prediction, or none.
            self._predictions.learn(self._signature, _after(agreed.values))
        stream = Stream(self._context, blocks, Op.SUM)
        yield from stream.run(encode, decode, ready, agreed.unfit, choose)
        self._note_quantum(powers(np.flatnonzero((agreed.values != exponents.ZERO_CODE) & ~agreed.unknown)))
        # A result without a scale is as good as none.
        self._context.report.lost = max(self._context.report.lost, int(agreed.unknown.sum()))
        return stream.missed

    def predicted(self) -> Flow:
        """Send at once at the predicted exponents, behind the first block that compares the calls; what did not fit
        them somewhere, or is far below them everywhere, is done again.

        No later block is sent until every result of the call is held: another rank may still learn from a result that
        blocks must be done again, and those come next.
        """
        powers = self._predictions.exponents[self._signature]
        codes = self._codes()
        fits = (exponents.float_exponents(codes) <= powers) | (codes == exponents.ZERO_CODE)
        opened = open_call(self._context, self._signature, np.zeros(0, np.uint16), self.error)
        groups = []
        for numbers in self._blocks.groups():
            rows = self._blocks.rows(self._flat, numbers)
            fitting = fits[numbers.start : numbers.stop]

            def skip(row: int, fitting: NDArray[np.bool_] = fitting) -> Status:
                if self.error is not None:
                    return Status.ABORT
                return Status.OK if fitting[row] else Status.RANGE

            safe = np.where(fitting[:, None], rows, 0) if self.error is None else np.zeros_like(rows)
            lanes = self._encode(safe, powers[numbers.start : numbers.stop])
            final = numbers.stop == self._blocks.number
            groups.append(self._blocks.submit(Op.SUM, lanes, numbers, skip, final=final))
            yield lambda: opened.differ or self._context.window.queued < GROUP
            if opened.differ:
                break
        # Ranks whose calls differ may never send each other's blocks; one that gives up does.
        yield lambda: opened.differ or (opened.answered and all(group.missing == 0 for group in groups))
        opened.check(self.error)
        doubtful, following = yield from self._take_predicted(groups, powers)
        used = powers.copy()
        if len(doubtful):
            agreed = yield from agree_on(self._context, codes[doubtful])
            following[doubtful] = _after(agreed)
            exact = exponents.float_exponents(agreed)
            coarse = powers[doubtful] - exact > coarseness(self._lane, self._context.workers)
            again = (agreed != exponents.ZERO_CODE) & ((exact > powers[doubtful]) | coarse)
            used[doubtful[again]] = exact[again]
            used[doubtful[agreed == exponents.ZERO_CODE]] = LOWEST
            yield from self._redo(doubtful[again], exact[again])
        self._note_quantum(used[used > LOWEST])
        self._predictions.learn(self._signature, following)
        yield SUBMITTED
        return self._blocks.cut.parts(self._result)

    def _take_predicted(self, groups: list[Group], powers: NDArray[np.int64]) -> Flow:
        """Decode what came; returns the numbers of the blocks whose exponents must be agreed on, and all exponents for the next
        call as far as the results tell them: one more than the sum's own, since a sum may be smaller than what it is made of.

        Every rank has the same results, and so the same doubts: of blocks that did not fit on some rank, and of those whose
        sums are all small. Either the values are, or they cancel out, and the agreement tells which.
        """
        verdict = Verdict()
        for group in groups:
            group.report_to(self._context.report)
            for status in group.statuses:
                verdict.add(status)
        if verdict.highest >= Status.ABORT:
            yield SUBMITTED
        verdict.raise_failure(self.error)
        smallest = self._smallest()
        doubtful, following = [], []
        for group in groups:
            used = powers[np.asarray(group.numbers)]
            self._decode(group, used)
            largest = self._largest_sums(group)
            small = (largest < smallest) & (used > LOWEST)
            doubtful.append(small | (np.array(group.statuses) == Status.RANGE))
            own = np.frexp(largest)[1] + used - self._bits
            following.append(np.where(largest == 0, LOWEST, np.maximum(own + 1, LOWEST)))
        return np.flatnonzero(np.concatenate(doubtful)), np.concatenate(following)

    def _smallest(self) -> int:
        """A block whose largest sum is so many quanta has values within :func:`coarseness` of its exponent: 1/n of the sum is of
        one rank, and less than a quantum of that is rounding."""
        lost = coarseness(self._lane, self._context.workers) - (self._context.workers - 1).bit_length()
        return max(1 << max(self._bits - lost, 0), 1 if self._dither is None else self._context.workers + 1)

    def _largest_sums(self, group: Group) -> NDArray[np.float64]:
        """The largest magnitude of each block's sums, in quanta."""
        sums = fixed_point.decode_integers(group.results, group.data_cnt, self._lane, self._context.workers)
        sums[self._blocks.cut.beyond(group.numbers)] = 0  # padding, where there is no sum
        return np.asarray(np.abs(sums.astype(np.float64)).max(axis=1))

    def _redo(self, numbers: NDArray[np.int64], exact: NDArray[np.int64]) -> Flow:
        """These blocks again, ascending, at exponents that are agreed on."""
        self._redone(len(numbers))
        for first in range(0, len(numbers), GROUP):
            some, powers = numbers[first : first + GROUP], exact[first : first + GROUP]
            rows = self._blocks.rows(self._flat, some)
            group = self._blocks.submit(Op.SUM, self._encode(rows, powers), some)
            yield all_in(group)
            self._decode(group, powers)


def coarseness(lane: Lane, workers: int) -> int:
    """Bits by which a predicted exponent may be above the one that the ranks would have agreed on: two for what the prediction
    adds, those by which a sum may be larger than its parts, and an eighth of what the lane has, so that values may fall a little
    without another round."""
    return 2 + (workers - 1).bit_length() + fixed_point.scale_bits(lane, workers) // 8


def _after(codes: exponents.Codes) -> NDArray[np.int64]:
    """Exponents for the next call after an agreement. Of a block of zeros nothing is known: whatever comes is done again at a
    scale that fits it."""
    return np.where(codes == exponents.ZERO_CODE, LOWEST, exponents.float_exponents(codes) + 1)
