# SPDX-License-Identifier: MIT
"""Degrade jobs on each real switch: the controller's scans close blocks that a member is late for."""

from __future__ import annotations

import struct

from netsum.descriptor import Descriptor
from netsum.wire.schema import AgeOp
from netsum_controller import Controller, JobSpec
from netsum_controller.state.model import Late

from tests.controller.items import job_entry
from tests.controller.live import contribute, port_of, receive, run_job, summed
from tests.controller.members import TOKEN
from tests.switch.harness.api import SwitchUnderTest
from tests.threads import until

EXP = 20.0
"""Milliseconds."""


def degrade_job(controller: Controller, *, quorum: int = 2, ranks: int = 3) -> list[Descriptor]:
    """A job of three that degrades; the first ``ranks`` of them have joined."""
    members = ("h1", "h2", "h4")
    controller.create_job(
        JobSpec(name="resnet", members=members, window=8, token=TOKEN, late=Late.DEGRADE, block_exp=EXP, quorum=quorum)
    )
    return [controller.join("resnet", TOKEN, rank, "a") for rank in range(ranks)]


def block_exp(controller: Controller) -> int:
    """The block_exp on the switch, in microseconds."""
    return job_entry(controller).block_exp


def value(payload: bytes) -> int:
    return int(struct.unpack_from(">I", payload)[0])


def test_a_late_block_is_closed_and_the_late_member_is_told(live: SwitchUnderTest, on_live: Controller) -> None:
    members = degrade_job(on_live)
    assert (members[2].block_exp_ms, members[2].quorum) == (EXP, 2)
    assert block_exp(on_live) == 1000 * EXP
    on_live.serve(watch=None)
    first = members[0].first_block_id
    contribute(live, members[0], first, 5)
    contribute(live, members[1], first, 7)
    for member in members:  # a scan's result is a notice; no member had to send anything again
        header, payload = receive(live, member)
        expected = AgeOp.LATE if member is members[2] else AgeOp.AGED
        assert (header.block_id, header.degraded, header.worker_cnt, header.age_op) == (first, 1, 2, expected)
        assert payload == b""
    contribute(live, members[0], first, 5)  # fetches the payload
    header, payload = receive(live, members[0])
    assert (header.age_op, header.worker_cnt, value(payload)) == (AgeOp.AGED, 2, 12)
    contribute(live, members[2], first, 1000)  # too late: the others already hold the result, so it no longer changes
    header, payload = receive(live, members[2])
    assert (header.age_op, header.worker_cnt, value(payload)) == (AgeOp.LATE, 2, 12)
    until(lambda: on_live.context.counters.of("scanned_blocks").get(("resnet",)) == 1)
    assert summed(live, members, first + 1, [1, 2, 3]) == 6


def test_below_the_quorum_nothing_is_closed(live: SwitchUnderTest, on_live: Controller) -> None:
    members = degrade_job(on_live, quorum=2)
    first = members[0].first_block_id
    on_live.serve(watch=None)
    contribute(live, members[0], first, 5)
    contribute(live, members[0], first + 1, 1)
    contribute(live, members[1], first + 1, 1)
    assert receive(live, members[0])[0].block_id == first + 1  # the younger block, which has its quorum
    (report,) = on_live.diagnose("resnet").blocks
    assert (report.block, report.seen) == (first, (0,))


def test_before_all_have_joined_nothing_is_closed(live: SwitchUnderTest, on_live: Controller) -> None:
    on_live.serve(watch=None)
    members = degrade_job(on_live, quorum=1, ranks=2)
    assert block_exp(on_live) == 0
    first = members[0].first_block_id
    contribute(live, members[0], first, 5)
    assert live.recv(port_of(members[0]), 5 * EXP / 1000) is None
    members.append(on_live.join("resnet", TOKEN, 2, "a"))
    assert block_exp(on_live) == 1000 * EXP
    assert receive(live, members[0])[0].worker_cnt == 1  # it has been old enough for a long time
    # A new epoch waits again.
    again = on_live.join("resnet", TOKEN, 0, "b")
    assert block_exp(on_live) == 0
    live.drain()
    contribute(live, again, again.first_block_id, 5)
    assert live.recv(port_of(again), 5 * EXP / 1000) is None


def test_evicted_from_a_job_that_degrades(live: SwitchUnderTest, on_live: Controller) -> None:
    """A block that has all remaining members is not a partial result."""
    members = degrade_job(on_live, quorum=3)
    on_live.serve(watch=None)
    first = members[0].first_block_id
    blocks = (first, first + 7)  # a whole window
    for block in blocks:
        contribute(live, members[0], block, 5)
        contribute(live, members[1], block, 7)
    assert live.recv(port_of(members[0]), 5 * EXP / 1000) is None  # below the quorum
    on_live.evict("resnet", 2)
    for block in blocks:  # closed by the command's scan or by one of the scanner's
        for member in members[:2]:
            header, _ = receive(live, member)
            assert (header.block_id, header.worker_cnt, header.degraded, header.age_op) == (block, 2, 0, AgeOp.NORMAL)
    assert on_live.job("resnet").quorum_now == 2
    contribute(live, members[0], first + 8, 1)
    contribute(live, members[1], first + 8, 2)
    assert value(receive(live, members[0])[1]) == 3


def test_jobs_that_wait_are_not_scanned(live: SwitchUnderTest, on_live: Controller) -> None:
    members = run_job(on_live)
    on_live.serve(watch=None)
    contribute(live, members[0], members[0].first_block_id, 1)
    contribute(live, members[1], members[0].first_block_id, 2)
    assert live.recv(port_of(members[0]), 0.2) is None
    assert on_live.context.counters.of("scans") == {}
    contribute(live, members[2], members[0].first_block_id, 3)
    header, payload = receive(live, members[0])
    assert (header.age_op, header.degraded, value(payload)) == (AgeOp.NORMAL, 0, 6)


def test_scanning_goes_on_after_restarts(live: SwitchUnderTest, on_live: Controller) -> None:
    degrade_job(on_live)
    on_live.serve(watch=None)
    for number in range(2):
        live.restart()
        on_live.reconcile()
        members = [on_live.join("resnet", TOKEN, rank, f"b{number}") for rank in range(3)]
        live.drain()
        first = members[0].first_block_id
        contribute(live, members[0], first, 5)
        contribute(live, members[2], first, 7)
        assert receive(live, members[1])[0].age_op == AgeOp.LATE
        record = on_live.diagnose("resnet", first).blocks[0].record
        assert record is not None
        assert record["state"] == "done"
    until(lambda: on_live.context.counters.of("scanned_blocks").get(("resnet",)) == 2)
