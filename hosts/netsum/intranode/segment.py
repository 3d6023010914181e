# SPDX-License-Identifier: MIT
"""The memory that the ranks of a host share: rings of packets, and the state of each rank.

It is a memfd: it has no name, so nothing is left when a process is killed, and the size of /dev/shm, which containers limit, does
not matter. Its size is sealed.

**Why no rank reads what is still being written.** A ring has no counter in shared memory. Its writer reports to the reader how
many packets it has added through an eventfd, whose counter is the sum of what was added and not read yet. The kernel changes the
counter under a lock, so all that the writer stored before ``eventfd_write(n)`` is visible after the ``eventfd_read`` that returns
that n, on every processor; the reader reads no more packets than were reported. A place is used again only after its reader has
reported something newer to the writer in the same way, which orders its loads before the next store:

* a rank contributes block b only when it has taken every result up to b - W, and these were made of its contributions up to
  b - W: so W places hold all contributions that the leader may still read;
* the leader makes a result only of contributions of all ranks to its block, so each of them has by then taken every result that
  is a window older: W places hold all results that a rank may still read.

The words beside the rings (:attr:`Segment.begun` and so on) serve only error messages and the end of a job. Each is written by
one rank, with one store of 8 bytes, and nothing else is concluded from it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsum.packet_batch import ReceiveBatch, Rows
from netsum.wire.codec import Header, count_alike, pack_headers
from netsum.wire.schema import HEADER_BYTES

_PAGE: Final = 4096
_WORDS: Final = 4
"""Rows of words, one word for each rank."""
_RECEIVED_END: Final = 1
"""Where in the last row; at 0 is the leader's failure."""
_NUMBER_BITS: Final = 16
_REASON_BITS: Final = 8
_SERIAL_BITS: Final = 40
UNKNOWN: Final = 255
"""The reason of a refusal that has no name here."""
DIFFER: Final = 0
"""The reason where the ranks' calls differ, or the leader has given its own up; no refusal is numbered so."""


class LeaderFailure(NamedTuple):
    """Why block ``serial`` gets no result: the switch has refused it for this ``reason`` (an Outcome), or else UNKNOWN or DIFFER.
    ``number`` counts the leader's failures; 0: there was none."""

    number: int
    reason: int
    serial: int


NO_FAILURE: Final = LeaderFailure(0, 0, 0)


class Ring:
    """W packets, of which number n is in the place n mod W: the first ``sizes[n % W]`` bytes of ``rows[n % W]``.

    Attributes:
        written: the packets that were added so far, as far as this process knows.
        taken: of these, the ones that this process has taken.
    """

    def __init__(self, rows: Rows, sizes: NDArray[np.int64]) -> None:
        self.rows = rows
        self.sizes = sizes
        self.written = self.taken = 0

    @classmethod
    def private(cls, window: int, packet_bytes: int) -> Ring:
        """A ring that no other process sees."""
        return cls(np.zeros((window, packet_bytes), np.uint8), np.zeros(window, np.int64))

    def _places(self, first: int, number: int) -> slice:
        """The places of at most ``number`` packets from this one on, as far as they are in a row."""
        at = first % len(self.rows)
        return slice(at, min(at + number, len(self.rows)))

    def add(self, packets: Rows) -> None:
        """Copy packets of one size, one a row."""
        size = packets.shape[1]
        while len(packets):
            places = self._places(self.written, len(packets))
            number = places.stop - places.start
            self.rows[places, :size] = packets[:number]
            self.sizes[places] = size
            self.written += number
            packets = packets[number:]

    def add_results(self, header: Header, payloads: Rows) -> None:
        """Add results, whose headers differ only in their block ids, which count up."""
        size = payloads.shape[1]
        header = header._replace(lane_cnt=size >> header.lane, key=0)
        while len(payloads):
            places = self._places(self.written, len(payloads))
            number = places.stop - places.start
            pack_headers(header, self.rows[places])
            self.rows[places, HEADER_BYTES : HEADER_BYTES + size] = payloads[:number]
            self.sizes[places] = HEADER_BYTES + size
            self.written += number
            payloads, header = payloads[number:], header._replace(block_id=header.block_id + number)

    def take(self) -> ReceiveBatch:
        """The packets that were not taken yet, as far as they are in a row; views, until the next packet is sent."""
        places = self._places(self.taken, self.written - self.taken)
        self.taken += places.stop - places.start
        return ReceiveBatch(self.rows[places], self.sizes[places].copy())

    def alike(self, number: int) -> int:
        """The number of packets, at most ``number``, from the next one to be taken on, that differ only in their block ids and
        are in a row."""
        places = self._places(self.taken, number)
        return count_alike(self.rows[places], self.sizes[places])

    def next(self, number: int) -> tuple[Rows, int]:
        """Take ``number`` packets that are alike; returns their rows and the size of each."""
        places = self._places(self.taken, number)
        self.taken += number
        return self.rows[places], int(self.sizes[places.start])


