"""allreduce: every rank gets the sum, mean or maximum over the ranks.

Cost, for S bytes of lanes a rank: S out and S in, whatever the number of ranks, and one round trip more than that for the
agreement (none with predicted scales). float32, float16: 4 bytes an element; float64: 8; integers: as many as the sum needs;
max: the type's own width.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum import exponents, fixed_point
from netsum.collectives.call import GROUP, Blocks, Context, Group, Verdict, agree, agree_on, open_call, room
from netsum.engine import SUBMITTED, Flow
from netsum.errors import CallError, DoesNotFit, NotFinite, Unsupported
from netsum.fixed_point import Array
from netsum.wire.schema import Lane, Op, Status

FLOATS: Final = frozenset({"float16", "float32", "float64"})
INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64"})
OPERATIONS: Final = ("sum", "mean", "max")
SCALES: Final = ("agreed", "predicted")

SHRINK: Final = 16
"""Bits by which a predicted exponent falls after a sum of 0."""
KINDS: Final = 1024
"""Kinds of calls that predictions are kept for."""
LOWEST: Final = -1073
"""Exponent of float64's smallest number: below it there is nothing to predict."""


@dataclass(frozen=True)
class Options:
    """How to reduce."""

    op: str
    scale: str


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


def check(array: Array, op: str, scale: str) -> Options:
    """The options, if this dtype can be reduced so; Unsupported otherwise, before anything is sent."""
    name = array.dtype.name
    if op not in OPERATIONS:
        raise Unsupported(f"op {op!r} is not one of {', '.join(OPERATIONS)}")
    if scale not in SCALES:
        raise Unsupported(f"scale {scale!r} is not one of {', '.join(SCALES)}")
    if name not in FLOATS | INTEGERS or not array.dtype.isnative:
        raise Unsupported(
            f"dtype {array.dtype.str} cannot be reduced; use one of {', '.join(sorted(FLOATS | INTEGERS))}"
        )
    if op == "mean" and name in INTEGERS:
        raise Unsupported(f"the mean of {name} is not an integer; convert to a float first or use op='sum'")
    return Options(op, scale if name in FLOATS and op != "max" else "agreed")


def allreduce(context: Context, array: Array, options: Options, predictions: Predictions, redone: Any) -> Flow:
    """The flow of an allreduce of a C-contiguous array; returns a new array of the same shape and dtype.

    ``redone(blocks)`` is told how many blocks a wrong prediction cost.
    """
    flat = array.reshape(-1)
    signature = ("allreduce", options.op, options.scale, array.dtype.name, array.shape)
    if not flat.size:
        yield from agree(context, signature, np.zeros(0, np.uint16))
        yield SUBMITTED
        return np.empty_like(array)
    error = _not_finite(context.rank, flat, array.shape)
    if options.op == "max":
        result = yield from _max(context, flat, signature, error)
    elif array.dtype.name in INTEGERS:
        result = yield from _integer_sum(context, flat, signature)
    else:
        summing = _FloatSum(context, flat, signature, options.op == "mean", predictions, redone, error)
        if options.scale == "predicted" and signature in predictions.exponents:
            result = yield from summing.predicted()
        else:
            result = yield from summing.agreed(options.scale == "predicted")
    return result.reshape(array.shape)


def _not_finite(rank: int, array: Array, shape: tuple[int, ...]) -> NotFinite | None:
    """The error for the first NaN (or infinity) of a float array, or None."""
    if array.dtype.kind != "f":
        return None
    bad = ~np.isfinite(array)
    if not bad.any():
        return None
    where = int(bad.argmax())
    index = tuple(int(each) for each in np.unravel_index(where, shape))
    return NotFinite(rank, index, float(array[where]))


def _all_in(group: Group) -> Any:
    return lambda: group.missing == 0


def _max(context: Context, flat: Array, signature: tuple[object, ...], error: CallError | None) -> Flow:
    yield from agree(context, signature, np.zeros(0, np.uint16), error)
    blocks = Blocks(context, flat.size, fixed_point.own_lane(flat.dtype))
    result = np.empty_like(flat)

    def encode(start: int, stop: int) -> Array:
        return fixed_point.encode_order(blocks.rows(flat, start, stop))

    def decode(group: Group) -> None:
        values = fixed_point.decode_order(group.results, flat.dtype).reshape(-1)
        _place(result, values, group.start * blocks.width)

    yield from _stream(context, blocks, Op.MAX, encode, decode)
    return result


def _place(result: Array, values: Array, start: int) -> None:
    count = min(len(values), len(result) - start)
    result[start : start + count] = values[:count]


