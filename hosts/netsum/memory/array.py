# SPDX-License-Identifier: MIT
"""A region of memory in the network as an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from netsum.collectives.arguments import as_array, wrong_out
from netsum.core.progress import Flow
from netsum.errors import UnsupportedError
from netsum.memory.client import MemoryClient, MemoryWork
from netsum.memory.descriptor import RegionDescriptor
from netsum.memory.endpoint import MemoryStats
from netsum.memory.run import InstructionRun, OnReply, Task
from netsum.memory.spans import Cut, Index, Spans, cut, cut_pair, spans
from netsum.numeric.fixed_point import Array
from netsum.settings import seconds
from netsum.wire.memory import WITHOUT_PAYLOAD, Instruction, LaneType, MemoryHeader

LANES: Final = {np.dtype(lane.dtype): lane for lane in LaneType if lane != LaneType.BYTES}
"""The types that devices compute with."""
ATOMIC: Final = (4, 8)
"""Bytes of an element that can be compared and swapped."""


FlowOf = Callable[[Task], Flow]
"""Makes the flow of a call."""


class Swapped(NamedTuple):
    """The values that a compare_swap found; ``done``: whether they were as expected, and so were swapped."""

    done: bool
    found: Any


class MemoryArray:
    """Memory in the network with a dtype and a shape. Reading, writing and adding a slice takes many instructions. Each is done
    exactly once, and no client sees it half done (it covers 8,192 bytes at most); several of them together are not atomic.

    Every method that ends in ``_async`` returns a :class:`~netsum.Work`; until that is done, arrays that it was given must not
    change, and ``out`` must not be used.
    """

    def __init__(self, client: MemoryClient, descriptor: RegionDescriptor, piece: int, *, owns_client: bool = True) -> None:
        """``piece``: bytes that one instruction may be about, a power of two. Closing the array closes the client if it owns
        it."""
        self.client, self.descriptor, self.piece = client, descriptor, piece
        self.dtype, self.shape = descriptor.numpy_dtype, descriptor.shape
        self.lane = LANES.get(self.dtype, LaneType.BYTES)
        self._owns = owns_client

    @property
    def name(self) -> str:
        return self.descriptor.name

    @property
    def size(self) -> int:
        return self.descriptor.nbytes // self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.descriptor.nbytes

    @property
    def stats(self) -> MemoryStats:
        """Statistics of the client."""
        return self.client.stats

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<netsum memory {self.name!r}: {self.dtype.name} {self.shape}>"

    def view(self, dtype: Any = None, shape: tuple[int, ...] | None = None) -> MemoryArray:
        """The same memory as an array of another type and shape. Close this one, not the view."""
        made = self.descriptor.viewed(None if dtype is None else np.dtype(dtype).name, shape)
        return MemoryArray(self.client, made, self.piece, owns_client=False)

    # What is in it.

    def read_async(self, index: Index = ..., out: Any = None, *, timeout: float | None = None) -> MemoryWork:
        """Read what ``index`` selects, into ``out`` if it is given (an array or a tensor of that shape and dtype)."""
        return self._start(self._reading(index, out), timeout)

    def _reading(self, index: Index, out: Any) -> FlowOf:
        chosen = spans(index, self.shape)
        target: Array | None = None if out is None else plain(out)
        if error := wrong_out(target, chosen.shape, self.dtype.newbyteorder("=")):
            raise error
        shared = target is None or target is out or out.device.type == "cpu"
        straight = target is not None and target.flags.c_contiguous and target.dtype == self.dtype
        into = target if shared and straight else np.empty(chosen.shape, self.dtype)

        def flow(task: Task) -> Flow:
            self._submit(task, Instruction.READ, chosen, into=into)
            yield task.done
            if target is None:
                return into
            if not shared:
                out.copy_(out.new_tensor(into))
            elif target is not into:
                target[...] = into
            return out

        return flow

    def read(self, index: Index = ..., out: Any = None, *, timeout: float | None = None) -> Any:
        """The result of :meth:`read_async`."""
        return self._wait(self._reading(index, out), timeout)

    def __getitem__(self, index: Index) -> Any:
        found = self.read(index)
        return found[()] if not found.shape else found

    def write_async(self, index: Index, x: Any, *, timeout: float | None = None) -> MemoryWork:
        """Write ``x`` (broadcast, and cast if that is safe) where ``index`` says."""
        return self._start(self._changing(Instruction.WRITE, index, x), timeout)

    def write(self, index: Index, x: Any, *, timeout: float | None = None) -> None:
        """Do :meth:`write_async`, and wait for it."""
        self._wait(self._changing(Instruction.WRITE, index, x), timeout)

    def __setitem__(self, index: Index, x: Any) -> None:
        self.write(index, x)

    # Arithmetic, at the memory.

    def add_async(self, index: Index, x: Any, *, timeout: float | None = None) -> MemoryWork:
        """Add ``x``; integers wrap around. An element that is selected twice gets both additions."""
        return self._start(self._changing(Instruction.ADD, index, x), timeout)

    def add(self, index: Index, x: Any, *, timeout: float | None = None) -> None:
        """Do :meth:`add_async`, and wait for it."""
        self._wait(self._changing(Instruction.ADD, index, x), timeout)

    def minimum_async(self, index: Index, x: Any, *, timeout: float | None = None) -> MemoryWork:
        """Make each element the smaller one of itself and ``x``."""
        return self._start(self._changing(Instruction.MIN, index, x), timeout)

    def minimum(self, index: Index, x: Any, *, timeout: float | None = None) -> None:
        """Do :meth:`minimum_async`, and wait for it."""
        self._wait(self._changing(Instruction.MIN, index, x), timeout)

    def maximum_async(self, index: Index, x: Any, *, timeout: float | None = None) -> MemoryWork:
        """Make each element the larger one of itself and ``x``."""
        return self._start(self._changing(Instruction.MAX, index, x), timeout)

    def maximum(self, index: Index, x: Any, *, timeout: float | None = None) -> None:
        """Do :meth:`maximum_async`, and wait for it."""
        self._wait(self._changing(Instruction.MAX, index, x), timeout)

    # Atomics.

    def fetch_add_async(self, index: Index, x: Any, *, timeout: float | None = None) -> MemoryWork:
        """Add ``x``; the result is what was there before. An instruction for each element."""
        return self._start(self._changing(Instruction.FETCH_ADD, index, x), timeout)

    def fetch_add(self, index: Index, x: Any, *, timeout: float | None = None) -> Any:
        """The result of :meth:`fetch_add_async`."""
        return self._wait(self._changing(Instruction.FETCH_ADD, index, x), timeout)

    def compare_swap_async(self, index: Index, expected: Any, wanted: Any, *, timeout: float | None = None) -> MemoryWork:
        """If the element is ``expected``, bit for bit, make it ``wanted``. The result is :class:`Swapped`."""
        return self._start(self._swapping(index, expected, wanted), timeout)

    def _swapping(self, index: Index, expected: Any, wanted: Any) -> FlowOf:
        chosen = spans(index, self.shape)
        if len(chosen.starts) != 1 or chosen.length != 1 or self.dtype.itemsize not in ATOMIC:
            raise UnsupportedError(f"compare_swap takes one element of 4 or 8 bytes; {index!r} of {self!r} is something else")
        both = np.stack([self._values(value, chosen.shape).reshape(()) for value in (expected, wanted)])
        found = np.empty((), self.dtype)
        header = MemoryHeader(Instruction.COMPARE_SWAP, length=both.nbytes, lane=self.lane)

        def flow(task: Task) -> Flow:
            self.client.submit(self.run(task, header, self._addresses(chosen), data=_bytes(both), into=_bytes(found)))
            yield task.done
            return Swapped(found.tobytes() == both[0].tobytes(), found[()])

        return flow

    def compare_swap(self, index: Index, expected: Any, wanted: Any, *, timeout: float | None = None) -> Swapped:
        """The result of :meth:`compare_swap_async`."""
        swapped: Swapped = self._wait(self._swapping(index, expected, wanted), timeout)
        return swapped

    def copy_async(self, to: Index, source: Index, *, timeout: float | None = None) -> MemoryWork:
        """Copy the elements of ``source`` to ``to``, at the memory: equally many neighboring elements, which must not
        overlap."""
        return self._start(self._copying(to, source), timeout)

    def _copying(self, to: Index, source: Index) -> FlowOf:
        there, here = spans(to, self.shape), spans(source, self.shape)
        if len(there.starts) != 1 or len(here.starts) != 1 or there.length != here.length:
            raise UnsupportedError("copy takes two slices of neighboring elements, of the same size")
        start, begin = (int(self._addresses(chosen)[0]) for chosen in (there, here))
        parts = cut_pair(start, begin, there.length * self.dtype.itemsize, self.piece)

        def flow(task: Task) -> Flow:
            for part, sources in parts:
                header = MemoryHeader(Instruction.COPY, length=part.length, key=self.descriptor.key)
                self.client.submit(self._run(task, header, part, arguments=sources))
            yield task.done

        return flow

    def copy(self, to: Index, source: Index, *, timeout: float | None = None) -> None:
        """Do :meth:`copy_async`, and wait for it."""
        self._wait(self._copying(to, source), timeout)

    def close(self) -> None:
        """Close the client, if it belongs to this array."""
        if self._owns:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For the other parts of this package.

    def run(
        self,
        task: Task,
        header: MemoryHeader,
        addresses: NDArray[np.uint64],
        *,
        data: NDArray[np.uint8] | None = None,
        into: NDArray[np.uint8] | None = None,
        offsets: NDArray[np.int64] | None = None,
        arguments: NDArray[np.uint64] | None = None,
        segments: NDArray[np.uint64] | None = None,
        on_reply: OnReply | None = None,
    ) -> InstructionRun:
        """Instructions about this region: see :class:`~netsum.memory.run.InstructionRun`. The key is added."""
        return InstructionRun(
            task,
            self.name,
            header._replace(key=self.descriptor.key),
            addresses,
            data=data,
            into=into,
            offsets=offsets,
            arguments=arguments,
            segments=segments,
            on_reply=on_reply,
            spread=(self.descriptor.granule, self.descriptor.shards),
            positions=self.client.endpoint.positions(self.descriptor.id, self.descriptor.shards),
        )

    def _run(
        self,
        task: Task,
        header: MemoryHeader,
        part: Cut,
        data: NDArray[np.uint8] | None = None,
        into: NDArray[np.uint8] | None = None,
        *,
        arguments: NDArray[np.uint64] | None = None,
    ) -> InstructionRun:
        offsets = None
        if part.straight and len(part.offsets):
            first, size = int(part.offsets[0]), len(part.offsets) * header.length
            data = None if data is None else data[first : first + size]
            into = None if into is None else into[first : first + size]
        else:
            offsets = part.offsets
        return self.run(task, header, part.addresses, data=data, into=into, offsets=offsets, arguments=arguments)

    def _addresses(self, chosen: Spans) -> NDArray[np.uint64]:
        starts = chosen.starts * self.dtype.itemsize
        return np.uint64(self.descriptor.base) + starts.astype(np.uint64)

    def _cuts(self, chosen: Spans) -> list[Cut]:
        if not len(chosen.starts):
            return []
        return cut(self._addresses(chosen), chosen.length * self.dtype.itemsize, self.piece)

    def _submit(
        self, task: Task, instruction: Instruction, chosen: Spans, data: Array | None = None, into: Array | None = None
    ) -> None:
        sent, got = (None if array is None else _bytes(array) for array in (data, into))
        lane = LaneType.BYTES if instruction in WITHOUT_PAYLOAD else self.lane
        for part in self._cuts(chosen):
            header = MemoryHeader(instruction, length=part.length, key=self.descriptor.key, lane=lane)
            self.client.submit(self._run(task, header, part, sent, got))

    def _changing(self, instruction: Instruction, index: Index, x: Any) -> FlowOf:
        if instruction != Instruction.WRITE and self.lane == LaneType.BYTES:
            known = ", ".join(dtype.name for dtype in LANES)
            raise UnsupportedError(f"memory computes with {known}; region {self.name!r} is {self.dtype.name}")
        chosen = spans(index, self.shape)
        data = self._values(x, chosen.shape)
        fetches = instruction == Instruction.FETCH_ADD
        if fetches:
            chosen = chosen.singly()
        into = np.empty(chosen.shape, self.dtype) if fetches else None

        def flow(task: Task) -> Flow:
            self._submit(task, instruction, chosen, data, into)
            yield task.done
            return into if into is None or into.shape else into[()]

        return flow

    def _values(self, x: Any, shape: tuple[int, ...]) -> Array:
        """``x`` in the memory's type and byte order, contiguous, of this shape."""
        given = as_array(plain(x))
        scalar = isinstance(x, bool | int | float)
        if not scalar and not np.can_cast(given.dtype, self.dtype, "same_kind"):
            raise UnsupportedError(f"x is {given.dtype}, the region {self.dtype.name}: convert it first")
        try:
            made = np.asarray(x, self.dtype) if scalar else given.astype(self.dtype, copy=False)
            whole = np.broadcast_to(made, shape)
        except (ValueError, OverflowError) as error:
            raise UnsupportedError(f"x does not fit {self.dtype.name} {shape}: {error}") from None
        return np.ascontiguousarray(whole).reshape(shape)

    def _start(self, flow: FlowOf, timeout: float | None) -> MemoryWork:
        return self.client.start(flow, None if timeout is None else seconds(timeout), background=True)

    def _wait(self, flow: FlowOf, timeout: float | None) -> Any:
        return self.client.start(flow, None if timeout is None else seconds(timeout), background=False).wait()


def _bytes(array: Array) -> NDArray[np.uint8]:
    flat: NDArray[np.uint8] = array.reshape(-1).view(np.uint8)
    return flat


def plain(x: Any) -> Any:
    """A torch tensor as the array that shares its memory (a copy if it is not on the CPU); anything else as it is."""
    if hasattr(x, "detach") and hasattr(x, "numpy"):
        return x.detach().cpu().numpy()
    return x
