# SPDX-License-Identifier: MIT
"""The generator: pure, and its predictions against another model of the switch."""

from __future__ import annotations

import pytest

from tests.protocol.frames import RIGHT, Datagram, internet_checksum
from tests.system.fuzz.expect import CHANGES, Expectation, checksum_of, udp_checksum_of
from tests.system.fuzz.generate import make_batch
from tests.system.fuzz.setup import make_blocks
from tests.system.fuzz.targets import InProcess


@pytest.fixture(scope="module")
def expectation() -> Expectation:
    return Expectation(make_blocks(InProcess()))


def test_a_batch_follows_from_seed_and_number(expectation: Expectation) -> None:
    once, again = (make_batch(expectation, 5, 3, 200) for _ in range(2))
    assert once == again
    assert make_batch(expectation, 5, 3, 50).packets == once.packets[:50]
    assert make_batch(expectation, 5, 4, 200).packets != once.packets
    assert make_batch(expectation, 6, 3, 200).packets != once.packets


def test_no_packet_is_one_that_a_block_waits_for(expectation: Expectation) -> None:
    batch = make_batch(expectation, 1, 0, 2000)
    assert batch.left_out > 0
    assert not {verdict.fate for verdict in batch.verdicts} & CHANGES


def test_batches_are_of_all_sorts(expectation: Expectation) -> None:
    frames = [frame for _, frame in make_batch(expectation, 1, 0, 5000).packets]
    assert min(map(len, frames)) < 14
    assert max(map(len, frames)) > 4096
    assert {port for port, _ in make_batch(expectation, 1, 0, 5000).packets} == {0, 1, 2, 3, 4}
    assert sum(frame[12:14] == b"\x81\x00" for frame in frames) > 5
    assert len(set(frames)) > 0.9 * len(frames)


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256, 257])
def test_checksums(size: int) -> None:
    good = Datagram(1, 2, 0x0A000001, 0x0A0000FE, 7, body=bytes(range(256)) * 2).but(udp_checksum=RIGHT)
    good = good.but(body=good.body[:size])
    frame = good.to_bytes()
    assert udp_checksum_of(frame) == Datagram.parse(frame).udp_checksum
    assert checksum_of(frame[14:24] + frame[26:34]) == Datagram.parse(frame).ip_checksum
    assert internet_checksum(frame[14:34]) == 0


def test_checksum_of_nothing_but_zeros() -> None:
    assert checksum_of(bytes(20)) == 0xFFFF
    assert checksum_of(b"\xff\xff") == 0