def _stream(context: Context, blocks: Blocks, op: Op, encode: Any, decode: Any, ready: Any = None) -> Flow:
    """Send all blocks group by group and decode each group when its results are there. ``ready(stop)`` is a condition
    that must hold before blocks below ``stop`` can be encoded."""
    pending: deque[Group] = deque()
    verdict = Verdict()

    def finish() -> None:
        while pending and not pending[0].missing:
            group = pending.popleft()
            for status in group.statuses:
                verdict.add(status)
            if verdict.highest == Status.OK:
                decode(group)

    for start, stop in blocks.groups():
        if ready is not None:
            yield ready(stop)
        lanes = encode(start, stop)
        pending.append(blocks.submit(op, lanes, range(start, stop), final=stop == blocks.number))
        yield room(context)
        finish()
    yield SUBMITTED
    while pending:
        yield _all_in(pending[0])
        finish()
    verdict.raise_failure(None)


def _integer_sum(context: Context, flat: Array, signature: tuple[object, ...]) -> Flow:
    code = exponents.lane_code(exponents.largest_magnitude(flat), context.workers)
    agreed = yield from agree(context, signature, np.array([code], np.uint16))
    lane = exponents.lane_of_code(int(agreed.values[0]))
    if lane is None:
        raise DoesNotFit(
            f"a sum of {context.workers} values does not fit 64 bits where one is larger than "
            f"{fixed_point.bias(Lane.L64, context.workers)} in magnitude, and a rank has one"
        )
    blocks = Blocks(context, flat.size, lane)
    result = np.empty_like(flat)
    limits = np.iinfo(flat.dtype)
    overflow = False

    def encode(start: int, stop: int) -> Array:
        return fixed_point.encode_integers(blocks.rows(flat, start, stop), lane, context.workers)

    def decode(group: Group) -> None:
        nonlocal overflow
        sums = fixed_point.decode_integers(group.results, group.data_cnt, lane, context.workers).reshape(-1)
        count = min(len(sums), len(result) - group.start * blocks.width)
        sums = sums[:count]
        if lane.bytes > flat.dtype.itemsize and (sums.max() > limits.max or sums.min() < limits.min):
            overflow = True
        else:
            _place(result, sums.astype(flat.dtype), group.start * blocks.width)

    yield from _stream(context, blocks, Op.SUM, encode, decode)
    if overflow:
        raise DoesNotFit(f"a sum does not fit {flat.dtype.name} ({limits.min}..{limits.max}); use a wider type")
    return result


