# SPDX-License-Identifier: MIT
"""A sum or mean of float32 that fits into one block, at the exponent predicted from the last call of the same kind.

On the wire it is what :mod:`netsum.collectives.predicted_sum` would send. But in a small call most of the time would go into
arrays of one element, so here a block's exponent is a number. Whatever is not plain is left to the other: values of other types,
extreme ones or ones that do not fit, and results that raise a doubt.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from netsum.collectives.abort import take_remaining
from netsum.collectives.call import Context
from netsum.collectives.options import ReductionOptions
from netsum.collectives.partition import Layout, chunked
from netsum.collectives.pipeline import BlockGroup
from netsum.core.blocks import Block
from netsum.core.progress import Flow
from netsum.numeric.exponents import smallest_sum
from netsum.numeric.fixed_point import HOST_LANES, SIGNED_LANES, WIRE_LANES, Array, bias, quantum, scale_bits
from netsum.wire.codec import Header
from netsum.wire.schema import EVERYONE, Lane, Op, Status

_MOST_BITS: Final = 96
"""A scale of up to 2^96 neither underflows nor overflows: lanes have 32 bits, float32's exponents go to 127."""


class _Form:
    """The common part of calls whose blocks have the same number of elements, in this lane and at this exponent. All magnitudes
    are below ``limit``; ``up`` makes quanta of values, ``down`` values of quanta; ``padding`` fills up the last chunk."""

    def __init__(self, lane: Lane, workers: int, exponent: int, count: int) -> None:
        self.lane, self.count = lane, count
        self.host, self.signed, self.wire = HOST_LANES[lane], SIGNED_LANES[lane], WIRE_LANES[lane]
        self.bits, self.exponent, self.limit = scale_bits(lane, workers), exponent, math.ldexp(1.0, exponent)
        scale = math.ldexp(1.0, self.bits - exponent)
        # Arrays, with which numpy reckons faster than with its scalars.
        self.up, self.down = np.array(scale, np.float32), np.array(1 / scale, np.float32)
        self.bias = np.array(bias(lane, workers), self.host)
        self.padding = np.full((chunked(count << lane) >> lane) - count, self.bias)
        self.quantum, self.smallest = quantum(exponent, lane, workers), smallest_sum(lane, workers)


@lru_cache(maxsize=256)  # training makes the same calls again and again
def _form(lane: Lane, workers: int, exponent: int, count: int) -> _Form | None:
    plain = lane <= Lane.L32 and 0 <= scale_bits(lane, workers) - exponent <= _MOST_BITS
    return _Form(lane, workers, exponent, count) if plain else None


class OneBlock:
    """One sum in progress."""

    def __init__(self, context: Context, values: Array, form: _Form, *, mean: bool) -> None:
        self._context = context
        self._values = values
        self._form = form
        self._mean = mean
        self._header: Header | None = None
        self._payload = b""

    @classmethod
    def of(
        cls, context: Context, array: Array, layout: Layout, options: ReductionOptions, lane: Lane, exponent: int
    ) -> OneBlock | None:
        """None: the call is not plain."""
        plain = options.residual is None and not options.propagates and options.rounding == "nearest"
        if not plain or array.dtype != np.float32 or layout.owners != (EVERYONE,):
            return None
        form = _form(lane, context.workers, exponent, array.size)
        values = array if array.ndim == 1 else array.reshape(-1)
        if form is None or not np.maximum.reduce(np.abs(values)) < form.limit:  # nor is it if there is a NaN
            return None
        return cls(context, values, form, mean=options.op == "mean")

    def send(self) -> Flow:
        """Send the block; ends when it has its result."""
        context = self._context
        block = Block(context.gen, Op.SUM, self._form.lane, self._encoded(), no_aging=context.no_aging, final=True)
        block.call_fingerprint, block.on_result = context.call_fingerprint, self._record_result
        context.session.submit(block)
        yield lambda: self._header is not None
        if (header := self._header) is not None and header.status == Status.ABORT:
            yield from take_remaining(context, header.call_fingerprint, 1, Op.SUM, self._form.lane)

    def _encoded(self) -> bytes:
        form = self._form
        quanta = np.multiply(self._values, form.up)
        lanes: Array = np.rint(quanta, quanta).astype(form.signed).view(form.host)
        np.add(lanes, form.bias, lanes)
        if len(form.padding):
            lanes = np.concatenate((lanes, form.padding))
        return lanes.astype(form.wire).tobytes()

    def _record_result(self, header: Header, payload: memoryview) -> None:
        self._header, self._payload = header, bytes(payload)

    def result(self) -> tuple[Array, int] | None:
        """The sum or mean, and the exponent for the next call. None if it is doubtful: refused, or of too few quanta."""
        header, form = self._header, self._form
        assert header is not None
        if header.status != Status.OK or len(self._payload) < form.count << form.lane:
            return None
        lanes = np.frombuffer(self._payload, form.wire, form.count).astype(form.host)
        lanes -= form.bias * form.host.type(header.data_cnt)
        quanta = lanes.view(form.signed)
        largest = int(np.maximum.reduce(np.abs(quanta)))
        if largest < form.smallest:
            return None
        report, following = self._context.report, form.exponent + 1 - form.bits + largest.bit_length()
        report.blocks, report.min_worker_cnt, report.quantum = 1, header.worker_cnt, form.quantum
        if not self._mean:
            sums: Array = quanta.astype(np.float32)
            return np.multiply(sums, form.down, sums), following
        means = quanta.astype(np.float64)
        means /= max(header.worker_cnt, 1)
        means *= form.down
        return means.astype(np.float32), following

    def group(self, width: int) -> BlockGroup:
        """The result as that of a group of one block of ``width`` lanes."""
        assert self._header is not None
        group = BlockGroup(range(1), width, self._form.lane)
        group.record_result(0, self._header, memoryview(self._payload))
        return group
