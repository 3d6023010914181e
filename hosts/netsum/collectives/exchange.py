"""What broadcast, all_gather, gather, scatter and all_to_all are: bytes of one rank that come to another, or to everyone.

The source contributes its bytes, the others empty contributions; the switch's COPY sends them on. A block is finished when every
rank has answered, so no slot is used again before the receivers hold it: reliable like a reduction, and in the same window.
Its blocks never age out, since nothing could stand for the source's.

What is for one rank alone costs that rank a second round trip, and the room once more, where the last to answer was a rank that
neither has nor gets the bytes: its packet has no room for them, and the result comes as a notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from netsum.collectives.blocks import Blocks, room
from netsum.collectives.call import Context, agree, taking_part
from netsum.collectives.layout import Layout
from netsum.collectives.stream import Stream, all_in, place
from netsum.engine import SUBMITTED, Flow
from netsum.errors import Aborted, Behind
from netsum.fixed_point import Array
from netsum.wire.schema import EVERYONE, Lane, Op

_NO_CODES = np.zeros(0, np.uint16)


class Part(NamedTuple):
    """``size`` bytes of ``source`` for ``dest`` (a rank, or EVERYONE)."""

    source: int
    dest: int
    size: int


def exchange(context: Context, signature: tuple[object, ...], parts: Sequence[Part], mine: Sequence[Array]) -> Flow:
    """The flow of an exchange; returns the parts' bytes, those that this rank neither has nor gets as None. Parts from or for
    ranks that were evicted before are left out, on every rank alike; Aborted where no other part is left.

    ``mine`` are the parts whose source this rank is, in their order, as flat arrays of uint8. What a rank sends to itself is not
    sent.
    """
    agreed = yield from agree(context, signature, _NO_CODES)
    there = yield from taking_part(context, agreed)
    left_out = [not {part.source, part.dest} <= {*there, EVERYONE} for part in parts]
    if parts and all(left_out):
        who = ", ".join(map(str, context.report.evicted))
        raise Aborted(f"rank {who} was evicted, and there is nothing in this call for the others without it")
    rank = context.rank
    own = iter(mine)
    results: list[Array | None] = []
    groups = []
    cut = [
        None if gone or _stays(context, part) else Blocks(context, Layout.whole(part.size, part.dest), Lane.L8)
        for part, gone in zip(parts, left_out, strict=True)
    ]
    left = sum(blocks.number for blocks in cut if blocks is not None)
    for part, blocks in zip(parts, cut, strict=True):
        given = next(own) if part.source == rank else None
        if blocks is None:
            results.append(given)
            continue
        wanted = part.dest in (EVERYONE, rank)
        result = given if given is not None else np.empty(part.size, np.uint8) if wanted else None
        results.append(result)
        for numbers in blocks.groups():
            left -= len(numbers)
            if given is not None:
                # A copy: contributions are kept for a window longer than the call, and the caller's array is the caller's then.
                rows = blocks.rows(given, numbers).copy()
                group = blocks.submit(Op.COPY, rows, numbers, source=rank, more=left > 0)
            else:
                group = blocks.await_results(Op.COPY, numbers, wanted=wanted, source=part.source, more=left > 0)
            groups.append((group, blocks, part.source, result if given is None else None))
            yield room(context)
    yield SUBMITTED
    bereft: set[int] = set()
    for group, blocks, source, result in groups:
        yield all_in(group)
        stream = Stream(context, blocks, Op.COPY)
        stream.take(group)
        stream.raise_failure()
        if not group.data_cnt.all():
            bereft.add(source)
        elif result is not None:
            place(result, group.results, group.numbers)
    if context.report.lost:
        raise Behind(context.report)  # also where somebody was evicted: of what is gone, nobody can tell
    if bereft:
        # Finished, and nobody has given anything: the switch does not wait for a member that was evicted.
        raise Aborted(f"rank {min(bereft)} was evicted before it had sent what this call is to bring")
    return results


def rows_of(parts: Sequence[Array | None], counts: Sequence[int], like: Array) -> Array:
    """The parts of all ranks one behind the other, ``counts`` rows each, without those that were left out; new."""
    there = [rank for rank, part in enumerate(parts) if part is not None]
    rows = [part for part in parts if part is not None]
    return np.concatenate(rows).view(like.dtype).reshape(sum(counts[rank] for rank in there), *like.shape[1:])


def _stays(context: Context, part: Part) -> bool:
    """Whether the part's bytes need not be sent."""
    return part.source == part.dest or context.workers == 1


def as_bytes(array: Array) -> Array:
    """A C-contiguous array as a flat array of uint8."""
    return array.reshape(-1).view(np.uint8)
