"""Makes one rank's part of a cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from netsum.communicator import Communicator
from netsum.report import Report

from netsum_testbed.verify.cells import ROOTED, Cell
from netsum_testbed.verify.data import Array, contribution

CALL_TIMEOUT: Final = 600.0
"""Seconds until a call gives up: no fault of this run takes that long."""


def start(
    comm: Communicator, cell: Cell, timeout: float = CALL_TIMEOUT, *, given: Array | None = None, **more: Any
) -> Callable[[], tuple[Any, Report]]:
    """Begin one rank's part of a cell; the function returned waits for its result, and returns it with the call's report.

    ``given``: the rank's array, if it is not the cell's own; ``more``: further arguments of the call.
    """
    rank, (name, op, _) = comm.rank, cell.kind
    if given is None and name != "barrier":
        given = contribution(cell, rank)
    options: dict[str, Any] = more if given is None else _options(cell, rank, given) | more
    if op:
        options["op"] = op
    before = None if given is None else given.tobytes()
    make = getattr(comm, f"{name}_async" if cell.joined else name)
    made = make(*([] if given is None else [given]), timeout=timeout, **options)
    report = made.report if cell.joined else comm.report

    def result() -> tuple[Any, Report]:
        got = made.wait() if cell.joined else made
        if got is not None and options.get("out") is not None and got is not options["out"]:
            raise AssertionError("a call with out= returned another array")
        if given is not None and options.get("out") is not given and given.tobytes() != before:
            raise AssertionError("the input was changed")
        return (None if got is None else np.asarray(got)), report

    return result


def _options(cell: Cell, rank: int, given: Array) -> dict[str, Any]:
    name = cell.kind.collective
    options: dict[str, Any] = {}
    if name in ROOTED:
        options["root"] = cell.root
    if not cell.even:
        options["counts"] = _counts(cell)
    if cell.bits is not None:
        options["bits"] = cell.bits
    if cell.rounding != "nearest":
        options["rounding"] = cell.rounding
    if cell.scale != "agreed":
        options["scale"] = cell.scale
    if cell.in_place:
        # The input itself if the result has its shape, else a new array.
        shape = result_shape(cell, rank)
        options["out"] = given if shape == given.shape else np.empty(shape or 0, given.dtype)
    return options


def _counts(cell: Cell) -> Any:
    match cell.kind.collective:
        case "all_to_all":
            return cell.counts
        case "all_gather" | "gather":
            return [count for (count,) in cell.counts]
        case _:
            return cell.counts[0]


def result_shape(cell: Cell, rank: int) -> tuple[int, ...] | None:
    """The shape of a rank's result; None: no array."""
    match cell.kind.collective:
        case "barrier":
            return None
        case "reduce" | "gather" if rank != cell.root:
            return None
        case "reduce_scatter" | "scatter":
            return (cell.counts[0][rank],)
        case "all_to_all":
            return (sum(row[rank] for row in cell.counts),)
        case _:
            return cell.form
