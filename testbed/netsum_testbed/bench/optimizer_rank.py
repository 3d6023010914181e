"""One rank of a training whose optimizer is here or at the memory, in turns, as a process:
``python -m netsum_testbed.bench.optimizer_rank STEPS SIZE...``.

It has the environment of `netsum run`, and for each size the regions of :class:`~netsum_testbed.bench.optimizer.Optimizers`.
Rank 0 prints a line of JSON: for each size and way, milliseconds of a step, and bytes of frames that this rank sent and received
in it, that all ranks sent to memory devices, and that those sent, to one rank or to all at once.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import netsum
import netsum.memory
import numpy as np
from netsum.communicator import Communicator
from netsum.frames import PREFIX_BYTES
from netsum.memory.parameters import Parameters
from netsum_memory.optimizer_rules import Floats, LocalOptimizer, Options
from numpy.typing import NDArray

from netsum_testbed.bench.optimizer import EACH, HERE, SUMMED, region_name

UNTIMED: Final = 2


class Way:
    """The model, trained in one way; ``comm`` and ``memory`` count what it sends."""

    def __init__(self, step: Callable[[Floats], object], model: Floats, comm: Communicator, memory: Any = None) -> None:
        self.step, self.model, self._comm, self._memory = step, model, comm, memory
        self.seconds: list[float] = []
        self.bytes = np.zeros(5, np.int64)  # sent, received; to memory, from there to this rank, and to many at once

    def timed(self, gradient: Floats, *, counts: bool) -> None:
        before = self._count()
        began = time.perf_counter()
        self.step(gradient)
        took = time.perf_counter() - began
        if counts:
            self.seconds.append(took)
            self.bytes += self._count() - before

    def _count(self) -> NDArray[np.int64]:
        counted = np.array([*_frames(self._comm.stats), 0, 0, 0], np.int64)
        if self._memory is not None:
            stats = self._memory.stats
            (sent, received), shared = _frames(stats), stats.shared_bytes + PREFIX_BYTES * stats.shared
            counted += sent, received, sent, received - shared, shared
        return counted

    def figures(self) -> dict[str, Any]:
        """A call of all ranks."""
        step = round(1e3 * statistics.median(self.seconds), 3)
        sent, received, *_ = (self.bytes // len(self.seconds)).tolist()
        _, _, pushed, alone, shared = (self._comm.allreduce(self.bytes) // len(self.seconds)).tolist()
        from_memory = alone + shared // self._comm.size
        return {"step_ms": step, "sent": sent, "received": received, "to_memory": pushed, "from_memory": from_memory}


def _frames(stats: Any) -> tuple[int, int]:
    """Bytes of frames, sent and received."""
    sent = stats.bytes_sent + PREFIX_BYTES * stats.packets_sent
    return sent, stats.bytes_received + PREFIX_BYTES * stats.packets_received


def ways(comm: Communicator, size: int, stack: ExitStack) -> dict[str, Way]:
    """The optimizer in each rank, after an allreduce; at the memory, to which each rank pushes; and at the memory, to which
    rank 0 pushes what the switch has summed."""
    made: dict[str, Way] = {}
    here = np.zeros(size // 4, np.float32)
    for name, shared in ((EACH, None), (SUMMED, comm)):
        model = np.zeros(size // 4, np.float32)
        region = region_name(name, size)
        opened = stack.enter_context(netsum.memory.parameters(region, [model], worker=comm.rank, comm=shared))
        opened.begin()
        made[name] = Way(_pushing(opened), model, comm, opened.memory)
        options = Options.of(opened.memory.descriptor.options)
    local = LocalOptimizer(options, [here])
    made[HERE] = Way(lambda gradient: local.step([[comm.allreduce(gradient, op="mean")]]), here, comm)
    return made


def _pushing(opened: Parameters) -> Callable[[Floats], object]:
    return lambda gradient: opened.step([gradient])


def measured(comm: Communicator, steps: int, size: int) -> dict[str, Any]:
    with ExitStack() as stack:
        trained = ways(comm, size, stack)
        rng = np.random.default_rng(comm.rank)
        comm.barrier()
        for number in range(UNTIMED + steps):
            gradient = rng.normal(size=size // 4).astype(np.float32)
            for way in trained.values():
                comm.barrier()
                way.timed(gradient, counts=number >= UNTIMED)
        # Sums in fixed point and in float32 differ by a rounding or two.
        apart = max(float(np.abs(way.model - trained[HERE].model).max()) for way in trained.values())
        comm.barrier()
        return {"size": size, "apart": apart, **{name: way.figures() for name, way in trained.items()}}


def main(steps: str, *sizes: str) -> None:
    with netsum.join() as comm:
        found = [measured(comm, int(steps), int(size)) for size in sizes]
        if comm.rank == 0:
            print(json.dumps(found), flush=True)
        comm.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
