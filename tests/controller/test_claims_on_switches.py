"""A state file is lost, restored or duplicated: no old sum comes back, on each real switch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from netsum.descriptor import Descriptor
from netsum_controller.controller import Controller
from netsum_controller.errors import StateError

from tests.controller.live import run_job, summed
from tests.switch.harness.api import SwitchUnderTest


def run(controller: Controller, name: str, *hosts: str) -> list[Descriptor]:
    return run_job(controller, name, hosts=hosts)


def test_sums_after_the_state_file_is_lost(live: SwitchUnderTest, on_live: Controller, tmp_path: Path) -> None:
    for step in range(8):
        members = run(on_live, "churn", "h1", "h2")
        assert summed(live, members, members[0].first_block_id, [1600, step]) == 1600 + step
        on_live.delete_job("churn")
    overtaken = members[0].epoch
    with Controller(on_live.topology, tmp_path / "new.db") as new:
        new.site.store._set_meta("next_epoch", overtaken)  # the clock may give any number
        assert not new.push()[0].program_pushed
        for name in ("a", "b"):
            members = run(new, name, "h1", "h2")
            assert summed(live, members, members[0].first_block_id, [7, 8]) == 15


def test_sums_after_the_state_file_is_restored(live: SwitchUnderTest, on_live: Controller, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "state.db", tmp_path / "copy.db")
    x = run(on_live, "x", "h1", "h2")
    assert summed(live, x, x[0].first_block_id, [10, 20]) == 30
    on_live.delete_job("x")
    with Controller(on_live.topology, tmp_path / "copy.db") as restored:
        assert not restored.push()[0].changed
        y = run(restored, "y", "h3", "h4")
        assert y[0].job_id == x[0].job_id
        assert {one.epoch for one in y}.isdisjoint(one.epoch for one in x)
        assert {one.host.udp_port for one in y}.isdisjoint(one.host.udp_port for one in x)
        assert summed(live, y, y[0].first_block_id, [100, 200]) == 300


def test_the_second_of_two_controllers_is_told(live: SwitchUnderTest, on_live: Controller, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "state.db", tmp_path / "copy.db")
    x = run(on_live, "x", "h1", "h2")
    with Controller(on_live.topology, tmp_path / "copy.db") as second:
        with pytest.raises(StateError, match=r"switch s1 has jobs that .*copy.db does not know \(id 1 in epoch"):
            run(second, "y", "h3", "h4")
        assert second.jobs() == []
        assert summed(live, x, x[0].first_block_id, [10, 20]) == 30, "the first is not disturbed"
        second.push(take_over=True)
        y = run(second, "y", "h3", "h4")
        assert summed(live, y, y[0].first_block_id, [100, 200]) == 300
    with pytest.raises(StateError, match="another controller serves the switch"):
        run(on_live, "z", "h1", "h2")


def test_loading_the_program_forgets_numbers_and_records_together(live: SwitchUnderTest, on_live: Controller) -> None:
    members = run(on_live, "x", "h1", "h2")
    summed(live, members, members[0].first_block_id, [1, 2])
    slot = on_live.job("x").slot_base
    with on_live.site.client("s1") as client:
        assert client.claim(0) >= members[0].epoch
        assert client.query_records([slot])[slot].epoch == members[0].epoch
        client.push_pipeline()
        assert (client.claim(0), client.query_records([slot])[slot].epoch) == (0, 0)
        assert [client.claim(number) for number in (0xFFFF0000, 7, 0xFFFFFFFF, 0)] == [
            0,
            0xFFFF0000,
            0xFFFF0000,
            0xFFFFFFFF,
        ]
