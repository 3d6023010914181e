"""Data that goes out at once: nothing is agreed on first, and the call has no opening.

It saves a round trip and a packet. Only for jobs that wait for every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netsum.collectives.agreement import begin_unopened
from netsum.collectives.call import Context
from netsum.collectives.history import Signature
from netsum.collectives.sending import Group, Sender
from netsum.fixed_point import Array
from netsum.wire.schema import Status
from netsum.work import Flow

Encode = Callable[[range], tuple[Array, Sequence[Status] | None]]
"""Lanes and statuses of these blocks; None: all are OK."""


def send_at_once(context: Context, sender: Sender, signature: Signature, encode: Encode) -> Flow:
    """The flow that sends all blocks; returns the groups, complete."""
    begin_unopened(context, signature)
    groups: list[Group] = []
    for numbers in sender.cut.groups():
        lanes, statuses = encode(numbers)
        final = numbers.stop == sender.cut.number
        groups.append(sender.submit(lanes, numbers, statuses, final=final))
        if not final:
            yield sender.room()
    yield lambda: not sum([group.missing for group in groups])
    return groups
