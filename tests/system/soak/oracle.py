# SPDX-License-Identifier: MIT
"""Checks every result of a round when the round is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from netsum.wire.schema import CHUNK_BYTES
from netsum_testbed.verify.cells import Cell
from netsum_testbed.verify.check import Checker, same_bits, segments
from netsum_testbed.verify.data import Array

from tests.system.soak.cases import RoundCall, RoundPlan
from tests.system.soak.error_attribution import History
from tests.system.soak.messages import Answer, Members, contribution, members_of

WIDEST = 8
"""Bytes of the widest lane."""


@dataclass
class Finding:
    """One call in one epoch: how many ranks have its result, whether it was partial, and what is wrong with it."""

    step: RoundCall
    number: int
    results: int
    degraded: bool
    complaints: list[str]


class Oracle:
    """Takes a round's answers as they come and judges them when it is over. ``history`` knows who was evicted."""

    def __init__(self, plan: RoundPlan, history: History) -> None:
        self._plan = plan
        self._history = history
        self._answers: dict[int, dict[int, dict[int, Answer]]] = defaultdict(lambda: defaultdict(dict))

    def take(self, answer: Answer) -> None:
        """Keep an answer; a barrier has nothing to judge."""
        steps = self._plan.steps
        if answer.step < len(steps) and steps[answer.step].cell.kind.dtype:
            self._answers[answer.since][answer.step][answer.rank] = answer

    def findings(self) -> Iterator[Finding]:
        """All calls, in the order in which they were made."""
        for since in sorted(self._answers):
            whole = Checker(self._plan.base.chunks * CHUNK_BYTES)
            partial = _Partial(self._plan, self._history.evicted)
            for number, answers in sorted(self._answers[since].items()):
                step = self._plan.steps[number]
                ended = {rank: each for rank, each in sorted(answers.items()) if each.failure is None}
                degraded = any(each.report.degraded for each in answers.values())
                if step.tagged:
                    ended = {rank: each for rank, each in ended.items() if each.result is not None}
                    complaints = partial.complaints(step, ended)
                else:
                    complaints = self._of_cell(step.cell, whole, ended)
                yield Finding(step, number, len(ended), degraded, complaints)

    def _of_cell(self, cell: Cell, checker: Checker, answers: dict[int, Answer]) -> list[str]:
        results = [answers[rank].result if rank in answers else None for rank in range(cell.workers)]
        evicted = tuple(sorted(self._history.evicted))
        found = checker.complaints(cell, results, answers)
        if found and evicted and not checker.complaints(cell, results, answers, evicted):
            # A call made after an eviction says so in its report; reports of overlapping calls are not known.
            told = [rank for rank, each in answers.items() if each.report.evicted == evicted or cell.joined]
            silent = [rank for rank in answers if rank not in told]
            return [f"ranks {silent} have no rows of {evicted}, and their reports do not say so"] if silent else []
        return found


class _Partial:
    """The calls of one epoch whose results may lack ranks, in order, since what is carried over shows in a later call."""

    def __init__(self, plan: RoundPlan, evicted: set[int]) -> None:
        self._plan = plan
        self._evicted = evicted
        self._carried: dict[tuple[object, ...], list[Array] | None] = {}
        # A block's elements depend on the lane's width, which is agreed on for integers: a part as long as the shortest block
        # lies in one block.
        self._width = plan.base.chunks * CHUNK_BYTES // WIDEST

    def complaints(self, step: RoundCall, answers: dict[int, Answer]) -> list[str]:
        """Find what is wrong with the ranks' results."""
        inputs = [contribution(step, rank) for rank in range(self._plan.workers)]
        if step.cell.kind.collective == "reduce_scatter":
            parts = segments(step.cell, inputs)
            return [line for rank, each in answers.items() for line in self._reduced(step, {rank: each}, parts[rank])]
        kind = (step.cell.kind, step.cell.form)
        if step.late == "carry" and kind in self._carried:
            rests = self._carried[kind]
            if rests is None:
                return []
            inputs = [own + rest for own, rest in zip(inputs, rests, strict=True)]
        return self._reduced(step, answers, inputs)

    def _reduced(self, step: RoundCall, answers: dict[int, Answer], inputs: list[Array]) -> list[str]:
        """Find what is wrong with results that should all be a reduction of some ranks' inputs."""
        op = step.cell.kind.op
        if not answers:
            return []
        first_rank, answer = next(iter(answers.items()))
        first = answer.result
        assert first is not None
        apart = [rank for rank, each in answers.items() if each.result is None or not same_bits(each.result, first)]
        if apart:
            return [f"ranks {apart} have another result than rank {first_rank}"]
        if first.shape != inputs[0].shape or first.dtype != inputs[0].dtype:
            return [f"the result is {first.dtype}{list(first.shape)}"]
        members = members_of(op, inputs, first, self._width)
        if (bad := members.unexplained).size:
            parts = members.matches.shape[1]
            where = int(bad[0]) * self._width
            values = [array.reshape(-1)[where] for array in inputs]
            return [
                f"rank {first_rank}: {bad.size} parts of {parts} are no {op} of some ranks' inputs; "
                f"from element {where}: {first.reshape(-1)[where]!r}, from {values}"
            ]
        if step.late == "carry":
            self._carry((step.cell.kind, step.cell.form), inputs, members)
        found: dict[str, list[int]] = {}
        for rank, each in answers.items():
            for line in self._flags(step, rank, each, members):
                found.setdefault(line, []).append(rank)
        return [f"ranks {ranks}: {line}" for line, ranks in found.items()]

    def _carry(self, kind: tuple[object, ...], inputs: list[Array], members: Members) -> None:
        """Keep what each rank contributed too late, which goes into its next call of the kind; None if that is unknown."""

        def rest(rank: int, array: Array) -> Array:
            came = np.repeat(members.with_rank(rank), members.width)[: array.size]
            return np.asarray(np.where(came.reshape(array.shape), 0, array), array.dtype)

        known = not members.ambiguous
        self._carried[kind] = [rest(rank, array) for rank, array in enumerate(inputs)] if known else None

    def _flags(self, step: RoundCall, rank: int, answer: Answer, members: Members) -> list[str]:
        """Find what is untrue in a rank's report of who is in its result."""
        plan, report = self._plan, answer.report
        if not members.matches.shape[1]:
            return []
        everyone = range(plan.workers)
        whole = members.exactly(everyone)
        for evicted in self._evicted:
            whole |= members.exactly([other for other in everyone if other != evicted])
        least = report.min_worker_cnt or 0
        floor = max(1, min(plan.quorum, plan.workers - len(self._evicted)))
        found = []
        if not whole.all() and not report.degraded:
            found.append(f"{int((~whole).sum())} parts are partial and the report has no degraded block")
        if not whole.all() and step.late in ("wait", "raise"):
            found.append(f"{int((~whole).sum())} parts are partial, with late={step.late}")
        if not members.at_least(least).all():
            found.append(f"parts with fewer ranks than the {least} that the report has in each block")
        if plan.degrades and not members.at_least(floor).all():
            found.append(f"parts with fewer ranks than the quorum of {floor}")
        if not report.missed and not members.with_rank(rank).all():
            found.append("parts without this rank's part, and the report has no block that was missed")
        return found
