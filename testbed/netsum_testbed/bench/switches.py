"""What a contribution costs a switch, compared with plain forwarding of the same packets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from netsum.descriptor import Descriptor

from netsum_testbed.bench.blast import Blasted, Blaster, Load, LostError
from netsum_testbed.bench.loads import aggregate_load, forward_load


@dataclass(frozen=True)
class Plan:
    """``repetitions`` of each load in turn, each of ``rounds`` rounds (one packet per host), ``window`` of them in flight.

    The first ``warm_up`` rounds of each load are sent before anything is timed.
    """

    repetitions: int = 7
    rounds: int = 3000
    window: int = 16
    warm_up: int = 300


@dataclass
class SwitchFigures:
    """Medians over the repetitions. ``*_cpu_us``: CPU microseconds of the switch's process per packet into it."""

    switch: str
    window: int
    forward: list[Blasted] = field(default_factory=list)
    aggregate: list[Blasted] = field(default_factory=list)

    @staticmethod
    def _pps(runs: Sequence[Blasted]) -> float:
        return statistics.median(run.pps for run in runs)

    @staticmethod
    def _cpu(runs: Sequence[Blasted]) -> float:
        return statistics.median(run.switch_cpu / run.packets for run in runs) * 1e6

    @property
    def forward_pps(self) -> float:
        return self._pps(self.forward)

    @property
    def aggregate_pps(self) -> float:
        return self._pps(self.aggregate)

    @property
    def ratio(self) -> float:
        """The time of a contribution, divided by that of a forwarded packet."""
        return self.forward_pps / self.aggregate_pps

    @property
    def forward_cpu_us(self) -> float:
        return self._cpu(self.forward)

    @property
    def aggregate_cpu_us(self) -> float:
        return self._cpu(self.aggregate)

    @property
    def generator_share(self) -> float:
        """The largest share of time that the generator was busy; near 1 it, not the switch, set the pace."""
        shares = [
            statistics.median(run.generator_cpu / run.seconds for run in runs)
            for runs in (self.forward, self.aggregate)
        ]
        return max(shares)

    def to_dict(self) -> dict[str, object]:
        """The switch's part of the JSON line."""
        return {
            "forward_pps": round(self.forward_pps),
            "aggregate_pps": round(self.aggregate_pps),
            "ratio": round(self.ratio, 2),
            "us_per_packet": {
                "forward": round(1e6 / self.forward_pps, 1),
                "aggregate": round(1e6 / self.aggregate_pps, 1),
            },
            "cpu_us_per_packet": {
                "forward": round(self.forward_cpu_us, 1),
                "aggregate": round(self.aggregate_cpu_us, 1),
                "ratio": round(self.aggregate_cpu_us / self.forward_cpu_us, 2),
            },
            "generator_share": round(self.generator_share, 2),
            "window": self.window,
            "repetitions": len(self.forward),
        }


class _Bench:
    """One switch under load: counts the block ids used and halves the window when packets get lost."""

    def __init__(self, blaster: Blaster, descriptors: Sequence[Descriptor], pid: int, plan: Plan) -> None:
        self._blaster = blaster
        self._pid = pid
        self._next = descriptors[0].first_block_id
        self._slots_window = descriptors[0].window
        self.window = min(plan.window, self._slots_window)
        self.loads = (forward_load(descriptors), aggregate_load(descriptors))

    def run(self, load: Load, rounds: int) -> Blasted:
        first = self._next
        if load is self.loads[1]:
            self._next = first + rounds & 0xFFFFFFFF
        return self._blaster.run(load, rounds, self.window, first_block=first, switch_pid=self._pid)


def measure(
    switch: str,
    interfaces: Sequence[str],
    job: Callable[[], Sequence[Descriptor]],
    switch_pid: int,
    *,
    plan: Plan,
    progress: Callable[[str], None] = lambda _: None,
) -> SwitchFigures:
    """Run the plan against one switch. Call it in the network namespace of ``interfaces`` (one a host, rank order).

    ``job()`` returns the descriptors of a job that has had no contribution; it is called again, for a new epoch, when
    packets were lost and the run starts over with half the window. Losing packets with a window of 1 raises.
    """
    window = plan.window
    with closing(Blaster.on_interfaces(interfaces)) as blaster:
        while True:
            bench = _Bench(blaster, job(), switch_pid, Plan(window=window))
            figures = SwitchFigures(switch, bench.window)
            try:
                for load in bench.loads:
                    bench.run(load, plan.warm_up)
                for repetition in range(plan.repetitions):
                    for load, runs in zip(bench.loads, (figures.forward, figures.aggregate), strict=True):
                        progress(f"{switch}: {load.name} {repetition + 1}/{plan.repetitions}")
                        runs.append(bench.run(load, plan.rounds))
            except LostError:
                if window == 1:
                    raise
                window //= 2
                progress(f"{switch}: packets were lost; again with a window of {window}")
                continue
            return figures
