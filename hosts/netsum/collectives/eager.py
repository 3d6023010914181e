"""Data that goes out at once: nothing is agreed on first, and the call has no opening.

It saves a round trip and a packet. Only for jobs that wait for every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netsum.collectives.abort import give_up, take_rest
from netsum.collectives.call import Context
from netsum.collectives.pipeline import BlockGroup, BlockPipeline
from netsum.core.progress import Flow
from netsum.errors import CallError
from netsum.numeric.fixed_point import Array
from netsum.wire.schema import Status

Encode = Callable[[range], tuple[Array, Sequence[Status] | None]]
"""Lanes and statuses of these blocks; None: all are OK."""


def send_at_once(context: Context, pipeline: BlockPipeline, encode: Encode, error: CallError | None) -> Flow:
    """The flow that sends all blocks; returns the groups, complete. If the call has been given up, those that are not in progress
    bring no values, and are not among them. ``error`` is why this rank gives it up, if it does, and is raised."""
    if error is not None:
        yield from give_up(context, error, pipeline.partition.number, pipeline.op, pipeline.lane)
    groups: list[BlockGroup] = []
    begun = 0
    for numbers in pipeline.partition.groups():
        if groups and groups[0].aborted is not None:
            break
        lanes, statuses = encode(numbers)
        begun, final = numbers.stop, numbers.stop == pipeline.partition.number
        groups.append(pipeline.submit(lanes, numbers, statuses, final=final))
        if not final:
            yield pipeline.room()
    yield lambda: not sum([group.missing for group in groups])
    if (call := groups[0].aborted) is not None:
        yield from take_rest(context, call, begun, pipeline.op, pipeline.lane)
    return groups
