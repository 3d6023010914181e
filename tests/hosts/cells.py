# SPDX-License-Identifier: MIT
"""Cells of the matrix over the model of the switch in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from netsum.communicator import Communicator
from netsum_testbed.verify.cells import CallKind, Cell
from netsum_testbed.verify.check import Checker
from netsum_testbed.verify.data import start

from tests.hosts.calls import on_each
from tests.system.matrix.command import make_cell

SIZES = (0, 1, 63, 64, 65, 1023, 1025, 9000)


def cell_of(kind: CallKind, workers: int, size: int, seed: int, index: int = 0) -> Cell:
    """A cell; what is not given is drawn from the seed."""
    return make_cell(np.random.default_rng([seed, index]), (seed, 0, index), kind, workers, size)


def check(communicators: Sequence[Communicator], cells: Sequence[Cell]) -> None:
    """Make the cells on every rank, those that are ``joined`` with their neighbors in progress, and check every result."""

    def run(comm: Communicator) -> list[Any]:
        waiting = []
        results = []
        for cell in cells:
            waiting.append(start(comm, cell))
            if not cell.joined:
                results += [wait()[0] for wait in waiting]
                waiting = []
        return results + [wait()[0] for wait in waiting]

    outcomes = on_each(communicators, run)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    checker = Checker(communicators[0].descriptor.block_bytes)
    for number, cell in enumerate(cells):
        assert checker.complaints(cell, [outcome[number] for outcome in outcomes]) == [], cell.describe()
