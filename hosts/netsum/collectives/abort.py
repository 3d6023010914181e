"""Tells the others that this rank cannot make their call, so that no rank waits for it.

This rank need not know what the others call: ABORT in the first block ends the call for everyone, and the result tells how many
ids that takes (:mod:`netsum.collectives.aborted`). Where the members combine, blocks travel together, and a rank that does not
know how many can only end the communicator on every rank: MismatchError.
"""

from __future__ import annotations

from netsum.collectives.aborted import abort, take_rest
from netsum.collectives.call import Context
from netsum.collectives.partition import GROUP
from netsum.errors import CallError, DesynchronizedError
from netsum.exponents import CODE_LANE
from netsum.wire.schema import GIVING_UP, Lane, Op
from netsum.work import Flow


def give_up(context: Context, error: CallError, blocks: int = 1, op: Op = Op.MAX, lane: Lane = CODE_LANE) -> Flow:
    """The flow. ``blocks``, ``op`` and ``lane`` are those of the call that the others probably make.

    Raises ``error``; MismatchError if it cannot be told how many blocks the others' call has; DesynchronizedError if, in a job
    that degrades, the others finished the opening without this rank.
    """
    begun = min(blocks, GROUP) if context.window.combiner == "others" else 1
    results = yield from abort(context, range(begun), op, lane)
    yield lambda: bool(results)
    first = results[0]
    if first is None or first.status not in GIVING_UP:
        raise DesynchronizedError(
            f"the others have gone on without this rank, which cannot make their call ({error}): resync(), or join again"
        )
    yield from take_rest(context, first.call, begun, op, lane)
    yield lambda: len(results) == begun
    raise error
