"""Data that goes out right after the opening block of its call, without waiting for that block's result.

It saves a round trip where nothing needs to be agreed on. Only for jobs that wait for every rank: elsewhere a rank that loses the
opening must contribute nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netsum.collectives.agreement import NO_CODES, open_call
from netsum.collectives.call import Context
from netsum.collectives.history import Signature
from netsum.collectives.layout import GROUP
from netsum.collectives.sending import Group, Sender
from netsum.errors import CallError
from netsum.fixed_point import Array
from netsum.wire.schema import Status
from netsum.work import Flow

Encode = Callable[[range], tuple[Array, Sequence[Status] | None]]
"""Lanes and statuses of these blocks; None: all are OK."""


def send_at_once(
    context: Context, sender: Sender, signature: Signature, encode: Encode, error: CallError | None
) -> Flow:
    """The flow that opens the call and sends all blocks; returns the groups, complete. Raises what the opening says, or
    ``error``, which is why this rank gives the call up, if it does."""
    opened = open_call(context, signature, NO_CODES, error)
    groups: list[Group] = []
    for numbers in sender.cut.groups():
        lanes, statuses = encode(numbers)
        final = numbers.stop == sender.cut.number
        groups.append(sender.submit(lanes, numbers, statuses, final=final))
        if not final:
            yield lambda: opened.differ or context.window.queued < GROUP
        if opened.differ:
            break
    # Ranks whose calls differ may never finish each other's blocks; a rank that gives up does.
    yield lambda: opened.differ or (opened.answered and not sum([group.missing for group in groups]))
    opened.check(error)
    return groups
