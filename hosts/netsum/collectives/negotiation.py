# SPDX-License-Identifier: MIT
"""The beginning of a collective: the ranks agree that they make the same call, and on how large its values are, by an in-network
MAX. Codes that do not fit the first block follow in blocks of their own."""

from __future__ import annotations

import zlib
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum.collectives.abort import Verdict, take_remaining
from netsum.collectives.call import Context
from netsum.collectives.call_fingerprint import (
    CODE_WIRE,
    FINGERPRINT_LANES,
    FIRST_CODES,
    FIRST_LANES,
    CallFingerprint,
    header_fingerprint,
    other_call,
    truncated,
)
from netsum.collectives.history import Fingerprint
from netsum.collectives.partition import chunked
from netsum.core.blocks import Block
from netsum.core.progress import Condition, Flow
from netsum.errors import CallError, DesynchronizedError, MismatchError
from netsum.numeric.exponents import CODE_LANE, NOT_FINITE, ZERO_CODE, Codes, float_exponents
from netsum.numeric.fixed_point import WIRE_LANES, Numbers, pick
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, AgeOp, Lane, Op, Status

NO_CODES: Final[Codes] = np.zeros(0, np.uint16)
"""The codes of a call whose values need no agreement."""


class Negotiation:
    """The agreed codes (``values``), which arrive block by block.

    In a job that degrades, the others may have agreed without this member's codes (``late``), or results may be lost: those of
    codes (``unknown``), or that of the first block, which says what the call is (``opening_lost``). A member ``abstains``, and
    adds nothing to the call, if it has an error that the others do not know of, if it has nothing to contribute, or if no rank
    said what the call is (``no_contributor``).
    """

    def __init__(self, own: Codes, opening: bytes = b"", call: str = "") -> None:
        """``opening`` is how this rank's first block begins, ``call`` the call in words."""
        self._own = own
        self._opening = opening
        self._text = call
        self.values: Codes = np.zeros(len(own), np.uint16)
        self.missing = 0
        self.first: Codes | None = None
        self.verdict = Verdict()
        self.answered = False
        self.result_fingerprint = 0  # of the first block's result
        self.differ = False  # the first block's result has arrived and says that the ranks made different calls
        self.members: int | None = None  # that were in the first block
        self.late = False
        self.abstains = False
        self.no_contributor = False
        self.opening_lost = False
        self.lost = False
        self.unknown = np.zeros(len(own), np.bool_)

    def record_first(self, header: Header, payload: memoryview) -> None:
        self.verdict.add(header.status)
        self.late |= header.age_op == AgeOp.LATE
        self.no_contributor = not header.data_cnt
        self.members = header.worker_cnt
        self.result_fingerprint = header.call_fingerprint
        if len(payload) >= CHUNK_BYTES:
            alike = payload[: len(self._opening)] == self._opening
            if len(self._own) or not alike:
                self.first = np.frombuffer(payload, CODE_WIRE, FIRST_LANES).astype(np.uint16)
        else:
            alike = self.no_contributor
        self.differ = self.verdict.highest == Status.OK and not alike
        self.answered = True

    def record_first_lost(self) -> None:
        self.opening_lost = self.answered = True

    def check(self, own_error: CallError | None) -> None:
        """Raise if the first block's result says that a rank gave up or made another call. If that result is gone, this rank
        cannot know what the call was, nor how many blocks it had, and so none of the ids that follow."""
        if self.opening_lost:
            raise DesynchronizedError(
                "this rank was so late that it cannot know what call the others made, nor how many blocks it had: "
                "resync(), or join again"
            )
        self.verdict.raise_failure(own_error)
        if self.differ:
            raise MismatchError(self._different())
        self.abstains |= own_error is not None or self.no_contributor
        if self.first is not None:
            head = min(len(self.values), FIRST_CODES)
            self.values[:head] = self.first[FINGERPRINT_LANES : FINGERPRINT_LANES + head]

    def _different(self) -> str:
        ours = f"this rank's is {self._text}"
        if self.first is None:
            others = "the others' are not known"
        elif (theirs := other_call(self.first[:FINGERPRINT_LANES], np.frombuffer(self._opening, CODE_WIRE))) is None:
            others = "the others made several"
        elif theirs == truncated(self._text):
            others = "another rank's has other options, or counts"
        else:
            others = f"another rank's is {theirs}"
        return f"the ranks made different calls (operation, type, shape or options): {ours}, {others}"

    def record_codes(self, start: int, count: int, header: Header, payload: memoryview) -> None:
        self.verdict.add(header.status)
        self.late |= header.age_op == AgeOp.LATE
        if len(payload) >= count * CODE_LANE.bytes:
            lanes = np.frombuffer(payload, CODE_WIRE, count)
            self.values[start : start + count] = lanes
        self.missing -= 1

    def record_lost(self, start: int, count: int) -> None:
        self.lost = True
        self.unknown[start : start + count] = True
        self.missing -= 1

    def overflowed(self, numbers: Numbers) -> NDArray[np.bool_] | None:
        """The blocks among these that this member cannot contribute to, because its values are larger than was agreed, or it
        does not know what was. None: it can contribute to all."""
        if self.abstains:
            return np.ones(len(numbers), np.bool_)
        if not (self.late or self.lost) or not len(self._own):
            return None
        which = np.minimum(np.asarray(numbers, np.int64), len(self._own) - 1)
        return np.asarray((self._own[which] > self.values[which]) | self.unknown[which])

    def known(self, numbers: range) -> Condition:
        """The condition that the codes of these blocks have arrived, as those in the first block have."""
        last = min(numbers.stop, len(self._own))
        return lambda: last <= FIRST_CODES or self.missing == 0

    def complete(self) -> bool:
        return self.missing == 0

    def nonzero(self, numbers: range) -> Numbers:
        """The blocks among these that are finite, and not zeros, on every rank."""
        codes = self.values[numbers.start : numbers.stop]
        there = (codes != ZERO_CODE) & (codes < NOT_FINITE)
        return numbers if there.all() else numbers.start + np.flatnonzero(there)

    @property
    def not_finite(self) -> NDArray[np.int64]:
        """The blocks in which some rank has a NaN or an infinity."""
        return np.flatnonzero(self.values >= NOT_FINITE)

    def exponents(self, numbers: Numbers) -> NDArray[np.int64]:
        """The agreed exponents of these blocks of floats."""
        return float_exponents(pick(self.values, numbers))


