# SPDX-License-Identifier: MIT
"""Ranks that make calls in a loop while something happens to them, and the means to make it happen."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import netsum
import numpy as np
from netsum.communicator import Communicator
from netsum.transports.base import Transport
from netsum_controller import Controller, Job
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import Child, ServedController

from tests.full.calls import on_all, results
from tests.full.conftest import joined
from tests.system import SEARCH_PATH
from tests.threads import PATIENCE, returned, until

WORKER = Path(__file__).with_name("worker.py")


def restart_switch(fabric: Fabric, *name: str) -> None:
    """Kill a switch (the only one unless named) and start an empty one in its place."""
    fabric.kill_switch(*name)
    fabric.start_switch(*name)


def share(rank: int, step: int, size: int) -> Any:
    """The contribution of a rank to a step."""
    return np.arange(size, dtype=np.int64) % 97 * (step % 31 + 1) + rank


def whole(ranks: Sequence[int], step: int, size: int) -> Any:
    """The sum of these ranks' contributions."""
    return sum(share(rank, step, size) for rank in ranks)


def naps(ranks: int, odds: float, seconds: float) -> Callable[[int, int], float]:
    """``pause`` of a :class:`Training` in which every rank sometimes sleeps, independently of the others."""
    draws = [np.random.default_rng(rank).random(4000) for rank in range(ranks)]
    return lambda rank, step: seconds if draws[rank][step % 4000] < odds else 0.0


class Nap:
    """``pause`` of a :class:`Training` in which one rank stops before one step, until ``wake`` is set."""

    def __init__(self, rank: int, step: int) -> None:
        self._where = rank, step
        self.asleep, self.wake = threading.Event(), threading.Event()

    def __call__(self, rank: int, step: int) -> float:
        if (rank, step) == self._where:
            self.asleep.set()
            self.wake.wait(PATIENCE)
        return 0.0


class Training:
    """Every rank sums in a loop, a thread each. ``state`` is the sum of all results so far: equal on all ranks after equally
    many steps. From the errors in ``resync`` a rank comes back with :meth:`Communicator.resync`.

    ``steps[rank]`` are done; ``errors[rank]`` is what its last call raised; ``came_back[rank]`` what it came back from.
    """

    def __init__(
        self,
        communicators: Sequence[Communicator],
        *,
        size: int = 3000,
        timeout: float = PATIENCE,
        resync: tuple[type[Exception], ...] = (),
        check: bool = True,
        pause: Callable[[int, int], float] = lambda _rank, _step: 0.0,
        dtype: str = "int64",
    ) -> None:
        """``check``: results are the exact sum over all ranks. ``pause(rank, step)``: seconds to sleep before a step."""
        self.communicators = communicators
        self.size, self.timeout, self.resync, self.check, self.pause = size, timeout, resync, check, pause
        self.dtype = dtype
        number = len(communicators)
        self.steps = [0] * number
        self.states = [np.zeros(size, np.int64) for _ in range(number)]
        self.errors: list[Exception | None] = [None] * number
        self.came_back: list[list[Exception]] = [[] for _ in range(number)]
        self.expected: Callable[[int], Sequence[int]] = lambda _step: range(communicators[0].size)
        self._last: int | None = None
        self._threads = [threading.Thread(target=self._run, args=(index,), daemon=True) for index in range(number)]

    def _run(self, index: int) -> None:
        try:
            while self._last is None or self.steps[index] < self._last:
                try:
                    self._step(index)
                except self.resync as error:
                    self.came_back[index].append(error)
                    state = self.states[index]
                    self.steps[index] = self.communicators[index].resync(state, progress=self.steps[index], timeout=self.timeout)
        except Exception as error:
            self.errors[index] = error

    def _step(self, index: int) -> None:
        step, comm = self.steps[index], self.communicators[index]
        if nap := self.pause(index, step):
            time.sleep(nap)
        mine = share(comm.rank, step, self.size).astype(self.dtype)
        result = comm.allreduce(mine, timeout=self.timeout).astype(np.int64)
        if self.check:
            np.testing.assert_array_equal(result, whole(self.expected(step), step, self.size))
        self.states[index] += result
        self.steps[index] = step + 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            for comm in self.communicators:  # so that no thread goes on into the next test
                comm.close()

    def __str__(self) -> str:
        return f"all go on (steps {self.steps}, errors {self.errors}, came back from {self.came_back})"

    def on(self, steps: int = 10) -> None:
        """Wait until every rank that has not failed is so many steps further than the first is now."""
        goal = max(self.steps) + steps
        until(
            lambda: all(done >= goal or error is not None for done, error in zip(self.steps, self.errors, strict=True)),
            self,
        )

    def finish(self, after: int = 10) -> None:
        """Go :meth:`on` for so many steps, let all ranks end after the same one, wait for it, and see that they are equal."""
        self.on(after)
        self.stop()
        self.check_equal()

    def stop(self, more: int = 10) -> None:
        """Let all ranks that have not failed end after the same step, and wait for it."""
        self.end_after(max(self.steps) + more)
        self.join()

    def end_after(self, step: int) -> None:
        """Let all ranks end after this step, which none has passed."""
        self._last = step

    def join(self) -> None:
        """Wait until every rank has ended, by itself or by an error."""
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        stuck = [rank for rank, thread in enumerate(self._threads) if thread.is_alive()]
        assert not stuck, f"ranks {stuck} hang"

    def again(self) -> Training:
        """After all ranks have ended: they come back together and go on from the state of the furthest."""
        again = Training(self.communicators, size=self.size, timeout=self.timeout, check=self.check)
        again.states, again.steps = self.states, self.steps

        def come_back(index: int) -> None:
            progress = again.steps[index]
            again.steps[index] = self.communicators[index].resync(again.states[index], progress=progress, timeout=PATIENCE)

        returned([partial(come_back, index) for index in range(len(self.communicators))])
        return again

    def kinds(self) -> list[type[Exception] | None]:
        """The error with which each rank ended; None if it made all its steps."""
        return [type(error) if error is not None else None for error in self.errors]

    def check_equal(self) -> None:
        """Check that every rank made all steps and that their states are equal."""
        for error in self.errors:
            if error is not None:
                raise AssertionError(f"a rank raised {error!r}") from error
        assert len(set(self.steps)) == 1
        for state in self.states:
            assert state.tobytes() == self.states[0].tobytes()


