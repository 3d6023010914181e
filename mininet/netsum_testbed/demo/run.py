# SPDX-License-Identifier: MIT
"""The demo from its first line to its last, on a fabric that is up."""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from netsum_controller.config.job_spec import JobSpec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from netsum_testbed.demo.model import Digits, train_alone
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.interrupts import raise_if_interrupted
from netsum_testbed.processes import Child

# What the workers have reported, shown as a bar on a terminal and as a line now and then elsewhere.


LINES: Final = 10
"""Lines of a whole training without a terminal."""


class DemoTally:
    """The latest reports of all workers, added up."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._latest: dict[int, Mapping[str, Any]] = {}
        self.accuracy = 0.0

    def add(self, said: Mapping[str, Any]) -> None:
        """Take a worker's line."""
        self._latest[said["rank"]] = said
        self.accuracy = said.get("accuracy", self.accuracy)

    @property
    def step(self) -> int:
        """The step that every worker has finished."""
        if len(self._latest) < self._workers:
            return 0
        return int(min(said["step"] for said in self._latest.values()))

    @property
    def loss(self) -> float:
        """Loss of the latest batch, over all workers' shares."""
        return float(sum(said["loss"] for said in self._latest.values()))

    @property
    def retransmissions(self) -> int:
        return int(sum(said["retransmissions"] for said in self._latest.values()))

    @property
    def goodput(self) -> float:
        """MB of gradients that all workers together gave to calls, per second of a call."""
        slowest = max((said["communicating"] for said in self._latest.values()), default=0.0)
        return float(sum(said["bytes"] for said in self._latest.values()) / slowest / 1e6) if slowest else 0.0

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.3f}  accuracy {self.accuracy:.1%}  {self.goodput:.1f} MB/s summed  "
            f"{self.retransmissions} retransmissions"
        )


class Display:
    """Shows a tally while the training runs. A context manager."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._lines = 0
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[tally]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=steps, tally="")

    def show(self, tally: DemoTally) -> None:
        if self._console.is_terminal:
            self._progress.update(self._task, completed=tally.step, tally=str(tally))
        elif tally.step * LINES // self._steps > self._lines:
            self._lines = tally.step * LINES // self._steps
            self._console.print(f"step {tally.step:>4}/{self._steps}  {tally}", soft_wrap=True, highlight=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


JOB: Final = "demo"
WINDOW: Final = 16
"""Blocks in flight: workers and switch share a few cores here, where a longer queue is only a longer wait."""
SILENCE: Final = 90.0
"""Seconds without a report from any worker after which the demo gives up; a call gives up earlier and says why."""

# There are more workers than cores, so numpy's own threads would only get in the way.
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class DemoResult:
    """The demo's last line."""

    switch: str
    fabric: str
    workers: int
    steps: int
    accuracy: float
    accuracy_single: float
    max_weight_difference: float
    goodput_MBps: float  # noqa: N815 - the name in the JSON line
    retransmissions: int
    seconds: float

    def to_json(self) -> str:
        """One line."""
        rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in vars(self).items()}
        # Not rounded: anything but exactly 0 must show.
        return json.dumps({**rounded, "max_weight_difference": self.max_weight_difference})


class Workers:
    """A worker process for each rank, and their reports."""

    def __init__(self, fabric: Fabric, workers: int, steps: int, images: Digits) -> None:
        self._said: queue.Queue[tuple[int, str | None]] = queue.Queue()
        hosts = list(fabric.topology.hosts)[:workers]
        job = fabric.create_job(JobSpec(name=JOB, members=tuple(hosts), window=WINDOW))
        digits = fabric.directory / "digits.npz"
        images.save(digits)
        command = [sys.executable, "-m", "netsum_testbed.demo.worker", str(digits), str(fabric.directory), str(steps)]
        self._children: list[Child] = []
        for rank, host in enumerate(hosts):
            environment = {**_ONE_THREAD, **fabric.environment(job, rank)}
            child = fabric.spawn(host, command, name=f"worker.{rank}", environment=environment, piped=True)
            self._children.append(child)
            threading.Thread(target=self._listen, args=(rank, child), name=f"worker {rank}", daemon=True).start()

    def _listen(self, rank: int, child: Child) -> None:
        try:
            for line in child.stdout:
                self._said.put((rank, line))
        except ValueError:
            pass  # closed while we waited: the demo is being interrupted
        self._said.put((rank, None))

    def follow(self, tally: DemoTally, display: Display) -> None:
        """Return when all have finished; raise :class:`TestbedError` with a worker's last words if one fails."""
        running = set(range(len(self._children)))
        while running:
            rank, line = self._next(running)
            if line is None:
                running.discard(rank)
                self._judge(rank)
            else:
                said: dict[str, Any] = json.loads(line)
                tally.add(said)
                display.show(tally)

    def _next(self, running: set[int]) -> tuple[int, str | None]:
        """A worker's next report; None if there is no more."""
        deadline = time.monotonic() + SILENCE
        while time.monotonic() < deadline:
            raise_if_interrupted()
            with contextlib.suppress(queue.Empty):
                return self._said.get(timeout=1.0)
        raise TestbedError(f"workers {sorted(running)} say nothing for {SILENCE:.0f} s")

    def _judge(self, rank: int) -> None:
        child = self._children[rank]
        if code := child.wait():
            raise TestbedError(f"worker {rank} failed (exit code {code}): {child.last_words() or 'it said nothing'}")


def largest_difference(replicas: Sequence[np.ndarray[Any, Any]]) -> float:
    """The largest difference between any replica and the first, over all parameters."""
    return max(float(np.abs(replica - replicas[0]).max()) for replica in replicas)


def run_demo(fabric: Fabric, kind: str, workers: int, steps: int, digits: Digits, console: Console) -> DemoResult:
    """Train on the fabric, then alone, and compare."""
    began = time.monotonic()
    group = Workers(fabric, workers, steps, digits)
    tally = DemoTally(workers)
    with Display(console, steps) as display:
        group.follow(tally, display)
    replicas = [np.load(fabric.directory / f"weights.{rank}.npy") for rank in range(workers)]
    alone = train_alone(digits, steps)
    return DemoResult(
        switch=fabric.switch,
        fabric=kind,
        workers=workers,
        steps=steps,
        accuracy=tally.accuracy,
        accuracy_single=alone.accuracy(digits.test_images, digits.test_labels),
        max_weight_difference=largest_difference(replicas),
        goodput_MBps=tally.goodput,
        retransmissions=tally.retransmissions,
        seconds=time.monotonic() - began,
    )
