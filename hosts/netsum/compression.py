"""Sums of gradients in few bytes, on top of a communicator's own calls, for those who compare or who have narrow links.

A compressor belongs to one communicator, and is called on every rank in the same order, like the communicator itself. What a
rank's contribution lost is added to its next one of the same shape (error feedback; Seide et al., Interspeech 2014), so that
over many calls nothing is lost. They wait for every rank also in jobs that degrade. Floats are taken as float32.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsum.collectives.options import ARITHMETIC
from netsum.communicator import Communicator
from netsum.errors import Unsupported
from netsum.fixed_point import Array

Floats = NDArray[np.float32]

WIDTH: Final = 1024
"""Values that are rotated together."""
_BITS: Final = (4, 8)


class ErrorFeedback:
    """What contributions have lost, by a key of the caller's; it is added to the next contribution of that key. With ``on`` False
    nothing is kept."""

    def __init__(self, on: bool = True) -> None:
        self.on = on
        self._rests: dict[Hashable, Array] = {}

    def added(self, key: Hashable, array: Array) -> Array:
        """``array`` with what was kept, if that has the same shape; a new array then, of the same type."""
        rest = self._rests.get(key)
        if rest is None or rest.shape != array.shape:
            return array
        return (array + rest).astype(array.dtype, copy=False)

    def keep(self, key: Hashable, rest: Array) -> None:
        if self.on:
            self._rests[key] = rest


def _with_rest(feedback: ErrorFeedback, x: ArrayLike) -> tuple[Floats, tuple[int, ...]]:
    """The values of ``x``, flat, with what was kept of such arrays; and their shape."""
    array = np.asarray(x, np.float32)
    return feedback.added(array.shape, array.reshape(-1)), array.shape


def _check(op: str) -> None:
    if op not in ARITHMETIC:
        raise Unsupported(f"a compressed reduction is a {' or '.join(ARITHMETIC)}, not {op!r}")


class Rotated:
    """Uniform quantisation of randomly rotated values, which the network sums as they are: THC (Li et al., NSDI 2024).

    Values are rotated by a random Hadamard transform, after which they are spread like a normal distribution whatever they were;
    the ranks agree on a range for each ``WIDTH`` of them, clip to it, and round at random to one of 2L + 1 levels, with
    L = floor((2^bits - 1) / 2n) for n ranks: levels add up in ``bits`` bits without a carry.

    Args:
        comm: the communicator.
        bits: 8 or 4 on the wire for each value, up and down.
        error_feedback: add what was lost to the next call of the same shape.
        seed: of the rotations and of the rounding; the same on all ranks.

    Raises Unsupported if there are too many ranks for so few bits (8: 127, 4: 7).
    """

    def __init__(self, comm: Communicator, bits: int = 8, *, error_feedback: bool = True, seed: int = 0) -> None:
        if bits not in _BITS:
            raise Unsupported(f"bits is {bits!r}, not one of {', '.join(map(str, _BITS))}")
        self._comm, self._bits = comm, bits
        self._feedback = ErrorFeedback(error_feedback)
        self.levels = (2**bits - 1) // (2 * comm.size)
        if not self.levels:
            raise Unsupported(f"{comm.size} ranks are too many for a sum in {bits} bits")
        self._rotations = np.random.default_rng(seed)
        self._dither = np.random.default_rng([seed, comm.rank])
        # In standard deviations: the fewer levels there are, the narrower a range they must cover well.
        self._clip = np.float32(np.sqrt(2 * np.log(4 * self.levels)))

    def allreduce(self, x: ArrayLike, op: str = "mean", timeout: float | None = None) -> Floats:
        """The sum or mean of ``x`` over all ranks; approximate, the same bits on all ranks.

        Errors are those of :meth:`Communicator.allreduce`. Cost: two calls of it, with 4 bytes for each ``WIDTH`` values and
        ``bits`` / 8 for each value.
        """
        _check(op)
        flat, shape = _with_rest(self._feedback, x)
        width = min(WIDTH, 1 << max(3, (flat.size - 1).bit_length()))
        signs = self._rotations.choice(np.array([-1, 1], np.float32), width)
        rows = np.zeros((-(-flat.size // width), width), np.float32)
        rows.reshape(-1)[: flat.size] = flat
        with np.errstate(over="ignore", invalid="ignore"):
            rotated = _hadamard(rows * signs)
            own = np.minimum(np.abs(rotated).max(axis=1), self._clip * np.sqrt((rotated**2).mean(axis=1)))
        # NaN and infinities are in these, too: then this call raises NotFinite here, and Aborted elsewhere.
        limits = self._comm.allreduce(own, "max", late="wait", timeout=timeout)[:, None]
        step = np.where(limits > 0, limits / np.float32(self.levels), np.float32(1))
        numbers = np.floor(rotated / step + self._dither.random(rotated.shape, np.float32))
        numbers = np.clip(numbers, -self.levels, self.levels).astype(np.int8)
        total = self._add(numbers, timeout).astype(np.float32)
        given = _hadamard(numbers * step) * signs
        self._feedback.keep(shape, flat - given.reshape(-1)[: flat.size])
        result: Floats = (_hadamard(total * step) * signs).reshape(-1)[: flat.size].reshape(shape)
        if op == "mean":
            result /= np.float32(self._comm.size)
        return result

    def _add(self, numbers: NDArray[np.int8], timeout: float | None) -> NDArray[np.int64]:
        """The sums of all ranks' numbers, ``bits`` bits each on the wire."""
        options: dict[str, Any] = {"late": "wait", "timeout": timeout}
        if self._bits == 8:
            return self._comm.allreduce(numbers, "sum", **options).astype(np.int64)
        # Two to a byte, none negative, so that neither carries into the other; the byte is centred, which keeps it in 8 bits.
        workers, centre = self._comm.size, 255 // (2 * self._comm.size)
        pairs = (numbers + np.int8(self.levels)).astype(np.int16).reshape(-1, 2)
        packed = (pairs[:, 0] * 16 + pairs[:, 1] - centre).astype(np.int8)
        sums = self._comm.allreduce(packed, "sum", **options).astype(np.int64) + workers * centre
        both: NDArray[np.int64] = np.stack([sums >> 4, sums & 15], axis=1) - workers * self.levels
        return both.reshape(numbers.shape)


