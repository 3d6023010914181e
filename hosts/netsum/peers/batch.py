# SPDX-License-Identifier: MIT
"""The rows of a batch. Another rank's rows are combined with them by the rules of a switch (PROTOCOL.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsum.core.blocks import Block
from netsum.numeric.fixed_point import WIRE_LANES, Array, combine_lanes
from netsum.peers.plan import Rows
from netsum.peers.wire import HERE, MESSAGE, RECORD, SIGNED
from netsum.wire.codec import Header
from netsum.wire.schema import EVERYONE, GIVING_UP, AgeOp, Lane, Op, Status

_MOST: Final = {"op": max(Op), "lane": Lane.L64, "status": Status.MISMATCH, "degraded": 1, "flags": SIGNED | HERE}
_FINGERPRINT: Final = ("call_fingerprint", "gen_id", "op", "lane", "dest")


class BatchMessage(NamedTuple):
    """Some rows of a batch of ``total`` rows: ``records`` are :data:`RECORD`, ``data`` is uint8[rows, block_bytes] padded with
    zeros."""

    first_id: int
    total: int
    records: Array
    data: NDArray[np.uint8]

    @property
    def rows(self) -> Rows:
        return tuple(self.records["row"].tolist())


def unpack(message: bytes, width: int) -> BatchMessage:
    """The inverse of :meth:`RankBatch.pack`, for blocks of ``width`` bytes; ValueError says what is wrong with the message."""
    if len(message) < MESSAGE.size:
        raise ValueError(f"a message of {len(message)} bytes")
    first_id, total, number = MESSAGE.unpack_from(message)
    start = MESSAGE.size + number * RECORD.itemsize
    if len(message) < start:
        raise ValueError(f"a message of {len(message)} bytes cannot have {number} rows")
    records = np.frombuffer(message, RECORD, number, MESSAGE.size)
    sizes = np.where(records["flags"] & HERE, records["size"], 0)
    if int(sizes.sum()) != len(message) - start or (number and int(sizes.max()) > width):
        raise ValueError(f"rows of {sizes.tolist()} bytes in a message of {len(message)}")
    for name, most in _MOST.items():
        if number and int(records[name].max()) > most:
            raise ValueError(f"a row with {name} {int(records[name].max())}")
    if number and int(sizes.min()) == width:
        return BatchMessage(first_id, total, records, np.frombuffer(message, np.uint8, -1, start).reshape(number, width))
    data = np.zeros((number, width), np.uint8)
    for row, size in enumerate(sizes.tolist()):
        data[row, :size] = np.frombuffer(message, np.uint8, size, start)
        start += size
    return BatchMessage(first_id, total, records, data)


class RankBatch:
    """One rank's state of a batch, at first its own contributions."""

    def __init__(self, blocks: Sequence[Block], block_bytes: int, apart: Rows = ()) -> None:
        """The payloads of the rows ``apart`` do not travel with the others: :meth:`store` brings them."""
        number = len(blocks)
        self.stored = 0
        """Bytes of payload that were written to memory: sums and results."""
        self._records: Array = np.zeros(number, RECORD)
        self._data = np.zeros((number, block_bytes), np.uint8)
        self._whole = np.ones(number, np.bool_)  # rows whose payload is what the record says
        for row, block in enumerate(blocks):
            size = len(block.payload)
            self._records[row] = (
                *(block.call_fingerprint, row, block.gen, size, block.op, block.lane, block.dest, block.status),
                *(not block.passing, bool(size), block.passing, SIGNED * (block.status not in GIVING_UP)),
            )
            if size:
                self._data[row, :size] = np.frombuffer(block.payload, np.uint8)
        self._apart = np.zeros(number, np.bool_)
        self._apart[list(apart)] = True
        for row in apart:
            self._whole[row] = blocks[row].op is Op.COPY and bool(blocks[row].payload)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def given_up(self) -> bool:
        """True if a member is known to have given a row up. It may not know which rows go apart, so the others must not wait for
        the payloads of such rows."""
        return int(self._records["status"].max()) >= Status.ABORT

    def lacks_payload(self, rank: int) -> bool:
        """True if a row that no member gave up has a payload for ``rank`` that has not come."""
        records = self._records
        ours = (records["dest"] == EVERYONE) | (records["dest"] == rank)
        return bool(((records["status"] == Status.OK) & ours & (records["size"] > 0) & ~self._whole).any())

    def pack(self, first_id: int, rows: Rows, bare: Rows) -> bytes:
        """The message with these rows. Those in ``bare`` travel as records alone."""
        index = np.array(rows)
        records = self._records[index]
        here = (records["size"] > 0) & ~np.isin(index, bare) & ~self._apart[index]
        records["flags"] = records["flags"] & SIGNED | here * np.uint8(HERE)
        head: bytes = MESSAGE.pack(first_id, len(self), len(rows)) + records.tobytes()
        sending = index[here]
        sizes = records["size"][here]
        if (sizes == self._data.shape[1]).all():
            return b"".join((head, self._data[sending].tobytes()))
        return head + b"".join(
            self._data[row, :size].tobytes() for row, size in zip(sending.tolist(), sizes.tolist(), strict=True)
        )

    def take(self, message: BatchMessage) -> None:
        """Replace our own rows by these."""
        index = message.records["row"].astype(np.int64)
        here = (message.records["flags"] & HERE != 0) & ~self._apart[index]
        self._records[index] = message.records
        self._data[index[here]] = message.data[here]
        self._whole[index] = here | (message.records["size"] == 0) | (self._whole[index] & self._apart[index])
        self.stored += int(message.records["size"][here].sum())

    def combine(self, message: BatchMessage) -> None:
        """Combine these rows with our own. Rows whose fingerprints differ become MISMATCH."""
        index = message.records["row"].astype(np.int64)
        ours, theirs = self._records[index], message.records
        we_sign, they_sign = (ours["flags"] & SIGNED) != 0, (theirs["flags"] & SIGNED) != 0
        both = (ours["size"] > 0) & (theirs["size"] > 0)
        differ = both & ((ours["size"] != theirs["size"]) | (ours["op"] == Op.COPY))
        for name in _FINGERPRINT:
            differ |= we_sign & they_sign & (ours[name] != theirs[name])
            ours[name] = np.where(we_sign, ours[name], theirs[name])
        with_us = ~self._apart[index]
        adding = both & ~differ & with_us
        self._add(index[adding], ours[adding], message.data[adding])
        first = (ours["size"] == 0) & (theirs["size"] > 0) & with_us
        self._data[index[first]] = message.data[first]
        self.stored += int(theirs["size"][adding | first].sum())
        ours["size"] = np.maximum(ours["size"], theirs["size"])
        ours["worker_cnt"] += theirs["worker_cnt"]
        ours["data_cnt"] += theirs["data_cnt"]
        ours["status"] = np.maximum(ours["status"], theirs["status"])
        ours["status"][differ] = Status.MISMATCH
        ours["degraded"] |= theirs["degraded"]
        ours["flags"] |= theirs["flags"] & SIGNED
        self._records[index] = ours

    def _add(self, index: NDArray[np.int64], records: Array, data: NDArray[np.uint8]) -> None:
        """Combine payloads; rows with the same operation and lane width are done together."""
        kinds = records["op"].astype(np.int64) << 8 | records["lane"]
        for kind in np.unique(kinds).tolist():
            chosen = kinds == kind
            lanes = WIRE_LANES[Lane(kind & 0xFF)]
            ours = self._data[index[chosen]].view(lanes)
            combine_lanes(Op(kind >> 8), ours, data[chosen].view(lanes))
            self._data[index[chosen]] = ours.view(np.uint8)

    def store(self, row: int, payload: NDArray[np.uint8]) -> None:
        """The result of a row that is apart."""
        self._data[row, : len(payload)] = payload
        self._whole[row] = True
        self.stored += len(payload)

    def result(self, row: int, job_id: int, block_id: int, rank: int) -> tuple[Header, memoryview]:
        """The finished row as a switch would send it to ``rank``: with a payload if it is for that rank and the status is OK."""
        record = self._records[row]
        status, dest, size = int(record["status"]), int(record["dest"]), int(record["size"])
        if status != Status.OK or dest not in (EVERYONE, rank):
            size = 0
        elif size and not self._whole[row]:
            raise RuntimeError(f"block {block_id}: the algorithm has not brought rank {rank} its payload")
        lane, degraded = int(record["lane"]), int(record["degraded"])
        header = Header(
            job_id=job_id,
            block_id=block_id,
            age_op=AgeOp.AGED if degraded else AgeOp.NORMAL,
            degraded=degraded,
            worker_cnt=int(record["worker_cnt"]),
            gen_id=int(record["gen_id"]),
            lane_cnt=size >> lane,
            op=int(record["op"]),
            lane=lane,
            status=status,
            dest=dest,
            data_cnt=int(record["data_cnt"]),
            call_fingerprint=int(record["call_fingerprint"]),
        )
        return header, self._data[row, :size].data
