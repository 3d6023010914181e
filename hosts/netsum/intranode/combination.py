# SPDX-License-Identifier: MIT
"""One contribution of several: what the switch would make of the contributions of a host's ranks to a block
(PROTOCOL.md, S20 to S26). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from netsum.core.blocks import Block
from netsum.numeric.fixed_point import HOST_LANES, WIRE_LANES, combine_lanes
from netsum.packet_batch import Rows
from netsum.wire.codec import Header
from netsum.wire.schema import GIVING_UP, HEADER_BYTES, MEMBER_STATUSES, Lane, Op, Status

_BITWISE: Final = frozenset({Op.AND, Op.OR, Op.XOR})
"""Operations that need no lanes, and so no particular byte order."""
_OPS: Final = frozenset(Op)


class Combination(NamedTuple):
    """``block`` is the contribution, still without its payload. It has the payloads of the contributions ``payloads``, combined;
    the ``refused`` ones differ from the others, and are what the switch refuses with FINGERPRINT_MISMATCH."""

    block: Block
    payloads: tuple[int, ...]
    refused: tuple[int, ...]


def combine_headers(headers: Sequence[Header], sizes: Sequence[int]) -> Combination:
    """Combine the contributions with these headers, in packets of these sizes, one for each rank.

    The first that is neither ABORT nor MISMATCH sets the fingerprint. If one differs from it, the block is MISMATCH: the rank
    that sent it will not send another. As in a switch's partial, no payload goes with a status that is not OK.
    """
    signers = [at for at, header in enumerate(headers) if header.status not in GIVING_UP]
    first = headers[signers[0] if signers else 0]
    lanes, payloads, refused = 0, [], []
    for at in signers:
        header = headers[at]
        second = lanes and header.lane_cnt
        differs = header.fingerprint != first.fingerprint or (second and (header.lane_cnt != lanes or header.op == Op.COPY))
        if differs or not _is_valid(header, sizes[at]):
            refused.append(at)
        elif header.lane_cnt:
            lanes = header.lane_cnt
            payloads.append(at)
    status = Status.MISMATCH if refused else Status(max(header.status for header in headers))
    if status != Status.OK:
        payloads = []
    block = Block(
        first.gen_id,
        Op(first.op) if first.op in _OPS else Op.MAX,
        Lane(first.lane & Lane.L64),
        status=status,
        dest=first.dest,
        room=0 if payloads or status != Status.OK else max(sizes) - HEADER_BYTES,
        final=any(header.final for header in headers),
        no_aging=bool(first.no_aging),
        passing=any(header.degraded for header in headers),
        call_fingerprint=first.call_fingerprint,
        counts=(sum(header.worker_cnt for header in headers), len(payloads)),
    )
    return Combination(block, tuple(payloads), tuple(refused))


def _is_valid(header: Header, size: int) -> bool:
    return (
        header.op in _OPS
        and header.lane <= Lane.L64
        and header.status in MEMBER_STATUSES
        and header.lane_cnt in (0, size - HEADER_BYTES >> header.lane)
    )


def combine_payloads(op: Op, lane: Lane, parts: Sequence[Rows], out: Rows) -> None:
    """Combine the payloads of blocks that are alike, (blocks, bytes), of one rank in each of ``parts``, into ``out``. Lanes do
    not carry into each other: sums are modulo 2^w."""
    if len(parts) == 1:
        out[...] = parts[0]
        return
    wire = HOST_LANES[lane] if op in _BITWISE else WIRE_LANES[lane]
    held = parts[0].view(wire).astype(HOST_LANES[lane])
    for part in parts[1:]:
        combine_lanes(op, held, part.view(wire))
    out.view(wire)[...] = held
