"""A sum or mean of float32 that fits into one block, at the exponent predicted from the last call of the same kind.

On the wire it is what :mod:`netsum.collectives.predicted_sum` would send. But in a small call most of the time would go into
arrays of one element, so here a block's exponent is a number. Whatever is not plain is left to the other: values of other types,
extreme ones or ones that do not fit, and results that raise a doubt.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from netsum.collectives.agreement import begin_unopened
from netsum.collectives.call import Context
from netsum.collectives.history import Signature
from netsum.collectives.options import Options
from netsum.collectives.sending import Group, Sender
from netsum.fixed_point import HOST_LANES, SIGNED_LANES, WIRE_LANES, Array, bias, quantum, scale_bits
from netsum.window.block import Block
from netsum.wire.codec import Header
from netsum.wire.schema import EVERYONE, Lane, Op, Status
from netsum.work import Flow

_MOST_BITS: Final = 96
"""A scale of up to 2^96 neither underflows nor overflows: lanes have 32 bits, float32's exponents go to 127."""


class _Scale(NamedTuple):
    """The numbers that a block's exponent stands for: ``up`` makes quanta of values, ``down`` values of quanta."""

    lane: Lane
    exponent: int
    bits: int
    up: Any
    down: Any
    bias: Any
    quantum: float


@lru_cache(maxsize=256)  # training makes the same calls again and again
def _scale(lane: Lane, workers: int, exponent: int) -> _Scale | None:
    bits = scale_bits(lane, workers)
    shift = bits - exponent
    if lane > Lane.L32 or not 0 <= shift <= _MOST_BITS:
        return None
    up, down = np.float32(math.ldexp(1.0, shift)), np.float32(math.ldexp(1.0, -shift))
    biased = HOST_LANES[lane].type(bias(lane, workers))
    return _Scale(lane, exponent, bits, up, down, biased, quantum(exponent, lane, workers))


class OneBlock:
    """One sum under way."""

    def __init__(self, context: Context, values: Array, sender: Sender, scale: _Scale, *, mean: bool) -> None:
        self._context = context
        self._values = values
        self._sender = sender
        self._scale = scale
        self._mean = mean
        self._header: Header | None = None
        self._payload = b""

    @classmethod
    def of(cls, context: Context, array: Array, options: Options, sender: Sender, exponent: int) -> OneBlock | None:
        """None: the call is not plain."""
        scale = _scale(options.float_lane(array.dtype), context.workers, exponent)
        plain = options.rest is None and not options.propagates and options.rounding == "nearest"
        if scale is None or not plain or array.dtype != np.float32 or sender.cut.owner != [EVERYONE]:
            return None
        values = array.reshape(-1)
        largest = float(np.maximum.reduce(np.abs(values)))
        if not math.isfinite(largest) or (largest and math.frexp(largest)[1] > exponent):
            return None
        return cls(context, values, sender, scale, mean=options.op == "mean")

    def send(self, signature: Signature) -> Flow:
        """Send the block; ends when it has its result."""
        context = self._context
        begin_unopened(context, signature)
        block = Block(context.gen, Op.SUM, self._scale.lane, self._encoded(), firm=context.firm, final=True)
        block.call, block.on_result = context.call, self._record_result
        context.window.submit(block)
        yield lambda: self._header is not None

    def _encoded(self) -> memoryview:
        values, scale, lane = self._values, self._scale, self._scale.lane
        quanta = values * scale.up
        np.rint(quanta, out=quanta)
        lanes = quanta.astype(SIGNED_LANES[lane]).view(HOST_LANES[lane])
        lanes += scale.bias
        if more := (self._sender.cut.sizes[0] >> lane) - len(lanes):
            lanes = np.append(lanes, np.full(more, scale.bias, lanes.dtype))
        wire: Array = lanes.astype(WIRE_LANES[lane])
        return wire.view(np.uint8).data

    def _record_result(self, header: Header, payload: memoryview) -> None:
        self._header, self._payload = header, bytes(payload)

    def result(self, smallest: int) -> tuple[Array, int] | None:
        """The sum or mean, and the exponent for the next call. None if it is doubtful: refused, or below ``smallest`` quanta."""
        header, scale, lane, count = self._header, self._scale, self._scale.lane, len(self._values)
        assert header is not None
        if header.status != Status.OK or header.payload_bytes < count << lane:
            return None
        lanes = np.frombuffer(self._payload, WIRE_LANES[lane], count).astype(HOST_LANES[lane])
        lanes -= scale.bias * HOST_LANES[lane].type(header.data_cnt)
        quanta = lanes.view(SIGNED_LANES[lane])
        largest = int(np.maximum.reduce(np.abs(quanta)))
        if largest < smallest:
            return None
        report = self._context.report
        report.blocks, report.src_cnt_min = 1, header.src_cnt
        report.note_quantum(scale.quantum)
        values: Array = quanta.astype(np.float64 if self._mean else np.float32)
        if self._mean:
            values /= max(header.src_cnt, 1)
        values *= scale.down
        return values.astype(np.float32, copy=False), scale.exponent + 1 - scale.bits + largest.bit_length()

    def group(self) -> Group:
        """The result as that of a group of one block."""
        assert self._header is not None
        group = Group(range(1), self._sender.cut.width, self._scale.lane)
        group.record_result(0, self._header, memoryview(self._payload))
        return group
