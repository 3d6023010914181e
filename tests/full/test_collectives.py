# SPDX-License-Identifier: MIT
"""Every collective and operation through the whole stack, on both switches, also over a bad network."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from netsum.transports.impairment import Impairment
from netsum.wire.schema import HEADER_BYTES
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.cells import KINDS, CallKind, Cell
from netsum_testbed.verify.ranks import joined

from tests.hosts.cells import cell_of, check

SIZES = (0, 1, 64, 1025, 5000)
BAD = Impairment(drop=0.01, duplicate=0.01, reorder=0.01)

_numbers = itertools.count(1)


def some_kinds(turn: int) -> list[CallKind]:
    """Each collective and operation with two of its types, others at every turn."""
    kinds: list[CallKind] = []
    for _, group in itertools.groupby(sorted(KINDS), key=lambda kind: kind[:2]):
        every = list(group)
        kinds += dict.fromkeys(every[(5 * turn + step) % len(every)] for step in (0, 1 + turn))
    return kinds


def cells(workers: int, turn: int) -> list[Cell]:
    return [
        cell_of(kind, workers, SIZES[(index + turn) % len(SIZES)], 20 + turn, index)
        for index, kind in enumerate(some_kinds(turn))
    ]


def run(fabric: Fabric, made: list[Cell], faults: Impairment | None = None) -> int:
    """Make the cells in their own job; return how many packets were retransmitted."""
    members = tuple(fabric.topology.hosts)[: made[0].workers]
    spec = JobSpec(name=f"collectives-{next(_numbers)}", members=members)
    with joined(fabric, spec, faults) as there:
        check(there.communicators, made)
        return sum(comm.stats.retransmissions for comm in there.communicators)


def test_there_is_some_of_everything() -> None:
    kinds = {kind[:2] for kind in KINDS}
    assert len(kinds) == 9 + 8 + 8 + 5 + 1
    for turn in range(3):
        assert {kind[:2] for kind in some_kinds(turn)} == kinds


@pytest.mark.parametrize(("workers", "turn"), [(2, 0), (5, 1)])
def test_collectives_are_exact(fabric: Fabric, workers: int, turn: int) -> None:
    run(fabric, cells(workers, turn))


def test_collectives_are_exact_over_a_bad_network(fabric: Fabric) -> None:
    assert run(fabric, cells(4, 2), BAD) > 0


def test_nine_ranks_with_everything_under_way_at_once(fabric: Fabric) -> None:
    chosen = [replace(cell, joined=True) for cell in cells(9, 0) if cell.size <= 1025]
    run(fabric, chosen[::3])


@pytest.mark.parametrize("kind", [CallKind("reduce_scatter", "sum", "int16"), CallKind("broadcast", "", "uint8")], ids=str)
def test_a_million_elements(fabric: Fabric, kind: CallKind) -> None:
    run(fabric, [cell_of(kind, 3, 1_000_000, 1)], BAD)


def test_sparse_and_short_sums(fabric: Fabric) -> None:
    kind = CallKind("allreduce", "sum", "float32")
    made = [cell_of(kind, 4, 20_000, 7, index) for index in range(4)]
    fills: list[tuple[str, int | None]] = [("sparse", None), ("normal", 16), ("sparse", 8), ("wide", 16)]
    run(fabric, [replace(cell, fill=fill, bits=bits) for cell, (fill, bits) in zip(made, fills, strict=True)])


def test_a_member_sends_a_broadcast_once(fabric: Fabric) -> None:
    """The switch makes the copies, so what the root sends does not depend on their number."""
    sent = {}
    for workers in (2, 6):
        members = tuple(fabric.topology.hosts)[:workers]
        with joined(fabric, JobSpec(name=f"collectives-{next(_numbers)}", members=members, window=8)) as there:
            check(there.communicators, [Cell((1, 0, 0), 0, CallKind("broadcast", "", "float32"), workers, 8192)])
            stats = there.communicators[0].stats
            sent[workers] = stats.bytes_sent - (4096 + HEADER_BYTES) * stats.retransmissions
            assert stats.bytes_sent >= np.dtype("float32").itemsize * 8192
    assert sent[2] <= 8192 * 4 + 8 * HEADER_BYTES + 256 + HEADER_BYTES
    assert sent[6] <= 8192 * 4 + 8 * HEADER_BYTES + 256 + HEADER_BYTES
