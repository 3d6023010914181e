"""The run: round after round on one fabric, every answer checked, until the time or the calls are up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from netsum.transports.base import Transport
from netsum.transports.faulty import Faults, FaultyTransport
from netsum_controller.job_spec import JobSpec

from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.cases import MAX_ELEMENTS, MAX_WORKERS, Round, make_round
from netsum_testbed.verify.ranks import Gate, Ranks
from netsum_testbed.verify.report import Totals

CALLS_PER_ROUND = 40


@dataclass(frozen=True)
class Options:
    """What to run. ``duration`` in seconds; ``calls``: stop after so many, if given; ``round``: only that one.

    ``loss``, ``duplicate``, ``reorder``: probabilities for one packet in one direction.
    """

    duration: float = 60.0
    seed: int = 1
    workers: tuple[int, ...] = tuple(range(1, MAX_WORKERS + 1))
    calls: int | None = None
    round: int | None = None
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    max_elements: int = MAX_ELEMENTS

    @property
    def faults(self) -> Faults | None:
        """None when packets are left alone."""
        rates = Faults(drop=self.loss, duplicate=self.duplicate, reorder=self.reorder)
        return rates if self.loss or self.duplicate or self.reorder else None


class Run:
    """Counts into ``totals``, which are right at any moment: a run may be ended by an exception."""

    def __init__(self, fabric: Fabric, options: Options, totals: Totals) -> None:
        self.totals = totals
        self._fabric = fabric
        self._options = options
        self._start = time.monotonic()
        self._granted = 0

    def run(self, progress: Callable[[], None] = lambda: None) -> None:
        """All rounds; ``progress`` is called after each call that was checked."""
        numbers = iter([self._options.round]) if self._options.round is not None else iter(range(1 << 62))
        for number in numbers:
            if not self._time_left():
                return
            options = self._options
            round_ = make_round(
                options.seed,
                number,
                calls=CALLS_PER_ROUND,
                workers=options.workers,
                max_elements=options.max_elements,
            )
            self._round(round_, progress)

    def _time_left(self) -> bool:
        self.totals.seconds = time.monotonic() - self._start
        enough = self._options.calls is not None and self._granted >= self._options.calls
        return not enough and self.totals.seconds < self._options.duration

    def _may_go_on(self, calls: int) -> bool:
        if not self._time_left():
            return False
        self._granted += calls
        return True

    def _round(self, round_: Round, progress: Callable[[], None]) -> None:
        options = self._options
        hosts = list(self._fabric.topology.hosts)
        spec = JobSpec(
            name=f"verify-{round_.index}",
            members=tuple(hosts[rank % len(hosts)] for rank in range(round_.workers)),
            window=round_.window,
            chunks=round_.chunks,
        )
        faulty: list[FaultyTransport] = []

        def spoil(rank: int) -> Callable[[Transport], Transport] | None:
            if options.faults is None:
                return None

            def wrap(transport: Transport) -> Transport:
                seed = (round_.seed * 1_000_003 + round_.index) * MAX_WORKERS + rank
                faulty.append(FaultyTransport(transport, options.faults or Faults(), seed))
                return faulty[-1]

            return wrap

        job = self._fabric.create_job(spec)
        communicators = []
        try:
            for rank in range(round_.workers):
                communicators.append(self._fabric.join(job, rank, wrap=spoil(rank)))
            ranks = Ranks(round_, communicators, Gate(self._may_go_on))
            try:
                self._check(round_, ranks, progress)
            finally:
                ranks.stop()
        finally:
            for comm in communicators:
                self.totals.retransmissions += comm.stats.retransmissions
                comm.close()
            for transport in faulty:
                self.totals.packets += transport.counts.packets
                self.totals.dropped += transport.counts.dropped
                self.totals.duplicated += transport.counts.duplicated
                self.totals.reordered += transport.counts.reordered
            self._fabric.controller.delete_job(spec.name)
        self.totals.rounds += 1
