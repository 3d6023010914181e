"""What the workers have reported, shown as a bar on a terminal and as a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINES: Final = 10
"""Lines of a whole training without a terminal."""


class Tally:
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

    def show(self, tally: Tally) -> None:
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