class Segment:
    """The shared memory of ``ranks`` ranks, by their index on this host: 0 is the leader's.

    Attributes:
        results: the ring that the leader fills.
        contributions: the ring of each rank but the leader, by index - 1.
        begun: how many blocks each rank has begun.
        left: 1 for each rank that has left.
        refused: for each rank, 1 + the serial of its contribution that differs from the others'.
    """

    def __init__(self, fd: int, ranks: int, window: int, packet_bytes: int) -> None:
        """Map the memory ``fd``, which stays the caller's. Raises OSError or ValueError if it is not what these numbers say."""
        memory = map_memory(fd, self.size(ranks, window, packet_bytes))
        words = np.frombuffer(memory, np.uint64, _WORDS * ranks).reshape(_WORDS, ranks)
        self.begun, self.left, self.refused, self._shared = words
        sizes = np.frombuffer(memory, np.int64, ranks * window, words.nbytes).reshape(ranks, window)
        start = rounded(words.nbytes + sizes.nbytes)
        rows = np.frombuffer(memory, np.uint8, ranks * window * packet_bytes, start).reshape(ranks, window, packet_bytes)
        self.results, *self.contributions = (Ring(*both) for both in zip(rows, sizes, strict=True))

    @staticmethod
    def size(ranks: int, window: int, packet_bytes: int) -> int:
        """Bytes that the ranks share: a window of the largest packets for each, and the words."""
        return rounded(8 * ranks * (_WORDS + window)) + ranks * window * packet_bytes

    @classmethod
    def create(cls, ranks: int, window: int, packet_bytes: int) -> int:
        """Make the memory; returns its descriptor, which the caller closes. Raises OSError if the host has not enough."""
        return create_memory(cls.size(ranks, window, packet_bytes))

    @property
    def failure(self) -> LeaderFailure:
        """The leader's last failure."""
        word = int(self._shared[0])
        number, reason = divmod(word >> _SERIAL_BITS, 1 << _REASON_BITS)
        return LeaderFailure(number, reason, word & (1 << _SERIAL_BITS) - 1)

    @failure.setter
    def failure(self, failure: LeaderFailure) -> None:
        number, reason, serial = failure
        self._shared[0] = (number % (1 << _NUMBER_BITS) << _REASON_BITS | reason) << _SERIAL_BITS | serial

    @property
    def received_end(self) -> int:
        """Every result that the leader has seen is of a block below this serial."""
        return int(self._shared[_RECEIVED_END])

    @received_end.setter
    def received_end(self, value: int) -> None:
        self._shared[_RECEIVED_END] = value


def create_memory(size: int) -> int:
    """Make memory of this size, which cannot change; returns its descriptor. Raises OSError if the host has not enough."""
    fd = os.memfd_create("netsum", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _seals())
    except BaseException:
        os.close(fd)
        raise
    return fd


def map_memory(fd: int, size: int) -> mmap.mmap:
    """Map what :func:`create_memory` has made. Raises OSError, or ValueError if it is something else."""
    if os.fstat(fd).st_size != size or fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _seals() != _seals():
        raise ValueError(f"shared memory of {os.fstat(fd).st_size} bytes, must be {size}, sealed")
    return mmap.mmap(fd, size)


def _seals() -> int:
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def rounded(size: int) -> int:
    """The size in whole pages."""
    return -(-size // _PAGE) * _PAGE
