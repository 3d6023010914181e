"""Pictures of what was measured, as PNG files (matplotlib, an extra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from netsum.extras import advice

from netsum_testbed.bench.collective import Line
from netsum_testbed.errors import TestbedError

INCHES: Final = (5.6, 3.4)
DPI: Final = 100


@dataclass(frozen=True)
class Run:
    """All sizes on one switch with so many workers, and the share of packets that were lost on purpose (None: nothing was)."""

    switch: str
    workers: int
    loss: float | None
    lines: Sequence[Line]

    def to_dict(self) -> dict[str, object]:
        lines = [line.to_dict() for line in self.lines]
        return {"switch": self.switch, "workers": self.workers, "loss": self.loss or 0.0, "lines": lines}


Points = Sequence[tuple[float, float]]


class Plots:
    """Draws into a folder. Raises TestbedError if matplotlib is missing."""

    def __init__(self, folder: Path) -> None:
        try:
            from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
            from matplotlib.ticker import FuncFormatter  # noqa: PLC0415
        except ImportError:
            raise TestbedError(f"--plot needs matplotlib, which is not installed: {advice('plot')}") from None
        self._figure: Any = Figure
        self._formatter: Any = FuncFormatter
        self._folder = folder
        self.made: list[Path] = []

    def sizes(self, name: str, runs: Sequence[Run]) -> None:
        """busbw and latency by size for one number of workers, a curve for each switch."""
        title = f"{runs[0].lines[-1].operation}, {runs[0].workers} workers"
        busbw = {run.switch: [(line.size, line.busbw(0)) for line in run.lines] for run in runs}
        self.draw(f"{name}-busbw", busbw, title, "size (bytes)", "busbw (GB/s)", sizes=True)
        latency: dict[str, Points] = {}
        for run in runs:
            for percent in (50, 99):
                points = [(line.size, line.percentile(0, percent) * 1e6) for line in run.lines]
                latency[f"{run.switch}, p{percent}"] = points
        self.draw(f"{name}-latency", latency, title, "size (bytes)", "time (us)", sizes=True, log=True)

    def workers(self, name: str, runs: Sequence[Run]) -> None:
        """algbw of the largest size by number of workers."""
        self._rates(f"{name}-workers", runs, "workers", lambda run: run.workers)

    def losses(self, name: str, runs: Sequence[Run]) -> None:
        """algbw of the largest size by loss."""
        self._rates(f"{name}-loss", runs, "packets lost (%)", lambda run: 100 * (run.loss or 0.0))

    def _rates(self, file: str, runs: Sequence[Run], label: str, where: Any) -> None:
        curves: dict[str, list[tuple[float, float]]] = {}
        for run in runs:
            curves.setdefault(run.switch, []).append((where(run), run.lines[-1].algbw(0)))
        title = f"{runs[0].lines[-1].operation} of {in_bytes(runs[0].lines[-1].size)}"
        self.draw(file, curves, title, label, "algbw (GB/s)")

    def draw(
        self,
        file: str,
        curves: Mapping[str, Points],
        title: str,
        across: str,
        up: str,
        *,
        sizes: bool = False,
        log: bool = False,
    ) -> None:
        """One picture, ``file`` without its suffix. p99 is dashed, in the color of the curve before it."""
        figure = self._figure(figsize=INCHES, dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        color = None
        for name, points in curves.items():
            dashed = name.endswith("p99")
            ordered = sorted(points)
            (drawn,) = axes.plot(
                [x for x, _ in ordered],
                [y for _, y in ordered],
                marker="o",
                markersize=3,
                linestyle="--" if dashed else "-",
                color=color if dashed else None,
                label=name,
            )
            color = drawn.get_color()
        if sizes:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(self._formatter(lambda value, _at: in_bytes(value)))
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set(title=title, xlabel=across, ylabel=up)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        self._folder.mkdir(parents=True, exist_ok=True)
        self.made.append(self._folder / f"{file}.png")
        figure.savefig(self.made[-1])


def in_bytes(size: float) -> str:
    """``4K``, ``1M``: as the options take it, if it is whole."""
    for unit, number in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= number and not size % number:
            return f"{size / number:.0f}{unit}"
    return f"{size:.0f}"
