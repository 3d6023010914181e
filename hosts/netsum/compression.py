# SPDX-License-Identifier: MIT
"""Sums of gradients in few bytes, on top of a communicator's own calls, for those who compare or who have narrow links.

A compressor belongs to one communicator, and is called on every rank in the same order, like the communicator itself; the ranks
compare its calls (operation, shape, type and the compressor's arguments). What a rank's contribution lost is added to its next
one of the same shape (error feedback; Seide et al., Interspeech 2014), so that over many calls nothing is lost. A resync drops
it. Compressors wait for every rank also in jobs that degrade. Floats are taken as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsum.collectives.arguments import as_array
from netsum.collectives.call import Call, Context
from netsum.collectives.elementwise import lanewise
from netsum.collectives.history import Fingerprint
from netsum.collectives.negotiation import Negotiation, negotiate
from netsum.collectives.nonfinite import not_finite
from netsum.collectives.options import ARITHMETIC, ReductionOptions
from netsum.collectives.partition import Layout
from netsum.collectives.pipeline import BlockPipeline
from netsum.collectives.reductions import reduce_array
from netsum.communicator import Communicator
from netsum.core.progress import Flow, nested
from netsum.errors import CallError, ResultLostError, UnsupportedError
from netsum.numeric.fixed_point import (
    FLOATS,
    INTEGERS,
    Array,
    Counts,
    Numbers,
    OwnLanes,
    decode_integers,
    encode_integers,
    pick,
    type_name,
)
from netsum.wire.schema import CHUNK_BYTES, Lane, Op

Floats = NDArray[np.float32]

WIDTH: Final = 1024
"""Most values that are rotated together."""
_BITS: Final = (4, 8)


class ErrorFeedback:
    """The residuals of contributions, by a key of the caller's; a residual is added to the next contribution of that key. With
    ``on`` False nothing is kept.

    Nothing is kept from before a resync: a rank may then have contributed to a sum whose result it does not have, or have a
    result whose step is repeated, and what it kept would count twice.
    """

    def __init__(self, comm: Communicator, on: bool = True) -> None:
        self.on = on
        self._comm = comm
        self._history = comm.history
        self._rests: dict[Hashable, Array] = {}

    def begin(self, key: Hashable, array: Array) -> tuple[Array, Callable[[Array], None]]:
        """Return ``array`` with what was kept, if that has the same shape (a new array then, of the same type), and the function
        that keeps what this contribution has lost."""
        if self._history is not self._comm.history:
            self._history, self._rests = self._comm.history, {}
        residuals = self._rests

        def keep(residual: Array) -> None:
            if self.on:
                residuals[key] = residual

        residual = residuals.get(key)
        if residual is None or residual.shape != array.shape:
            return array, keep
        return (array + residual).astype(array.dtype, copy=False), keep


class _Contribution:
    """A rank's array, its values as flat float32 with what was kept of earlier ones, and why they cannot be sent, if so."""

    def __init__(self, rank: int, x: ArrayLike, op: str, feedback: ErrorFeedback, most: int = 1) -> None:
        """``most``: the most often that values are added, which must not overflow."""
        if op not in ARITHMETIC:
            raise UnsupportedError(f"a compressed reduction is a {' or '.join(ARITHMETIC)}, not {op!r}")
        given = as_array(x)
        if (name := type_name(given.dtype)) not in FLOATS | INTEGERS and name != "bool":
            raise UnsupportedError(f"dtype {given.dtype} cannot be compressed; give floats")
        self.op, self.shape, self.nbytes = op, given.shape, given.nbytes
        with np.errstate(over="ignore"):
            values, self.keep = feedback.begin(given.shape, np.asarray(given, np.float32).reshape(-1))
            summed = (values * np.float32(most)).reshape(given.shape)
        self.values: Floats = values
        self.error: CallError | None = not_finite(rank, given) or not_finite(
            rank, summed, " as float32, with what earlier calls have lost"
        )
        self._type = name

    def fingerprint(self, name: str, *options: str) -> Fingerprint:
        """The values that must be equal on all ranks."""
        return (name, self._type, self.shape, (self.op, *options))

    def rows(self, width: int) -> Floats:
        """The values in rows of this width, the last filled up with zeros."""
        rows = np.zeros((-(-self.values.size // width), width), np.float32)
        rows.reshape(-1)[: self.values.size] = self.values
        return rows

    def values_of(self, rows: Floats) -> Floats:
        """The inverse of :meth:`rows`; a copy."""
        return rows.reshape(-1)[: self.values.size].copy()


class Rotated:
    """Uniform quantization of randomly rotated values, which the network sums as they are: THC (Li et al., NSDI 2024).

    Values are rotated by a random Hadamard transform, after which they are spread like a normal distribution whatever they were;
    the ranks agree on a range for each ``WIDTH`` of them, clip to it, and round at random to one of 2L + 1 levels, with
    L = floor((2^bits - 1) / 2n) for n ranks: levels add up in ``bits`` bits without a carry.

    Args:
        comm: the communicator.
        bits: 8 or 4 on the wire for each value, up and down.
        error_feedback: add what was lost to the next call of the same shape.
        seed: of the rotations and of the rounding, 0 or more; the same on all ranks.

    Raises UnsupportedError if there are too many ranks for so few bits (8: 127, 4: 7).
    """

    def __init__(self, comm: Communicator, bits: int = 8, *, error_feedback: bool = True, seed: int = 0) -> None:
        if bits not in _BITS:
            raise UnsupportedError(f"bits is {bits!r}, not one of {', '.join(map(str, _BITS))}")
        if seed < 0:
            raise UnsupportedError(f"seed is {seed!r}, and must be 0 or more")
        self._comm, self._bits, self._seed = comm, bits, int(seed)
        self._feedback = ErrorFeedback(comm, error_feedback)
        self.levels = (2**bits - 1) // (2 * comm.size)
        if not self.levels:
            raise UnsupportedError(f"{comm.size} ranks are too many for a sum in {bits} bits")
        # In standard deviations: the fewer levels there are, the narrower a range they must cover well.
        self._clip = np.float32(np.sqrt(2 * np.log(4 * self.levels)))

    def allreduce(self, x: ArrayLike, op: str = "mean", timeout: float | None = None) -> Floats:
        """The sum or mean of ``x`` over all ranks that the job has left; approximate, the same bits on all ranks.

        Errors are those of :meth:`Communicator.allreduce`. Cost: three round trips, with 4 bytes for each ``WIDTH`` values and
        ``bits`` / 8 for each value.
        """
        return self._comm.compose("rotated", partial(self._prepare, x, op), timeout)

    def _prepare(self, x: ArrayLike, op: str) -> Call[Floats]:
        # Rotated there and back, at most WIDTH * WIDTH values of each rank add up.
        mine = _Contribution(self._comm.rank, x, op, self._feedback, most=WIDTH * WIDTH * self._comm.size)
        return Call("rotated", partial(self._flow, mine=mine), mine.nbytes, error=mine.error)

    def _flow(self, context: Context, mine: _Contribution) -> Flow:
        # What is drawn follows only from what the ranks agree on: the epoch, and the number of the call in it.
        number = np.array([*divmod(self._comm.descriptor.epoch, 1 << 16), context.gen], np.uint16)
        fingerprint = mine.fingerprint("rotated", f"{self._bits} bits", f"seed {self._seed}")
        agreed: Negotiation = yield from negotiate(context, fingerprint, number)
        draw = [self._seed, *agreed.values.tolist()]
        per_chunk = CHUNK_BYTES * 8 // self._bits
        # A block has whole rows, so that the same ranks have contributed to all values that are rotated together.
        whole = context.block_bytes // CHUNK_BYTES * per_chunk
        width = min(WIDTH, whole & -whole, 1 << max(3, (mine.values.size - 1).bit_length()))
        signs = np.random.default_rng(draw).choice(np.array([-1, 1], np.float32), width)
        rows = _hadamard(mine.rows(width) * signs)
        limits = yield from nested(self._limits(context, rows, agreed))
        pipeline = BlockPipeline(context, Layout.whole(rows.size), Op.SUM, Lane.L8, per_chunk)
        steps = np.ones((pipeline.partition.number, whole // width, 1), np.float32)
        steps.reshape(-1)[: len(rows)] = np.where(limits > 0, limits / np.float32(self.levels), np.float32(1))
        lost = np.zeros((*steps.shape[:2], width), np.float32)
        dither = np.random.default_rng([*draw, 1 + context.rank])
        lanes = _Levels(context.workers, self._bits, self.levels, mine.op == "mean", steps, dither, lost)
        summed = yield from pipeline.send(rows.reshape(-1), lanes, agreed)
        if context.report.lost:
            raise ResultLostError(context.report)
        mine.keep(mine.values_of(_hadamard(lost.reshape(-1, width)) * signs))
        return mine.values_of(_hadamard(summed.reshape(-1, width)) * signs).reshape(mine.shape)

    def _limits(self, context: Context, rows: Floats, agreed: Negotiation) -> Flow:
        """The flow that agrees on the range of each row."""
        with np.errstate(over="ignore"):
            own = np.minimum(np.abs(rows).max(axis=1), self._clip * np.sqrt((rows**2).mean(axis=1)))
        pipeline = BlockPipeline(context, Layout.whole(own.size), Op.MAX, Lane.L32)
        return (yield from pipeline.send(own, OwnLanes(own.dtype, order=True), agreed))


@dataclass(frozen=True)
class _Levels:
    """Sums or means of values in whole ``steps``, of which each row of a block has its own: at most ``levels`` of them. They are
    bytes, or two to a byte: 16 a + b. So is the sum, in which b is at most 7 in magnitude for any number of ranks, and which
    therefore tells the two apart. What rounding and clipping take away goes into ``lost``."""

    workers: int
    bits: int
    levels: int
    mean: bool
    steps: Floats
    dither: np.random.Generator
    lost: Floats

    @property
    def lane(self) -> Lane:
        return Lane.L8

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def encode(self, rows: Array, numbers: Numbers, _out: Array | None = None) -> Array:
        steps = pick(self.steps, numbers)
        values = rows.reshape(*steps.shape[:2], -1)
        levels = np.floor(values / steps + self.dither.random(values.shape, np.float32))
        levels = np.clip(levels, -self.levels, self.levels)
        pick(self.lost, numbers)[...] = values - levels * steps
        signed = levels.astype(np.int8).reshape(len(rows), -1)
        if self.bits == 4:
            signed = signed[:, ::2] * np.int8(16) + signed[:, 1::2]
        return encode_integers(signed, self.lane, self.workers)

    def decode(self, lanes: Array, numbers: Numbers, data_cnt: Counts, worker_cnt: Counts, _out: Array | None = None) -> Array:
        sums = decode_integers(lanes, data_cnt, self.lane, self.workers)
        if self.bits == 4:
            low = ((sums + np.int8(8)) & np.int8(15)) - np.int8(8)
            sums = np.stack([(sums - low) >> 4, low], axis=2)
        steps = pick(self.steps, numbers)
        values = sums.reshape(*steps.shape[:2], -1) * steps
        if self.mean:
            values /= np.maximum(worker_cnt, 1).astype(np.float32)[:, None, None]
        return values.reshape(len(lanes), -1)


class TopBlocks:
    """The blocks of values that are largest on some rank, and nothing of the others; what is not sent waits for its turn.

    Each rank marks its largest blocks (by their norm); the network joins the marks, and sums the marked blocks of all ranks,
    packed together. Top-k sparsification (Stich et al., NeurIPS 2018), by blocks, as OmniReduce sends them (SIGCOMM 2021).

    Args:
        comm: the communicator.
        share: of the blocks that a rank marks, above 0 and at most 1; the same on all ranks.
        block: values in one; the same on all ranks.
    """

    def __init__(self, comm: Communicator, share: float = 0.01, *, block: int = 16) -> None:
        if not 0 < share <= 1 or block < 1:
            raise UnsupportedError(f"share is {share!r} and block {block!r}: above 0 and at most 1, and at least 1")
        self._comm, self._share, self._block = comm, share, block
        self._feedback = ErrorFeedback(comm)

    def allreduce(self, x: ArrayLike, op: str = "mean", timeout: float | None = None) -> Floats:
        """The sum or mean of ``x`` over all ranks where blocks were marked, zeros elsewhere; the same bits on all ranks.

        Errors are those of :meth:`Communicator.allreduce`. Cost: two calls of it, with a bit for each block, and 4 bytes
        for each value of the marked ones (between ``share`` and n times that of all).
        """
        return self._comm.compose("top blocks", partial(self._prepare, x, op), timeout)

    def _prepare(self, x: ArrayLike, op: str) -> Call[Floats]:
        mine = _Contribution(self._comm.rank, x, op, self._feedback)
        return Call("top blocks", partial(self._flow, mine=mine), mine.nbytes, error=mine.error)

    def _flow(self, context: Context, mine: _Contribution) -> Flow:
        rows = mine.rows(self._block)
        largest = np.zeros(len(rows), np.bool_)
        if count := int(np.ceil(self._share * len(rows))):
            with np.errstate(over="ignore"):
                norms = (rows**2).sum(axis=1)
            largest[np.argpartition(-norms, count - 1)[:count]] = True
        fingerprint = mine.fingerprint("top blocks", f"share {self._share}", f"block {self._block}")
        marks, options = np.packbits(largest), ReductionOptions("or", on_late="wait")
        (joined,) = yield from nested(lanewise(context, marks, Layout.whole(marks.size), options, fingerprint, None))
        marked = np.unpackbits(joined, count=len(rows)).astype(np.bool_)
        sent, options = rows[marked], ReductionOptions(mine.op, on_late="wait")
        layout = Layout.whole(sent.size)
        (summed,) = yield from reduce_array(context, "top blocks", sent, layout, options, self._comm.history)
        result = np.zeros_like(rows)
        result[marked] = summed.reshape(sent.shape)
        rows[marked] = 0
        mine.keep(mine.values_of(rows))
        return mine.values_of(result).reshape(mine.shape)


def _hadamard(rows: Floats) -> Floats:
    """The orthonormal Walsh-Hadamard transform of each row, of a power of two values; its own inverse."""
    count, width = rows.shape
    half = 1
    while half < width:
        pairs = rows.reshape(count, width // (2 * half), 2, half)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        rows = np.stack([first + second, first - second], axis=2).reshape(count, width)
        half *= 2
    return np.asarray(rows / np.sqrt(np.float32(width)), np.float32)
