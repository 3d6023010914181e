# SPDX-License-Identifier: MIT
"""Calls that end with an error on every rank, and how the ranks learn of it.

A rank that cannot make a call says ABORT in its blocks, and the switch passes that on in their results. It need not know what
the others call: ABORT in the first block ends the call for everyone, and the result tells how many ids that takes
(:func:`netsum.collectives.call_fingerprint.block_count`). Where the members combine, blocks travel together, and a rank that
does not know how many can only end the communicator on every rank: MismatchError.
"""

from __future__ import annotations

from netsum.collectives.call import Context
from netsum.collectives.call_fingerprint import block_count
from netsum.core.blocks import Block
from netsum.core.endpoint import GROUP
from netsum.core.progress import Flow
from netsum.errors import AbortedError, CallError, DesynchronizedError, MismatchError
from netsum.numeric.exponents import CODE_LANE
from netsum.wire.codec import Header
from netsum.wire.schema import GIVING_UP, Lane, Op, Status


class Verdict:
    """The combined status of a call's results, which is the same on all ranks."""

    def __init__(self) -> None:
        self.highest = Status.OK

    def add(self, status: int) -> None:
        if status > self.highest:
            self.highest = Status(status)

    def raise_failure(self, own: CallError | None) -> None:
        """Raise the error that the statuses call for; the member that failed raises its ``own``."""
        if self.highest == Status.MISMATCH:
            raise MismatchError("another rank made a different call (operation, type or size)")
        if self.highest == Status.ABORT:
            raise own if own is not None else AbortedError("another rank aborted the call; its own error says why")


def take_remaining(context: Context, call: int, begun: int, op: Op, lane: Lane) -> Flow:
    """The flow that takes the ids that are left of an aborted call, of which this rank has begun ``begun``; ends when their
    results are there. ``call``: that of the first block's result. Raises MismatchError, on every rank, if the ids cannot be
    counted."""
    blocks = block_count(call)
    if blocks is None or blocks < begun:
        context.session.send_mismatch()
        raise MismatchError(
            "a rank has given the call up, and the ranks cannot agree on how many blocks it had: "
            f"their calls differed, too; this rank's is {context.progress.text or 'wrong'}"
        )
    results = yield from abort(context, range(begun, blocks), op, lane)
    yield lambda: len(results) == blocks - begun


def abort(context: Context, numbers: range, op: Op, lane: Lane) -> Flow:
    """The flow that gives up these blocks of a call; returns a list into which their results come (None: it is lost)."""
    results: list[Header | None] = []
    for number in numbers:
        last = number + 1 == numbers.stop or not (number + 1) % GROUP
        block = Block(context.gen, op, lane, status=Status.ABORT, more=not last)
        block.on_result, block.on_lost = (lambda header, _: results.append(header)), lambda: results.append(None)
        context.session.submit(block)
        if last:
            yield lambda: context.session.queued < GROUP
    return results


def give_up(context: Context, error: CallError, blocks: int = 1, op: Op = Op.MAX, lane: Lane = CODE_LANE) -> Flow:
    """The flow. ``blocks``, ``op`` and ``lane`` are those of the call that the others probably make.

    Raises ``error``; MismatchError if it cannot be told how many blocks the others' call has; DesynchronizedError if, in a job
    that degrades, the others finished the opening without this rank.
    """
    begun = min(blocks, GROUP) if context.session.combiner == "others" else 1
    results = yield from abort(context, range(begun), op, lane)
    yield lambda: bool(results)
    first = results[0]
    if first is None or first.status not in GIVING_UP:
        raise DesynchronizedError(
            f"the others continued without this rank, which cannot make their call ({error}): resync(), or join again"
        )
    yield from take_remaining(context, first.call_fingerprint, begun, op, lane)
    yield lambda: len(results) == begun
    raise error