class TopBlocks:
    """The blocks of values that are largest on some rank, and nothing of the others; what is not sent waits for its turn.

    Each rank marks its largest blocks (by their norm); the network joins the marks, and sums the marked blocks of all ranks,
    packed together. Top-k sparsification (Stich et al., NeurIPS 2018), by blocks, as OmniReduce sends them (SIGCOMM 2021).

    Args:
        comm: the communicator.
        share: of the blocks that a rank marks, above 0 and at most 1.
        block: values in one.
    """

    def __init__(self, comm: Communicator, share: float = 0.01, *, block: int = 16) -> None:
        if not 0 < share <= 1 or block < 1:
            raise Unsupported(f"share is {share!r} and block {block!r}: above 0 and at most 1, and at least 1")
        self._comm, self._share, self._block = comm, share, block
        self._feedback = ErrorFeedback()

    def allreduce(self, x: ArrayLike, op: str = "mean", timeout: float | None = None) -> Floats:
        """The sum or mean of ``x`` over all ranks where blocks were marked, zeros elsewhere; the same bits on all ranks.

        Errors are those of :meth:`Communicator.allreduce`. Cost: two calls of it, with a bit for each block, and 4 bytes
        for each value of the marked ones (between ``share`` and n times that of all).
        """
        _check(op)
        flat, shape = _with_rest(self._feedback, x)
        rows = np.zeros((-(-flat.size // self._block), self._block), np.float32)
        rows.reshape(-1)[: flat.size] = flat
        largest = np.zeros(len(rows), np.bool_)
        if count := int(np.ceil(self._share * len(rows))):
            with np.errstate(over="ignore"):
                norms = np.nan_to_num((rows**2).sum(axis=1), nan=np.inf)  # so that a NaN is sent, and refused
            largest[np.argpartition(-norms, count - 1)[:count]] = True
        joined = self._comm.allreduce(np.packbits(largest), "or", late="wait", timeout=timeout)
        marked = np.unpackbits(joined, count=len(rows)).astype(np.bool_)
        result = np.zeros_like(rows)
        result[marked] = self._comm.allreduce(rows[marked], op, late="wait", timeout=timeout)
        rows[marked] = 0
        self._feedback.keep(shape, rows.reshape(-1)[: flat.size].copy())
        whole: Floats = result.reshape(-1)[: flat.size].reshape(shape)
        return whole


def _hadamard(rows: Floats) -> Floats:
    """The orthonormal Walsh-Hadamard transform of each row, of a power of two values; its own inverse."""
    count, width = rows.shape
    half = 1
    while half < width:
        pairs = rows.reshape(count, -1, 2, half)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        rows = np.stack([first + second, first - second], axis=2).reshape(count, width)
        half *= 2
    return np.asarray(rows / np.sqrt(np.float32(width)), np.float32)
