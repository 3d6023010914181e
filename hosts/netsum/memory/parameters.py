# SPDX-License-Identifier: MIT
"""A model whose optimizer is at the memory: workers push gradients and get parameters back (docs/memory.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from netsum.collectives.call import part_of
from netsum.communicator import Communicator
from netsum.core.progress import Flow
from netsum.errors import AbortedError, InstructionRejectedError, UnsupportedError
from netsum.memory.array import FlowOf, MemoryArray
from netsum.memory.blocks import Blocks, Settings
from netsum.memory.descriptor import RegionDescriptor
from netsum.memory.group import InstructionGroup
from netsum.memory.opening import open as open_region
from netsum.memory.run import Task
from netsum.wire.memory import Instruction, LaneType, MemoryHeader

Floats = NDArray[np.float32]

_QUERY: Final = 0
_LEAVE: Final = 2**32 - 1
LAST_STEP: Final = np.uint64(2**32 - 2)


class PushResult(NamedTuple):
    """The outcome of a push. ``number``: steps made so far (mode synchronous), or of this worker. ``counted``: gradients that the
    step is made of; 0: this worker's came too late for a part of the model, and was not used there."""

    number: int
    counted: int


class Parameters:
    """The parameters of one model, in a region of kind "parameters". Every worker has one of these, with the same shapes."""

    def __init__(
        self,
        memory: MemoryArray,
        layers: Sequence[Floats],
        *,
        worker: int = 0,
        comm: Communicator | None = None,
        owns: bool = False,
    ) -> None:
        """See :func:`parameters`. ``owns``: closing this closes the region."""
        descriptor = memory.descriptor
        if descriptor.kind != "parameters":
            raise UnsupportedError(f"region {memory.name!r} is of kind {descriptor.kind!r}; an optimizer needs kind 'parameters'")
        options = descriptor.options
        self.mode = str(options.get("mode", "synchronous"))
        self.workers = int(options.get("workers", 1))
        self.memory, self.layers, self.worker, self._comm, self._owns = memory, list(layers), worker, comm, owns
        if comm is not None:
            self.worker = 0
            self._check_summed()
        if not 0 <= self.worker < self.workers:
            raise UnsupportedError(f"worker is 0 to {self.workers - 1}, not {worker}")
        self._blocks = Blocks(memory, [_checked(layer, number) for number, layer in enumerate(self.layers)])
        self._steps = np.zeros(self._blocks.number, np.uint64)
        self._group = InstructionGroup(memory, wanted=self.workers > 1 and self.mode == "synchronous")

    def _check_summed(self) -> None:
        if self.workers != 1 or self.mode != "synchronous":
            raise UnsupportedError(
                f"where the switch sums the gradients, one worker pushes them; region {self.memory.name!r} was made for "
                f"{self.workers} in mode {self.mode}"
            )

    @property
    def _pushes(self) -> bool:
        return self._comm is None or self._comm.rank == 0

    # Calls

    def begin(self, *, timeout: float | None = None) -> int:
        """Bring the memory and ``layers`` together: where no step was made yet, worker 0 writes its own, and else all read what
        is there. Returns the number of steps. With a communicator, all ranks call it, and all have the same layers afterwards.

        Where steps are not made of all workers' gradients, see to it that worker 0 has begun before the others push.
        """
        if self._pushes:
            self._wait(self._beginning, timeout)
        if self._comm is not None:
            self._share(timeout)
        return self.number

    @property
    def number(self) -> int:
        return int(self._steps.max())

    def step(
        self, gradients: Sequence[Any], settings: Sequence[Settings] | None = None, *, timeout: float | None = None
    ) -> PushResult:
        """Push this worker's gradients, one for each layer, and wait for the parameters that come of the step, which are put into
        ``layers``.

        Where the last step was made in a part of the model only, because workers died in it, this makes it in the rest.

        ``settings``: for each layer, learning rate, weight decay and trust coefficient of this step, as many as differ from the
        region's options; all workers give the same. A trust coefficient of 0 leaves a layer out of LARS's and LAMB's scaling.
        """
        if self.mode == "elastic":
            raise UnsupportedError("in mode elastic, workers step by themselves and call average()")
        flat = self._blocks.joined(gradients)
        if self._comm is not None:
            return self._summed_step(flat, settings, timeout)
        return self._push(flat, settings, timeout)

    def average(self, *, timeout: float | None = None) -> PushResult:
        """Mode elastic: the layers and the memory's parameters move towards each other."""
        if self.mode != "elastic":
            raise UnsupportedError(f"average() is of mode elastic; region {self.memory.name!r} has mode {self.mode}")
        return self._push(self._blocks.joined(self.layers), None, timeout)

    def load(self, *, timeout: float | None = None) -> None:
        """Read the memory's parameters into ``layers``."""
        self._wait(self._loading, timeout)

    def leave(self, *, timeout: float | None = None) -> None:
        """This worker pushes no more: no worker waits for it."""
        self._wait(lambda task: self._query_step(task, _LEAVE), timeout)

    def close(self) -> None:
        if self._owns:
            self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, flow: FlowOf, timeout: float | None) -> Any:
        return self.memory.client.start(flow, timeout, background=False).wait()

    # Gradients that the switch sums

    def _summed_step(self, flat: Floats, settings: Sequence[Settings] | None, timeout: float | None) -> PushResult:
        assert self._comm is not None
        mean = "mean" if self.memory.descriptor.options.get("mean", True) else "sum"
        with self._compared():
            summed = self._comm.reduce(flat, 0, mean, timeout=timeout)
        report = self._comm.report
        # A gradient of zeros is not sent, and so no result says how many ranks had one.
        counted = self._comm.active_size if report.min_worker_cnt is None else report.min_worker_cnt
        error: Exception | None = None
        if self._pushes:
            try:
                self._push(np.asarray(summed, np.float32), settings, timeout)
            except Exception as caught:
                error = caught
        counted = self._share(timeout, counted, error)
        return PushResult(self.number, 0 if report.missed else counted)

    def _compared(self) -> AbstractContextManager[None]:
        """The ranks compare the shapes of their layers, which travel as one array."""
        return part_of("in parameters", *map(str, self._blocks.shapes))

    def _share(self, timeout: float | None, counted: int = 0, error: Exception | None = None) -> int:
        """Rank 0's parameters for all, by one multicast; with them the number of steps, or -1 if there was an error, and of
        the gradients ``counted``, which is returned."""
        assert self._comm is not None
        numbers = np.array([-1 if error else self.number, counted], np.int64).view(np.float32)
        mine = np.concatenate([numbers, self._blocks.joined(self.layers)])
        with self._compared():
            shared = self._comm.broadcast(mine.view(np.uint32), 0, timeout=timeout)
        if error is not None:
            raise error
        made, counted = shared[:4].view(np.int64).tolist()
        if made < 0:
            raise AbortedError("rank 0 could not make the step at the memory; its own error says why")
        self._steps[:] = made
        self._blocks.part(shared[4:].view(np.float32), self.layers)
        return counted

    # Flows

    def _beginning(self, task: Task) -> Flow:
        made = yield from self._query_step(task, _QUERY)
        if made:
            yield from self._loading(task)
        elif self.worker == 0:
            flat = self._blocks.joined(self.layers).view(np.uint8)
            for group in self._blocks.groups:
                header = MemoryHeader(Instruction.WRITE, length=group.length)
                addresses, offsets = self._blocks.addresses[group.rows], self._blocks.offsets[group.rows]
                self.memory.client.submit(self.memory.run(task, header, addresses, data=flat, offsets=offsets))
            yield task.done

    def _query_step(self, task: Task, step: int) -> Flow:
        """Ask all blocks how far they are; returns the most steps that any has made."""
        made = [0]

        def take(row: int, header: MemoryHeader, payload: memoryview) -> None:
            self._steps[row] = header.argument >> 32
            made[0] = max(made[0], int.from_bytes(payload, "little"))

        header = MemoryHeader(Instruction.OPTIMIZE, lane=LaneType.BYTES, argument=step << 32 | self.worker)
        self.memory.client.submit(self.memory.run(task, header, self._blocks.addresses, on_reply=take))
        yield task.done
        return made[0]

    def _loading(self, task: Task) -> Flow:
        flat = np.empty(self._blocks.size, np.float32)
        self._read(task, np.arange(self._blocks.number), flat)
        yield task.done
        self._blocks.part(flat, self.layers)

    def _read(self, task: Task, rows: NDArray[np.int64], flat: Floats) -> None:
        for group in self._blocks.groups_of(rows):
            header = MemoryHeader(Instruction.READ, length=group.length)
            addresses, offsets = self._blocks.addresses[group.rows], self._blocks.offsets[group.rows]
            into = flat.view(np.uint8)
            self.memory.client.submit(self.memory.run(task, header, addresses, into=into, offsets=offsets))

    def _push(self, flat: Floats, settings: Sequence[Settings] | None, timeout: float | None) -> PushResult:
        segments = self._blocks.segments(settings)
        try:
            made: PushResult = self._wait(lambda task: self._pushing(task, flat, segments), timeout)
        except InstructionRejectedError as error:
            if error.status not in ("MISMATCH", "MALFORMED"):
                raise
            raise UnsupportedError(
                f"region {self.memory.name!r} is at another step than this worker, or the workers' settings or shapes differ; "
                f"begin() again ({error})"
            ) from None
        return made

    def _pushing(self, task: Task, flat: Floats, segments: NDArray[np.uint64] | None) -> Flow:
        """Push to all blocks; or to those alone that are behind, where workers that died, or this one's being late, have left
        some behind: else the others would be a step ahead for good, and at the end wait for gradients that no worker sends."""
        blocks, behind = self._blocks, self._steps == self._steps.min(initial=LAST_STEP)
        step = self._steps[behind].max(initial=0) + np.uint64(1)
        arguments = np.full(blocks.number, step << np.uint64(32) | np.uint64(self.worker), np.uint64)
        answers = _Answers(blocks, blocks.joined(self.layers), self._steps.copy())
        for group in blocks.groups_of(np.flatnonzero(behind)):
            rows = group.rows
            header = MemoryHeader(Instruction.OPTIMIZE, length=group.length, lane=LaneType.FLOAT32)
            run = self._group.run(
                task,
                header,
                blocks.addresses[rows],
                data=flat.view(np.uint8),
                offsets=blocks.offsets[rows],
                arguments=arguments[rows],
                segments=None if segments is None else segments[rows],
                on_reply=answers.taker(rows),
            )
            self.memory.client.submit(run)
        yield task.done
        counted = int(answers.counted[behind].min(initial=self.workers))
        if answers.shares:
            yield from self._finish_layers(task, arguments, answers)
        self._steps = answers.steps
        blocks.part(answers.flat, self.layers)
        return PushResult(self.number, counted)

    def _finish_layers(self, task: Task, arguments: NDArray[np.uint64], answers: _Answers) -> Flow:
        """The second phase: tell the blocks of each layer its norms. Who was late lacks the shares of blocks that are done
        already, and asks for them."""
        waiting = {self._blocks.layer_of[row] for row in answers.shares}
        rows = np.array([row for row in range(self._blocks.number) if self._blocks.layer_of[row] in waiting], np.int64)
        late = np.array([row for row in rows.tolist() if row not in answers.shares], np.int64)
        if late.size:
            header = MemoryHeader(Instruction.OPTIMIZE, lane=LaneType.BYTES)
            query = self.memory.run(
                task, header, self._blocks.addresses[late], arguments=arguments[late], on_reply=answers.taker(late)
            )
            self.memory.client.submit(query)
            yield task.done
        ready = [row for row in rows.tolist() if row not in late.tolist()]
        # Where a block has gone on, so has its whole layer.
        gone = {self._blocks.layer_of[row] for row in rows.tolist() if row not in answers.shares}
        self._read(task, np.array([row for row in ready if self._blocks.layer_of[row] in gone], np.int64), answers.flat)
        current = np.array([row for row in ready if self._blocks.layer_of[row] not in gone], np.int64)
        if current.size:
            norms = self._blocks.totals(current, answers.shares)
            header = MemoryHeader(Instruction.OPTIMIZE, length=16, lane=LaneType.FLOAT64)
            update = self.memory.run(
                task,
                header,
                self._blocks.addresses[current],
                data=norms.reshape(-1).view(np.uint8),
                arguments=arguments[current],
                on_reply=answers.taker(current),
            )
            self.memory.client.submit(update)
        yield task.done


