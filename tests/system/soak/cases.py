# SPDX-License-Identifier: MIT
"""Rounds of a soak as data: a job, its ranks' calls, and what goes wrong meanwhile, all from a seed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.config.topology import Topology
from netsum_controller.planning.trees import plan_trees
from netsum_testbed.verify.cells import KINDS, REDUCTIONS, ROWS, CallKind, Cell
from netsum_testbed.verify.run import FLOATS, VerifyRound, make_round

from tests.system.faults import scenario as faults
from tests.system.faults.make import Around, Possible, make_scenario
from tests.system.faults.scenario import Scenario
from tests.system.matrix.command import make_cell

MIN_WORKERS: Final = 2
MAX_WORKERS: Final = 6
CALLS: Final = (10, 30)
MAX_ELEMENTS: Final = 1 << 15
TIMEOUTS: Final = (1.5, 5.0, 20.0)
"""Timeouts of a round's calls, in seconds: too short for some faults, long enough for others."""


SITE: Final = leaf_spine(2, 2, MAX_WORKERS)
"""The network, unless there are more workers: members on one leaf form a star, on two a tree to one spine or stripes over
both."""
SHAPES: Final = ("star", "tree", "stripes")


@dataclass(frozen=True)
class RoundCall:
    """A call of every rank. ``late``: the call's policy. ``tagged``: the ranks give numbers whose sum tells whose are in it,
    instead of the cell's values."""

    cell: Cell
    late: str = "accept"
    tagged: bool = False

    def describe(self) -> str:
        """The call in a line."""
        return self.cell.describe() + (f", late={self.late}" if self.late != "accept" else "")

    @property
    def needs(self) -> Collection[int]:
        """The ranks without which no rank can have the result, since it consists of their arrays."""
        name = self.cell.kind.collective
        if name in (*REDUCTIONS, "barrier"):
            return ()
        return (self.cell.root,) if name in ("broadcast", "scatter") else range(self.cell.workers)


@dataclass(frozen=True)
class RoundPlan:
    """One round. ``base`` has the job's workers, window and chunks; with ``block_exp_ms`` 0 the job waits for every rank.
    ``members`` are hosts, by rank; ``roots`` the roots' shares, if not equal."""

    base: VerifyRound
    steps: tuple[RoundCall, ...]
    scenario: Scenario
    timeout: float
    block_exp_ms: float = 0.0
    quorum: int = 0
    shape: str = "star"
    members: tuple[str, ...] = ()
    roots: Mapping[str, int] | None = None

    @property
    def workers(self) -> int:
        """Number of ranks."""
        return self.base.workers

    @property
    def degrades(self) -> bool:
        """True if results may lack late ranks."""
        return self.block_exp_ms > 0

    @property
    def partial(self) -> bool:
        """True if a sum may lack ranks, so that the contributions must tell who is in it."""
        return self.degrades or self.scenario.has(faults.EventKind.EVICT)

    def describe(self) -> str:
        """The round in a line."""
        late = f"degrade after {self.block_exp_ms:g} ms, quorum {self.quorum}" if self.degrades else "wait"
        return (
            f"{self.workers} workers, {self.shape}, window {self.base.window}, {self.base.chunks} chunks, {late}, "
            f"{len(self.steps)} calls of {self.timeout:g} s"
        )


def make_plan(seed: int, index: int, possible: Possible, scenario: Scenario | None = None, site: Topology = SITE) -> RoundPlan:
    """Round ``index`` of the run with that seed; a ``scenario`` replaces the one drawn."""
    rng = np.random.default_rng([seed, index, 0x50])
    calls = int(rng.integers(*CALLS))
    least = MIN_WORKERS if scenario is None else max(MIN_WORKERS, 1 + highest_rank(scenario))
    counts = tuple(range(least, max(MAX_WORKERS, least) + 1))
    base = make_round(seed, index, calls=calls, workers=counts, max_elements=MAX_ELEMENTS)
    degrades = bool(rng.random() < 0.45)
    shape, members, roots = _seats(rng, base.workers, site)
    if scenario is None:
        trees = plan_trees(site, members, weights=roots)
        around = Around(tuple(trees.nodes), trees.links(site), waits=not degrades)
        scenario = make_scenario(seed, index, ranks=base.workers, calls=calls, possible=possible, around=around)
    partial = degrades or scenario.has(faults.EventKind.EVICT)
    steps = tuple(_step(rng, base, call, degrades=degrades, partial=partial) for call in base.calls)
    return RoundPlan(
        base=base,
        steps=steps,
        scenario=scenario,
        timeout=float(rng.choice(TIMEOUTS)),
        block_exp_ms=float(rng.choice([5, 10, 20, 50])) if degrades else 0.0,
        quorum=int(rng.integers(1, base.workers + 1)) if degrades else 0,
        shape=shape,
        members=members,
        roots=roots,
    )


