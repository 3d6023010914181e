"""Calls that end with an error on every rank."""

from __future__ import annotations

from typing import Final

from netsum.collectives.call import Context
from netsum.collectives.partition import GROUP
from netsum.core.blocks import Block
from netsum.core.progress import Flow
from netsum.errors import CallError, DesynchronizedError, MismatchError
from netsum.numeric.exponents import CODE_LANE
from netsum.wire.codec import Header
from netsum.wire.schema import CALL_BITS, GIVING_UP, Lane, Op, Status

# How many block ids a call takes that a rank gives up: as many as if it had not failed, so that all ranks go on with
# the same.
#
# The result of its first block says that the call is over, and which: ``call`` in its header is 0 if the call has an
# opening, which is then all of it. Otherwise the call was sent at once, and ``call`` counts its blocks
# (:func:`call_of`). So a rank may give up a call of which it knows nothing.


_COUNT_BITS: Final = 24
_MOST: Final = (1 << _COUNT_BITS) - 1
"""Stands for this many blocks and more."""
FINGERPRINT_BITS: Final = CALL_BITS - _COUNT_BITS


def call_of(digest: int, blocks: int) -> int:
    """The call field in the blocks of a call that is sent at once: a digest of what it is, and how many they are."""
    return digest << _COUNT_BITS | min(blocks, _MOST)


def blocks_of(call: int) -> int | None:
    """The number of ids that a call takes when it is given up; None if that is too many to say."""
    blocks = call & _MOST or 1
    return None if blocks == _MOST else blocks


def take_rest(context: Context, call: int, begun: int, op: Op, lane: Lane) -> Flow:
    """The flow that takes the ids that are left of an aborted call, of which this rank has begun so many; ends when their results
    are there. ``call``: that of the first block's result. Raises MismatchError, on every rank, if the ids cannot be counted."""
    blocks = blocks_of(call)
    if blocks is None or blocks < begun:
        context.session.send_mismatch()
        raise MismatchError(
            "a rank has given the call up, and the ranks cannot agree on how many blocks it had: "
            f"their calls differed, too; this rank's is {context.progress.call or 'wrong'}"
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


# Tells the others that this rank cannot make their call, so that no rank waits for it.
#
# This rank need not know what the others call: ABORT in the first block ends the call for everyone, and the result
# tells how many ids that takes. Where the members combine, blocks travel together,
# and a rank that does not know how many can only end the communicator on every rank: MismatchError.


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
    yield from take_rest(context, first.call_fingerprint, begun, op, lane)
    yield lambda: len(results) == begun
    raise error