class _Answers:
    """The answers of blocks to a step: parameters, or first their shares of the layer's norms squared."""

    def __init__(self, blocks: Blocks, flat: Floats, steps: NDArray[np.uint64]) -> None:
        self._blocks, self.flat, self.steps = blocks, flat, steps
        self.shares: dict[int, tuple[float, float]] = {}
        self.counted = np.zeros(blocks.number, np.uint64)

    def taker(self, rows: NDArray[np.int64]) -> Callable[[int, MemoryHeader, memoryview], None]:
        def take(number: int, header: MemoryHeader, payload: memoryview) -> None:
            row = int(rows[number])
            if header.lane == LaneType.FLOAT64:
                first, second = np.frombuffer(payload, "<f8").tolist()
                self.shares[row] = first, second
                self.counted[row] = header.argument & 0xFFFFFFFF
            elif header.lane == LaneType.FLOAT32:
                start = int(self._blocks.offsets[row]) // 4
                values = np.frombuffer(payload, "<f4")
                self.flat[start : start + values.size] = values
                self.counted[row] = header.argument & 0xFFFFFFFF
            self.steps[row] = header.argument >> 32

        return take


def parameters(
    name: str | None = None,
    layers: Sequence[Floats] = (),
    *,
    worker: int = 0,
    comm: Communicator | None = None,
    descriptor: RegionDescriptor | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Parameters:
    """Use a region of kind "parameters" for a model.

    Args:
        name: the region's; see :func:`netsum.memory.open`, which takes ``descriptor`` and all other options.
        layers: the model's parameters, float32 and C-contiguous; steps change them in place. All workers have the same shapes.
        worker: this worker's number, from 0 to the region's number of workers.
        comm: the switch sums the gradients of all its ranks, rank 0 pushes the sum, and all get the parameters by one multicast.

    Raises:
        UnsupportedError: the region, or a layer, is not fit for that.
        UnauthorizedError, UnknownRankError, NotReadyError, InvalidTimeoutError, JoinError: the region was not opened.
    """
    memory = open_region(name, descriptor=descriptor, **options)
    try:
        return Parameters(memory, layers, worker=worker, comm=comm, owns=True)
    except BaseException:
        memory.close()
        raise


def _checked(layer: Any, number: int) -> Floats:
    if not isinstance(layer, np.ndarray) or layer.dtype != np.float32 or not layer.flags.c_contiguous:
        kind = f"{layer.dtype} array" if isinstance(layer, np.ndarray) else type(layer).__name__
        raise UnsupportedError(
            f"layer {number} is a {kind}; layers are C-contiguous arrays of float32, which steps change in place"
        )
    return layer
