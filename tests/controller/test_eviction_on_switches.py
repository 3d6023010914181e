"""Eviction on each real switch: blocks that waited for the evicted member finish, and later ones do without it."""

from __future__ import annotations

import struct

from netsum.wire import Outcome, Status
from netsum.wire.schema import AgeOp
from netsum_controller.controller import Controller

from tests.controller.live import contribute, receive, run_job, summed
from tests.controller.members import TOKEN
from tests.switch.harness.api import SwitchUnderTest
from tests.threads import until


def test_the_others_go_on(live: SwitchUnderTest, on_live: Controller) -> None:
    members = run_job(on_live)
    first = members[0].first_block_id
    blocks = [first, first + 1, first + 9]
    for block in blocks:
        contribute(live, members[0], block, 5)
        contribute(live, members[2], block, block - first)
    contribute(live, members[1], first + 2, 100)  # its part in an open block is kept
    contribute(live, members[0], first + 2, 5)
    contribute(live, members[0], first + 3, 5)  # and this still waits for rank 2
    until(lambda: on_live.stats("resnet").outcomes["accepted"] == 9)

    done = on_live.evict("resnet", 1)
    assert (done.closed, done.new_epoch) == (3, None)
    for member in (members[0], members[2]):
        for block in blocks:  # a notice each, in the order of their slots
            header, payload = receive(live, member)
            assert (header.block_id, header.src_cnt, header.degraded, payload) == (block, 2, 0, b"")
            assert header.age_op == AgeOp.NORMAL
    contribute(live, members[2], first + 9, 9)
    assert struct.unpack_from(">I", receive(live, members[2])[1]) == (14,)

    contribute(live, members[2], first + 2, 1)
    contribute(live, members[2], first + 3, 1)
    for total in (106, 6):
        for member in (members[0], members[2]):
            assert struct.unpack_from(">I", receive(live, member)[1]) == (total,)
    assert summed(live, [members[0], members[2]], first + 4, [3, 4]) == 7

    contribute(live, members[1], first + 5, 1)  # it is alive, and refused
    live.drain()
    contribute(live, members[1], first + 5, 1)
    frame = live.recv(2)
    assert frame is not None
    until(lambda: on_live.stats("resnet").outcomes["not_member"] == 2)
    assert not on_live.reconcile()[0].changed


def test_admitted_again(live: SwitchUnderTest, on_live: Controller) -> None:
    old = run_job(on_live)
    on_live.evict("resnet", 1)
    assert summed(live, [old[0], old[2]], old[0].first_block_id, [3, 4]) == 7
    on_live.admit("resnet", 1)
    contribute(live, old[0], old[0].first_block_id + 1, 1)
    header, _ = receive(live, old[0])
    assert (header.status, header.age_op) == (Status.REFUSED, Outcome.WRONG_PORT)
    members = [on_live.join("resnet", TOKEN, rank, "b") for rank in range(3)]
    assert summed(live, members, members[0].first_block_id, [1, 2, 3]) == 6


def test_all_but_one(live: SwitchUnderTest, on_live: Controller) -> None:
    members = run_job(on_live)
    first = members[0].first_block_id
    contribute(live, members[1], first, 7)
    until(lambda: on_live.stats("resnet").outcomes["accepted"] == 1)
    assert on_live.evict("resnet", 0).closed == 0
    assert on_live.evict("resnet", 2).closed == 1
    assert receive(live, members[1])[0].src_cnt == 1
    assert summed(live, [members[1]], first + 1, [9]) == 9