def begin_unopened(context: Context, fingerprint: Fingerprint, blocks: int, exponents: NDArray[np.int64] | None = None) -> None:
    """Begin a call of ``blocks`` blocks in which nothing is agreed on first. It has no opening: its blocks carry a digest of what
    the call is, with the ``exponents`` that were predicted for it, and the switch refuses them where another rank has made
    another call. Only for jobs that wait for every rank: elsewhere a late rank learns from the opening what the others do."""
    own = CallFingerprint.of(fingerprint + context.whole)
    state = 0 if exponents is None else zlib.crc32(exponents.astype("<i8", copy=False).data)
    context.progress.text, context.call_fingerprint = own.text, header_fingerprint(own.digest ^ state, blocks)


def _open(context: Context, fingerprint: Fingerprint, codes: Codes, own_error: CallError | None) -> Negotiation:
    """Submit the first block of a call. Its result tells whether all ranks make the same call."""
    opening, _, text = CallFingerprint.of(fingerprint + context.whole)
    context.progress.text, context.progress.opening = text, 1
    agreed = Negotiation(codes, opening, text)
    agreed.abstains = not context.contribute
    block = Block(context.gen, Op.MAX, CODE_LANE, no_aging=context.no_aging)
    if own_error is not None:
        block.status = Status.ABORT
    elif context.contribute:
        block.payload = (opening + codes[:FIRST_CODES].astype(CODE_WIRE).tobytes()).ljust(CHUNK_BYTES, b"\0")
    else:
        block.passing, block.room = True, CHUNK_BYTES
    block.on_result, block.on_lost = agreed.record_first, agreed.record_first_lost
    context.session.submit(block)
    return agreed


