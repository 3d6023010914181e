"""Tells the others that this rank's arguments are wrong, so that nobody waits for it.

This rank cannot know what the others call, but where a call has an opening block, an ABORT there ends it for everyone after one
id. If the others may send their data at once, because scales are predicted or the sum is exact, that data is in blocks which this
rank cannot count. Then it says MISMATCH, which ends the communicator on every rank.
"""

from __future__ import annotations

from netsum.collectives.agreement import Verdict
from netsum.collectives.call import Context
from netsum.errors import CallError, Desynchronized
from netsum.exponents import CODE_LANE
from netsum.window.block import Block
from netsum.wire.codec import Header
from netsum.wire.schema import Op, Status
from netsum.work import Flow


def give_up(context: Context, error: CallError, *, at_once: bool) -> Flow:
    """The flow. Raises ``error``; Mismatch if the others may send ``at_once``; Desynchronized if, in a job
    that degrades, the others finished the opening without this rank."""
    verdict = Verdict()
    heard: list[Header | None] = []

    def record_result(header: Header, _payload: memoryview) -> None:
        verdict.add(header.status)
        heard.append(header)

    status = Status.MISMATCH if at_once else Status.ABORT
    block = Block(
        context.gen, Op.MAX, CODE_LANE, status=status, on_result=record_result, on_lost=lambda: heard.append(None)
    )
    context.window.submit(block)
    yield lambda: bool(heard)
    verdict.raise_failure(error)
    raise Desynchronized(
        f"the others have gone on without this rank, which cannot make their call ({error}): resync(), or join again"
    )