class Served(ServedController):
    """In the place of the fabric's own controller, which is closed; another one, which does not serve, gives commands on the
    same state file."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        fabric.controller.close()
        self.controller = Controller(fabric.topology, fabric.directory / "state.db")
        super().__init__(fabric.topology, fabric.directory)

    @contextmanager
    def hung(self) -> Iterator[None]:
        """Accept connections and answer nothing."""
        self.hang(hang=True)
        try:
            yield
        finally:
            self.hang(hang=False)

    def join(self, job: Job, rank: int, timeout: float = PATIENCE) -> Communicator:
        """A rank of a job that :attr:`controller` made."""

        def transport(descriptor: Any) -> Transport:
            return self.fabric.inside(lambda: self.fabric.open_transport(descriptor, job.members[rank]))

        return netsum.join(job.name, rank, token=job.token, controller=self.url, transport=transport, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.controller.close()


@contextmanager
def same_bits(fabric: Fabric, steps: int, middle: int) -> Iterator[list[Communicator]]:
    """Three ranks in the middle of calls of all kinds. Whatever is done meanwhile, the results are to the bit those of an
    undisturbed run."""
    values = [np.random.default_rng(rank).standard_normal(6000).astype(np.float32) for rank in range(3)]
    reached = [0] * 3

    def calls(comm: Communicator) -> list[bytes]:
        got = []
        weights = np.zeros(6000, np.float32)
        for step in range(steps):
            reached[comm.rank] = step
            mean = comm.allreduce(values[comm.rank] * (step + 1), "mean", scale="predicted", timeout=PATIENCE)
            weights = weights + mean
            top = comm.allreduce(weights * comm.rank, "max", timeout=PATIENCE)
            told = comm.broadcast(values[comm.rank] + step, 1, timeout=PATIENCE)
            parts = comm.all_to_all(weights, timeout=PATIENCE)
            comm.barrier(timeout=PATIENCE)
            got += [each.tobytes() for each in (weights, top, told, parts)]
        return got

    with joined(fabric, 3, window=8) as communicators:
        undisturbed = results(on_all(communicators, calls))
    reached[:] = [0] * 3
    with joined(fabric, 3, window=8) as communicators, ThreadPoolExecutor(1) as elsewhere:
        disturbed = elsewhere.submit(on_all, communicators, calls)
        until(lambda: min(reached) >= middle, "the middle")
        yield communicators
        assert results(disturbed.result()) == undisturbed
        assert [comm.stats.resumes for comm in communicators] == [1] * 3


def start_worker(fabric: Fabric, name: str, rank: int, **options: Any) -> Child:
    """A rank of the job of that name as a process of its own (``worker.py``); it says a line of JSON a step."""
    host = fabric.controller.job(name).members[rank]
    prefix = fabric.prefix(host)
    assert fabric.controller.url is not None
    config = {
        "job": name,
        "rank": rank,
        "token": fabric.tokens[name],
        "controller": fabric.controller.url,
        "namespace": prefix[-1] if prefix else None,
        "interface": fabric.interface(host) if prefix else None,
        **options,
    }
    return Child(
        [sys.executable, str(WORKER), json.dumps(config)],
        output=fabric.directory / f"worker.{name}.{rank}.log",
        piped=True,
        environment={"PYTHONPATH": SEARCH_PATH},
    )
