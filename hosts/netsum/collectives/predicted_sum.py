# SPDX-License-Identifier: MIT
"""Sums and means of floats at exponents that are predicted from the last call of the same kind.

The data goes out at once, without an opening. Blocks that did not fit their exponents on some rank, or were far below them on
every rank, are repeated at exponents that the ranks agree on.

Cost: the data; where predictions were wrong, another round trip and those blocks again.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from netsum.collectives.call import Context
from netsum.collectives.history import Fingerprint, History
from netsum.collectives.negotiation import begin_unopened, negotiate_codes
from netsum.collectives.nonfinite import Marks, checked_codes
from netsum.collectives.one_block import OneBlock
from netsum.collectives.options import ReductionOptions
from netsum.collectives.partition import Layout
from netsum.collectives.pipeline import BlockGroup, BlockPipeline, send_at_once
from netsum.collectives.residual import keeping
from netsum.core.endpoint import GROUP
from netsum.core.progress import Flow
from netsum.errors import CallError
from netsum.numeric import fixed_point
from netsum.numeric.exponents import (
    LOWEST,
    NOT_FINITE,
    ZERO_CODE,
    Codes,
    coarseness,
    float_exponents,
    magnitudes,
    predicted_exponents,
    smallest_sum,
    within,
)
from netsum.numeric.fixed_point import Array, FloatLanes, Numbers, pick
from netsum.wire.schema import Op, Status


def predicted_sum(
    context: Context,
    array: Array,
    layout: Layout,
    options: ReductionOptions,
    fingerprint: Fingerprint,
    history: History,
    error: CallError | None,
) -> Flow:
    """The flow of a sum or mean for which there is a prediction; returns the layout's segments. ``error`` is why this rank gives
    the call up, if it does.

    The next call submits nothing until every result of this one is held: another rank may still learn from a result that blocks
    must be repeated, and those come first.
    """
    exponents = history.predictions.exponents[fingerprint]
    lane, block = options.float_lane(array.dtype), None
    begin_unopened(context, fingerprint, len(exponents), exponents)
    if len(exponents) == 1 and error is None:
        block = OneBlock.of(context, array, layout, options, lane, int(exponents[0]))
    if block is not None:
        yield from block.send()
        found = block.result()
        if found is not None:
            result, exponent = found
            history.predictions.learn(fingerprint, np.array([exponent]))
            return [result]
    pipeline = BlockPipeline(context, layout, Op.SUM, lane)
    summing = _PredictedSum(context, array, pipeline, options, exponents, error)
    groups = [block.group(pipeline.partition.width)] if block is not None else (yield from summing.send())
    doubtful, following = summing.receive(groups)
    if len(doubtful):
        agreed = yield from negotiate_codes(context, summing.codes[doubtful])
        settled = yield from summing.settle(doubtful, agreed)
        following[doubtful] = predicted_exponents(settled)
        yield from summing.send_again(doubtful, agreed, settled, history)
    summing.note_quantum()
    if summing.marks is not None:
        summing.marks.put_into(summing.result, summing.pipeline.partition)
    history.predictions.learn(fingerprint, following)
    return summing.pipeline.parts(summing.result)


class _PredictedSum:
    """One sum in progress. ``exponents`` are those of its blocks: predicted, or agreed on later."""

    def __init__(
        self,
        context: Context,
        array: Array,
        pipeline: BlockPipeline,
        options: ReductionOptions,
        exponents: NDArray[np.int64],
        error: CallError | None,
    ) -> None:
        self._context = context
        self._lane = lane = options.float_lane(array.dtype)
        self.pipeline, partition = pipeline, pipeline.partition
        self._blocks = fixed_point.widened(array).reshape(-1)
        self.marks = Marks(self._blocks, partition) if options.propagates and error is None else None
        if self.marks is None:
            rows = partition.all_rows(self._blocks)
            self.codes, self._error = checked_codes(context.rank, array, rows, partition.number, error)
        else:
            self._blocks, self.codes, self._error = self.marks.finite, self.marks.codes, error
        self.exponents = exponents.copy()
        self._dither = options.dither(context.rank, context.gen)
        mean = options.op == "mean"
        lanes = FloatLanes(lane, context.workers, array.dtype, self._exponents_of, mean, self._dither)
        self._lanes = lanes if options.residual is None else keeping(lanes, partition, options.residual)
        self.result = self.pipeline.result_for(array.dtype)

    def _exponents_of(self, numbers: Numbers) -> NDArray[np.int64]:
        return pick(self.exponents, numbers)

    def send(self) -> Flow:
        """Send all blocks at the predicted exponents; returns the groups, complete."""
        fits = within(self.codes, self.exponents)

        def encode(numbers: range) -> tuple[Array, list[Status] | None]:
            fitting, rows = pick(fits, numbers), self.pipeline.partition.rows(self._blocks, numbers)
            if fitting.all():
                return self._lanes.encode(rows, numbers), None
            rows = np.where(fitting[:, None], rows, np.zeros(1, rows.dtype))
            return self._lanes.encode(rows, numbers), [Status.OK if fit else Status.RANGE for fit in fitting]

        return (yield from send_at_once(self._context, self.pipeline, encode, self._error))

    def receive(self, groups: list[BlockGroup]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Decode the results. Returns the numbers of the doubtful blocks, whose exponents must be agreed on, and all exponents
        for the next call as far as the results tell: one more than the sum's own, since a sum may be smaller than its parts.

        All ranks have the same results, and so the same doubts: blocks that did not fit on some rank, and blocks whose sums are
        all small. In those, either the values are small or they cancel out, and the agreement tells which.
        """
        for group in groups:
            self.pipeline.finish(group)
        self.pipeline.verdict.raise_failure(None)
        smallest = smallest_sum(self._lane, self._context.workers, dithered=self._dither is not None)
        largest: list[NDArray[np.float64]] = []
        refused: list[int] = []
        for group in groups:
            lanes, lane, workers = group.lanes, self._lane, self._context.workers
            integers = fixed_point.decode_integers(lanes, group.data_cnt, lane, workers, lanes)
            self.pipeline.partition.blank(integers, group.numbers)
            largest.append(magnitudes([integers]).astype(np.float64))
            values = partial(self._lanes.values, integers, group.numbers, group.worker_cnt)
            self.pipeline.write(group, self.result, values)
            refused += group.statuses
        sums = np.concatenate(largest)
        doubtful = (sums < smallest) & (self.exponents > LOWEST)
        if any(refused):
            doubtful |= np.array(refused) == Status.RANGE
        own = np.frexp(sums)[1] + (self.exponents + (1 - fixed_point.scale_bits(self._lane, self._context.workers)))
        own[sums == 0] = LOWEST
        return doubtful.nonzero()[0], np.maximum(own, LOWEST)

    def settle(self, doubtful: NDArray[np.int64], agreed: Codes) -> Flow:
        """The codes of the finite values of the doubtful blocks, whose codes ``agreed`` may say that they are not finite."""
        codes, which = agreed.copy(), np.flatnonzero(agreed >= NOT_FINITE)
        if self.marks is not None and len(which):
            numbers = doubtful[which]
            codes[which] = yield from self.marks.settle(self._context, self.pipeline.partition, numbers, self.codes[numbers])
        return codes

    def send_again(self, doubtful: NDArray[np.int64], agreed: Codes, settled: Codes, history: History) -> Flow:
        """Repeat the doubtful blocks whose prediction was wrong, at the exponents that were settled on, and those that were not
        finite, to which a rank has not contributed."""
        predicted, exact = self.exponents[doubtful], float_exponents(settled)
        coarse = predicted - exact > coarseness(self._lane, self._context.workers)
        again = (settled != ZERO_CODE) & ((exact > predicted) | coarse | (agreed >= NOT_FINITE))
        self.exponents[doubtful[again]] = exact[again]
        self.exponents[doubtful[settled == ZERO_CODE]] = LOWEST
        wrong = doubtful[again]
        history.count_redone(len(wrong))
        for first in range(0, len(wrong), GROUP):
            numbers = wrong[first : first + GROUP]
            rows = self.pipeline.partition.rows(self._blocks, numbers)
            group = self.pipeline.submit(self._lanes.encode(rows, numbers), numbers)
            yield group.complete
            self.pipeline.decode(group, self._lanes, self.result)

    def note_quantum(self) -> None:
        largest = int(self.exponents.max())
        if largest > LOWEST:
            self._context.report.note_quantum(fixed_point.quantum(largest, self._lane, self._context.workers))