def negotiate(context: Context, fingerprint: Fingerprint, codes: Codes, own_error: CallError | None = None) -> Flow:
    """Start a call: compare fingerprints and take the maximum of every code over the ranks.

    ``own_error`` (or the context's) is why this member gives the call up, if it does; then every rank raises, and this one raises
    that error. Returns the :class:`Negotiation`, whose later codes are still arriving.

    Cost: one round trip and one chunk; codes beyond the first FIRST_CODES travel with what the caller sends next, or
    before it where there is no switch.
    """
    own_error = context.error or own_error
    agreed = _open(context, fingerprint, codes, own_error)
    yield lambda: agreed.answered
    if agreed.verdict.highest == Status.ABORT:
        yield from take_remaining(context, agreed.result_fingerprint, 1, Op.MAX, CODE_LANE)
    agreed.check(own_error)
    agreed.missing = _submit_codes(context, codes, min(len(codes), FIRST_CODES), agreed)
    if context.session.combiner == "others":  # a message of codes would wait behind those of data, at each of its steps
        yield agreed.complete
    return agreed


def ranks_present(context: Context, agreed: Negotiation) -> Flow:
    """The ranks that take part in a call that waits for every rank, the same on every rank: all but those evicted before it.
    (A rank evicted later may be among them.)

    Cost: nothing if no rank was evicted; otherwise one round trip and one chunk, in which each rank says that it is there.
    """
    if agreed.members is None or agreed.members >= context.workers:
        return range(context.workers)
    here = np.zeros(CHUNK_BYTES, WIRE_LANES[Lane.L8])  # a lane for each rank that there can be
    here[context.rank] = 1
    received: list[list[int]] = []
    block = Block(context.gen, Op.MAX, Lane.L8, memoryview(here.tobytes()), no_aging=context.no_aging)
    block.on_result = lambda _header, payload: received.append(np.flatnonzero(np.frombuffer(payload, np.uint8)).tolist())
    block.on_lost = lambda: received.append([])
    context.progress.opening += 1
    context.session.submit(block)
    yield lambda: bool(received)
    (there,) = received
    if not there:
        raise DesynchronizedError("this rank was so late that it cannot know who takes part in the call: resync(), or join again")
    context.report.evicted = tuple(rank for rank in range(context.workers) if rank not in there)
    return there


def negotiate_codes(context: Context, codes: Codes) -> Flow:
    """Take the maximum of every code over the ranks, in the middle of a call."""
    agreed = Negotiation(codes)
    agreed.missing = _submit_codes(context, codes, 0, agreed)
    yield lambda: agreed.missing == 0
    agreed.verdict.raise_failure(None)
    return agreed.values


def _submit_codes(context: Context, codes: Codes, start: int, agreed: Negotiation) -> int:
    per_block = context.block_bytes // CODE_LANE.bytes
    blocks = 0
    for first in range(start, len(codes), per_block):
        part = codes[first : first + per_block]
        lanes = np.zeros(chunked(len(part) * CODE_LANE.bytes) // CODE_LANE.bytes, CODE_WIRE)
        lanes[: len(part)] = part
        block = Block(context.gen, Op.MAX, CODE_LANE, no_aging=context.no_aging)
        if agreed.abstains:
            block.passing, block.room = True, lanes.nbytes
        else:
            block.payload = memoryview(lanes.tobytes())
        block.on_result = partial(agreed.record_codes, first, len(part))
        block.on_lost = partial(agreed.record_lost, first, len(part))
        block.more = first + per_block < len(codes)
        context.session.submit(block)
        blocks += 1
    context.progress.opening += blocks
    return blocks