def _seats(rng: np.random.Generator, workers: int, site: Topology) -> tuple[str, tuple[str, ...], dict[str, int] | None]:
    """The job's shape, its members in the order of ranks, and the shares of its roots."""
    leaves: dict[str, list[str]] = {}
    for name, host in site.hosts.items():
        leaves.setdefault(host.switch, []).append(name)
    first, *others = leaves.values()
    shape = str(rng.choice(SHAPES)) if others else SHAPES[0]
    here = workers if shape == "star" else int(rng.integers(1, workers))
    hosts = [*first[:here], *(others[0][: workers - here] if others else [])]
    spines = [name for name in site.switches if name not in leaves]
    shares: list[dict[str, int] | None] = [None]
    if shape == "tree":
        shares = [{name: 1} for name in spines]
    elif shape == "stripes":
        shares.append({name: 1 + number for number, name in enumerate(spines)})
    return shape, tuple(map(str, rng.permutation(hosts))), shares[int(rng.integers(len(shares)))]


def highest_rank(scenario: Scenario) -> int:
    """The highest rank that a scenario names; -1 if none."""
    return max([*scenario.links, *(event.rank for event in scenario.events if event.rank is not None)], default=-1)


_KINDS: Final = {"allreduce": 0.5, "reduce": 0.06, "reduce_scatter": 0.06, "cell": 0.32, "barrier": 0.06}
_EXCHANGES: Final = ("broadcast", *ROWS)


def _step(rng: np.random.Generator, base: VerifyRound, call: Cell, *, degrades: bool, partial: bool) -> RoundCall:
    name = str(rng.choice(list(_KINDS), p=list(_KINDS.values())))
    root = int(rng.integers(base.workers))
    sleeps = rng.uniform(0.02, 0.3, base.workers) * (rng.random(base.workers) < 0.125)
    if name == "cell":
        return RoundCall(_cell(rng, base, call, partial=partial))
    if name == "barrier":
        return RoundCall(Cell(call.seed, call.index, CallKind(name), base.workers, 0, delays=call.delays))
    if name != "allreduce":
        call = replace(call, kind=call.kind._replace(collective=name), joined=False, in_place=False, scale="agreed")
    if name == "reduce":
        call = replace(call, root=root)
    if name == "reduce_scatter":
        ends = [call.size * rank // base.workers for rank in range(base.workers + 1)]
        rows = tuple(stop - start for start, stop in pairwise(ends))  # about as many each
        call = replace(call, shape=None, counts=(rows,), even=False)
    tagged = partial or name != "allreduce"
    if not degrades:
        return RoundCall(call, tagged=tagged)
    # In one call in eight a rank sleeps long, which is what the job degrades for.
    call = replace(call, delays=tuple(float(max(pair)) for pair in zip(call.delays, sleeps, strict=True)))
    policies = ["accept", "accept", "accept", "wait", "raise"]
    # What overlapping calls carry over depends on when each ends, and float16 cannot hold much more than one call's.
    if call.kind.is_sum and call.kind.dtype != "float16" and name == "allreduce" and not call.joined:
        policies.append("carry")
    return RoundCall(call, str(rng.choice(policies)), tagged)


def _cell(rng: np.random.Generator, base: VerifyRound, call: Cell, *, partial: bool) -> Cell:
    """An exchange or, where sums are whole, a reduction of any kind. All ranks' rows together are as large as the call."""
    names = _EXCHANGES if partial or rng.random() < 0.6 else REDUCTIONS
    name = str(rng.choice(names))
    kinds = [kind for kind in KINDS if kind.collective == name]
    if rng.random() < 0.5:  # those that may have `bits`
        kinds = [kind for kind in kinds if kind.op in ("sum", "mean") and kind.dtype in FLOATS] or kinds
    kind = kinds[int(rng.integers(len(kinds)))]
    rows = call.size // (base.workers if name == "all_to_all" or kind.op == "product" else 1)
    cell = make_cell(rng, (base.seed, base.index, call.index), kind, base.workers, rows)
    # A result without an evicted rank's rows does not fit an array made for all.
    return replace(cell, joined=call.joined, in_place=cell.in_place and not partial, delays=call.delays)