class _FloatSum:
    """One sum or mean of floats."""

    def __init__(
        self,
        context: Context,
        flat: Array,
        signature: tuple[object, ...],
        mean: bool,
        predictions: Predictions,
        redone: Any,
        error: CallError | None,
    ) -> None:
        self._context = context
        self._dtype = flat.dtype
        # float16 is summed as float32, which holds it exactly.
        self._flat = flat.astype(np.float32) if flat.dtype.name == "float16" else flat
        self._signature = signature
        self._divisor = context.workers if mean else 1
        self._predictions = predictions
        self._redone = redone
        self._lane = fixed_point.float_lane(flat.dtype)
        self._blocks = Blocks(context, flat.size, self._lane)
        self._result = np.empty_like(flat)
        self._error = error

    def _codes(self) -> exponents.Codes:
        """Codes of all blocks; zeros when the values are not finite, since the call is given up then."""
        if self._error is not None:
            return np.zeros(self._blocks.number, np.uint16)
        parts = [
            exponents.float_codes(self._blocks.rows(self._flat, start, stop)) for start, stop in self._blocks.groups()
        ]
        return np.concatenate(parts)

    def _encode(self, rows: Array, powers: NDArray[np.int64]) -> Array:
        return fixed_point.encode_floats(rows, powers, self._lane, self._context.workers)

    def _decode(self, group: Group, numbers: NDArray[np.int64], powers: NDArray[np.int64]) -> None:
        """Put the group's rows where they belong, and remember how large the sums are."""
        workers, lane = self._context.workers, self._lane
        values = fixed_point.decode_floats(
            group.results, powers, group.data_cnt, lane, workers, self._dtype, self._divisor
        )
        width = self._blocks.width
        if len(numbers) == numbers[-1] - numbers[0] + 1:
            _place(self._result, values.reshape(-1), int(numbers[0]) * width)
        else:
            for row, number in enumerate(numbers):
                _place(self._result, values[row], int(number) * width)

    def agreed(self, remember: bool) -> Flow:
        """Agree on the exponents first."""
        codes = self._codes()
        agreed = yield from agree(self._context, self._signature, codes, self._error)
        blocks = self._blocks

        def ready(stop: int) -> Any:
            return lambda: stop <= exponents.FIRST_CODES or agreed.missing == 0

        def powers(start: int, stop: int) -> NDArray[np.int64]:
            return exponents.float_exponents(agreed.values[start:stop])

        def encode(start: int, stop: int) -> Array:
            if remember and stop == blocks.number:
                # All codes are known by now. The next call may start when this one has submitted its last block: by
                # then every rank must hold the prediction, or none.
                following = exponents.float_exponents(agreed.values) + 1
                # Of a block of zeros nothing is known: whatever comes is done again at a scale that fits it.
                following[agreed.values == exponents.ZERO_CODE] = LOWEST
                self._predictions.learn(self._signature, following)
            return self._encode(blocks.rows(self._flat, start, stop), powers(start, stop))

        def decode(group: Group) -> None:
            stop = group.start + group.rows
            self._decode(group, np.arange(group.start, stop), powers(group.start, stop))

        yield from _stream(self._context, blocks, Op.SUM, encode, decode, ready)
        return self._result

    def predicted(self) -> Flow:
        """Send at once at the predicted exponents, behind the first block that compares the calls; what did not fit
        them somewhere is done again.

        No later block is sent until every result of the call is held: another rank may still learn from a result that
        blocks must be done again, and those come next.
        """
        powers = self._predictions.exponents[self._signature]
        codes = self._codes()
        fits = (exponents.float_exponents(codes) <= powers) | (codes == exponents.ZERO_CODE)
        opened = open_call(self._context, self._signature, np.zeros(0, np.uint16), self._error)
        groups = []
        for start, stop in self._blocks.groups():
            rows = self._blocks.rows(self._flat, start, stop)
            fitting = fits[start:stop]

            def skip(row: int, fitting: NDArray[np.bool_] = fitting) -> Status:
                if self._error is not None:
                    return Status.ABORT
                return Status.OK if fitting[row] else Status.RANGE

            safe = np.where(fitting[:, None], rows, 0) if self._error is None else np.zeros_like(rows)
            lanes = self._encode(safe, powers[start:stop])
            groups.append(
                self._blocks.submit(Op.SUM, lanes, range(start, stop), skip, final=stop == self._blocks.number)
            )
            yield lambda: opened.differ or self._context.window.queued < GROUP
            if opened.differ:
                break
        # Ranks whose calls differ may never send each other's blocks; one that gives up does.
        yield lambda: opened.differ or (opened.answered and all(group.missing == 0 for group in groups))
        opened.check(self._error)
        redo = yield from self._take_predicted(groups, powers)
        following = np.concatenate([self._following(group, powers) for group in groups])
        if len(redo):
            following[redo] = yield from self._redo(redo)
        self._predictions.learn(self._signature, following)
        yield SUBMITTED
        return self._result

    def _following(self, group: Group, powers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exponents for the next call, from the sums: one more than the sum's own, since a sum may be smaller than what
        it is made of. A sum of 0 says only that the scale was too coarse, or that there was nothing."""
        used = powers[group.start : group.start + group.rows]
        workers, lane = self._context.workers, self._lane
        sums = fixed_point.decode_integers(group.results, group.data_cnt, lane, workers)
        beyond = (group.start + group.rows) * self._blocks.width - self._blocks.count
        if beyond > 0:
            sums[-1, -beyond:] = 0  # past the array's end, where there is no sum
        largest = np.abs(sums.astype(np.float64)).max(axis=1)
        own = np.frexp(largest)[1] + used - fixed_point.scale_bits(lane, workers)
        return np.where(largest == 0, np.maximum(used - SHRINK, LOWEST), own + 1)

    def _take_predicted(self, groups: list[Group], powers: NDArray[np.int64]) -> Flow:
        """Decode what fitted; returns the numbers of the blocks that did not."""
        verdict = Verdict()
        for group in groups:
            for status in group.statuses:
                verdict.add(status)
        if verdict.highest >= Status.ABORT:
            yield SUBMITTED
        verdict.raise_failure(self._error)
        redo: list[int] = []
        for group in groups:
            stop = group.start + group.rows
            numbers = np.arange(group.start, stop)
            self._decode(group, numbers, powers[group.start : stop])
            redo += [group.start + row for row, status in enumerate(group.statuses) if status == Status.RANGE]
        return np.array(redo, np.int64)

    def _redo(self, redo: NDArray[np.int64]) -> Flow:
        """An exponent round for these blocks, then the blocks again, ascending; returns the exponents for the next call."""
        self._redone(len(redo))
        codes = self._codes()[redo]
        agreed = yield from agree_on(self._context, codes)
        exact = exponents.float_exponents(agreed)
        for first in range(0, len(redo), 64):
            numbers = redo[first : first + 64]
            rows = np.concatenate([self._blocks.rows(self._flat, int(n), int(n) + 1) for n in numbers])
            group = self._blocks.submit(Op.SUM, self._encode(rows, exact[first : first + 64]), numbers)
            yield _all_in(group)
            self._decode(group, numbers, exact[first : first + 64])
        return exact + 1
