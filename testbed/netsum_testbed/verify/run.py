"""The run: round after round on one fabric, every answer checked, until the time or the calls are up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from netsum.descriptor import SWITCH
from netsum.errors import Timeout
from netsum.transports.faulty import Faults
from netsum_controller.config.job_spec import JobSpec

from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.cases import MAX_ELEMENTS, MAX_WORKERS, Call, Round, make_round
from netsum_testbed.verify.check import Checker
from netsum_testbed.verify.members import Members, joined
from netsum_testbed.verify.ranks import Answer, Gate, Ranks, start
from netsum_testbed.verify.report import Totals

CALLS_PER_ROUND: Final = 40


@dataclass(frozen=True)
class Options:
    """What to run. ``duration`` in seconds; ``calls``: stop after so many, if given; ``round``: only that one.

    ``loss``, ``duplicate``, ``reorder``: probabilities for one packet in one direction. ``algorithm``: the jobs'. ``topology``:
    the file, if it is not the usual star.
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
    algorithm: str = SWITCH
    topology: Path | None = None

    @property
    def faults(self) -> Faults | None:
        """None when packets are left alone."""
        if not (self.loss or self.duplicate or self.reorder):
            return None
        return Faults(drop=self.loss, duplicate=self.duplicate, reorder=self.reorder)

    def replay(self, switch: str, round_: Round) -> str:
        """The command that makes one round again."""
        words = [f"netsum verify --switch {switch} --seed {self.seed} --round {round_.index}"]
        if self.workers != Options.workers:
            words.append(f"--workers {','.join(map(str, self.workers))}")
        if self.topology is not None:
            words.append(f"--topology {self.topology}")
        if self.max_elements != Options.max_elements:
            words.append(f"--max-elements {self.max_elements}")
        if self.algorithm != SWITCH:
            words.append(f"--algorithm {self.algorithm}")
        for name in ("loss", "duplicate", "reorder"):
            if getattr(self, name):
                words.append(f"--{name} {getattr(self, name)}")
        return " ".join(words)


class Run:
    """Counts into ``totals``, which is right at any moment: a run may be ended by an exception."""

    def __init__(
        self,
        fabric: Fabric,
        options: Options,
        totals: Totals,
        say: Callable[[str], None] = print,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        """``say`` gets a line for everything that is wrong, ``progress`` is called after each call that was checked."""
        self.totals = totals
        self._fabric = fabric
        self._options = options
        self._say = say
        self._progress = progress
        self._start = time.monotonic()
        self._granted = 0

    def run(self) -> None:
        """All rounds."""
        options = self._options
        numbers: Iterable[int] = count() if options.round is None else [options.round]
        for number in numbers:
            if not self._may_go_on():
                return
            self._round(
                make_round(
                    options.seed,
                    number,
                    calls=CALLS_PER_ROUND,
                    workers=options.workers,
                    max_elements=options.max_elements,
                )
            )

    def _may_go_on(self) -> bool:
        self.totals.seconds = time.monotonic() - self._start
        enough = self._options.calls is not None and self._granted >= self._options.calls
        return not enough and self.totals.seconds < self._options.duration

    def _grant(self, calls: int) -> bool:
        """Whether ``calls`` more calls may be started."""
        if not self._may_go_on():
            return False
        self._granted += calls
        return True

    def _round(self, round_: Round) -> None:
        hosts = list(self._fabric.topology.hosts)
        spec = JobSpec(
            name=f"verify-{round_.index}",
            members=tuple(hosts[rank % len(hosts)] for rank in range(round_.workers)),
            window=round_.window,
            chunks=round_.chunks,
        )
        seed = (round_.seed << 40) + (round_.index << 8)
        with ExitStack() as stack:
            members = stack.enter_context(
                joined(self._fabric, spec, self._options.faults, seed, self._options.algorithm)
            )
            stack.callback(self._count, members)
            ranks = Ranks(round_.calls, partial(start, round_), members.communicators, Gate(self._grant))
            stack.callback(ranks.stop)
            self._check(round_, ranks)
        self.totals.rounds += 1

    def _count(self, members: Members) -> None:
        self.totals.retransmissions += sum(comm.stats.retransmissions for comm in members.communicators)
        for transport in members.faulty:
            self.totals.packets += transport.counts.packets
            self.totals.dropped += transport.counts.dropped
            self.totals.duplicated += transport.counts.duplicated
            self.totals.reordered += transport.counts.reordered

    def _check(self, round_: Round, ranks: Ranks[Call]) -> None:
        checker = Checker(round_)
        waiting: dict[int, dict[int, Answer[Call]]] = {}
        for answer in ranks:
            answers = waiting.setdefault(answer.call.index, {})
            answers[answer.rank] = answer
            if len(answers) == round_.workers:
                self._judge(checker, round_, answer.call, list(waiting.pop(answer.call.index).values()))
        # What is left over: calls that some rank never got to, because an earlier one failed for it alone.
        for answers in waiting.values():
            self._judge(checker, round_, next(iter(answers.values())).call, list(answers.values()))

    def _judge(self, checker: Checker, round_: Round, call: Call, answers: list[Answer[Call]]) -> None:
        """Count a call and say what is wrong with it."""
        totals = self.totals
        totals.calls += 1
        totals.elements += call.elements
        answers.sort(key=lambda answer: answer.rank)
        errors = [answer for answer in answers if answer.error is not None]
        found = [f"rank {answer.rank}: {_told(answer.error)}" for answer in errors]
        if any(isinstance(answer.error, Timeout) for answer in errors):
            totals.timeouts += 1
        elif errors or len(answers) < round_.workers:
            totals.wrong += 1
            found = found or [f"only ranks {[answer.rank for answer in answers]} have a result"]
        else:
            found = checker.complaints(call, [answer.result for answer in answers if answer.result is not None])
            totals.wrong += bool(found)
        if found:
            self._say(f"round {round_.index} ({round_.workers} workers), call {call.index}: {call.describe()}")
            for line in found:
                self._say(f"  {line}")
            self._say(f"  again with: {self._options.replay(totals.switch, round_)}")
        self._progress()


def _told(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"
