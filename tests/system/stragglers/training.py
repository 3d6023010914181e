# SPDX-License-Identifier: MIT
"""A training loop that copes with late workers: the demo's model, and a worker that may sleep.

A worker that finds itself behind the others sits out steps: it computes nothing, takes part with ``contribute=False``, and so
catches up in a round trip or two for each call that it has missed. It sits out until one of its calls was in time: a
gradient begun as soon as it wakes, in the middle of the others' step, would be late again.

One worker, a process on its host: ``python -m tests.system.stragglers.training DIGITS PLAN OUT``. It joins the environment's job.
Its diary goes to ``OUT.json``, its weights to ``OUT.npy``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import netsum
import numpy as np
from netsum import Communicator, DesynchronizedError, ResultLostError
from netsum_testbed.demo.model import Digits, Floats, Perceptron

LOOK: Final = 0.05
"""Seconds between looks at how far the others are."""


@dataclass(frozen=True)
class WorkerPlan:
    """Work of a worker. ``compute``: seconds that a gradient takes; what numpy does not need is spent idle, as on a
    host whose accelerator computes. ``delays``: seconds that each step begins late; empty if it is not a straggler. ``ahead``:
    blocks by which the others are ahead before a step begins that is late."""

    steps: int
    compute: float = 0.0
    late: str = "accept"
    delays: Sequence[float] = ()
    ahead: int = 0


@dataclass
class Diary:
    """Record of a worker. ``ends``: when it finished each step (``time.perf_counter()``). The counts of blocks are
    those of its calls' reports; ``sat_out``: steps without its gradient; ``late``: steps whose call was over before it
    came; ``slept``: seconds."""

    rank: int
    ends: list[float] = field(default_factory=list)
    blocks: int = 0
    degraded: int = 0
    missed: int = 0
    overflowed: int = 0
    sat_out: int = 0
    late: int = 0
    behind: int = 0
    resyncs: int = 0
    slept: float = 0.0


class Training:
    """One worker's training. ``model`` is the trained model, ``diary`` what happened."""

    def __init__(self, digits: Digits, plan: WorkerPlan, comm: Communicator, sleep: Callable[[float], None] = time.sleep) -> None:
        self.model = Perceptron()
        self.diary = Diary(comm.rank)
        self._digits = digits
        self._plan = plan
        self._comm = comm
        self._sleep = sleep
        self._batches = list(digits.batches(plan.steps))
        self._late = False

    def run(self) -> None:
        """Train all steps. Raises errors from which there is no way back."""
        step = -1
        while step <= self._plan.steps:
            try:
                self._step(step)
            except (ResultLostError, DesynchronizedError):
                # This rank has missed results for good, or another has and calls resync().
                self.diary.behind += self._comm.stats.lost > 0
                self.diary.resyncs += 1
                step = self._comm.resync(self.model.parameters, self.model.velocity, progress=step + 1) - 1
                self._late = False
            else:
                step += 1

    def _step(self, step: int) -> None:
        """Make one step. The ranks wait for each other before the first and after the last, since a rank that has left cannot
        repeat its last contributions for others that need them."""
        if 0 <= step < self._plan.steps:
            self._train(step)
        else:
            self._comm.barrier()
        if step < self._plan.steps:
            self.diary.ends.append(time.perf_counter())

    def _train(self, step: int) -> None:
        share = self._batches[step][self._comm.rank :: self._comm.size]
        gradient = self._gradient(step, share)
        give = gradient is not None
        total = gradient if gradient is not None else np.zeros_like(self.model.parameters)
        try:
            self._comm.allreduce(total, op="mean", out=total, on_late=self._plan.late, contribute=give)
        finally:
            self._note(give)
        self._late = self._comm.report.late >= self._comm.report.blocks
        self.diary.late += self._late
        self.model.update(total)

    def _gradient(self, step: int, share: Any) -> Floats | None:
        """This worker's gradient times the number of workers, so that their mean is that over the batch. None: it sits out."""
        if self._late or self._comm.lag():
            return None
        if self._plan.delays and self._plan.delays[step]:
            self._sleep(self._plan.delays[step])
            self.diary.slept += self._plan.delays[step]
            while (ahead := self._comm.lag()) < self._plan.ahead:
                self._sleep(LOOK)
            if ahead:
                return None
        began = time.perf_counter()
        model, digits = self.model, self._digits
        _, gradient = model.gradient(digits.images[share], digits.labels[share], len(self._batches[step]))
        gradient *= np.float32(self._comm.size)
        self._sleep(max(0.0, began + self._plan.compute - time.perf_counter()))
        return gradient

    def _note(self, give: bool) -> None:
        report = self._comm.report
        self.diary.blocks += report.blocks
        self.diary.degraded += report.degraded
        self.diary.missed += report.missed
        self.diary.overflowed += report.overflowed
        self.diary.sat_out += not give


def main(arguments: list[str]) -> int:
    """Return the exit code: 1, with one line on standard error, if something about the job went wrong."""
    digits, plan, out = map(Path, arguments)
    try:
        with netsum.join() as comm:
            training = Training(Digits.load(digits), WorkerPlan(**json.loads(plan.read_text("utf-8"))), comm)
            training.run()
    except netsum.NetsumError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    np.save(out.with_suffix(".npy"), training.model.parameters)
    out.with_suffix(".json").write_text(json.dumps(asdict(training.diary)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
