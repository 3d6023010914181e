# SPDX-License-Identifier: MIT
"""The longest way of any packet through the program: a scan of every slot, half of which it closes."""

from __future__ import annotations

import pytest
from netsum.wire.codec import Header
from netsum.wire.schema import CPU_PORT, SLOTS, PacketOutKind
from netsum_controller.entries import Item, JobEntry

from tests.system.fuzz import site, targets
from tests.system.fuzz.site import JOBS, TRIO, frame

WINDOW = SLOTS // 2


def one_large_job() -> list[Item]:
    """TRIO with all slots of the switch, from block 0 on."""
    entry = JobEntry(TRIO, JOBS[TRIO].epoch, JOBS[TRIO].all_sources, 0, SLOTS - 1, 0, 0, 0, WINDOW)
    return [item for item in site.items() if not isinstance(item, JobEntry)] + [entry]


@pytest.mark.full
def test_a_member_is_evicted_from_a_job_with_every_slot_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "items", one_large_job)
    target = targets.InProcess()
    stayed = JOBS[TRIO].members[:2]
    for block in range(WINDOW):
        for member in stayed:
            target.exchange(member.port, frame(member, Header(TRIO, block, gen_id=1)))
    [entry] = target._tables["job"].entries()
    params = list(entry.params)
    params[1] = sum(member.source for member in stayed)
    target._tables["job"].modify(entry.match, entry.action, tuple(params))
    scan = bytes((PacketOutKind.SCAN, 0, 0, 0x12, 0x34, 0, 0)) + frame(stayed[0], Header(TRIO, 0))
    sent = target.exchange(CPU_PORT, scan)
    [answer] = [data for port, data in sent if port == CPU_PORT]
    assert (answer[3:5], int.from_bytes(answer[5:7], "big")) == (b"\x12\x34", WINDOW)
    assert len(sent) == 1 + WINDOW * len(JOBS[TRIO].members)
