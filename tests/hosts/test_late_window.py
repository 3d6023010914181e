"""A window of a job that degrades, whose rank was so late that results are gone."""

from __future__ import annotations

import pytest
from netsum.window.block import Block
from netsum.window.switch_window import SwitchWindow
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, Lane, Op, Status

from tests.hosts.network import JOB_ID, descriptor

FIRST = 4096


def straggler(blocks: int) -> tuple[SwitchWindow, list[int]]:
    """A window that has sent so many blocks at time 0, and the serials that are reported lost."""
    window = SwitchWindow(descriptor(0, 3, block_exp_ms=50.0, quorum=1, window=8))
    lost: list[int] = []
    for serial in range(blocks):
        block = Block(1, Op.SUM, Lane.L32, bytes(CHUNK_BYTES))
        block.on_lost = lambda serial=serial: lost.append(serial)
        window.submit(block)
    assert len(window.poll(0.0)) == blocks
    return window, lost


def stale(serial: int) -> memoryview:
    header = Header(JOB_ID, FIRST + serial, gen_id=1, op=Op.SUM, lane=Lane.L32, status=Status.STALE)
    return memoryview(pack_header(header))


@pytest.mark.parametrize("blocks", [2, 3, 8])
def test_a_lone_stale_does_not_stop_the_timer(blocks: int) -> None:
    """Everything was lost on the way: whatever is still outstanding must be asked for again, although nothing else comes."""
    window, lost = straggler(blocks)
    now = 0.0
    while not window.idle:
        deadline = window.next_deadline()
        assert deadline is not None, f"nothing will ever ask for what is missing (lost so far: {lost})"
        now = max(now, deadline)
        # Only one of the packets gets through.
        for packet in window.poll(now)[:1]:
            window.receive(stale(parse_header(bytes(packet[0])).block_id - FIRST), now)
    assert sorted(lost) == list(range(blocks))
    assert window.stats.lost == blocks
    assert now < 2.0


def test_a_flight_of_stale_answers_is_no_storm() -> None:
    window, lost = straggler(8)
    for serial in range(8):
        window.receive(stale(serial), 0.001)
    assert lost == list(range(8))
    assert window.poll(0.002) == []
    assert window.next_deadline() is None
    assert window.idle
