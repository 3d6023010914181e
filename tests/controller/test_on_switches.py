# SPDX-License-Identifier: MIT
"""The controller and the P4 program together, on each real switch: contributions go in, results come out."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from netsum.wire import Outcome, Status
from netsum.wire.schema import AgeOp
from netsum_controller import Controller, JobSpec
from netsum_controller.errors import BusyError, StateError, SwitchError
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.state.model import JobState

from tests.controller.conftest import NETSUM
from tests.controller.live import contribute, port_of, receive, run_job, summed
from tests.controller.members import TOKEN, rejoin
from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.launch import start
from tests.switch.harness.p4shell import PYTHON as SHELL_PYTHON
from tests.threads import until


def test_blocks_are_summed(live: SwitchUnderTest, on_live: Controller) -> None:
    members = run_job(on_live)
    first = members[0].first_block_id
    for lap in range(3):  # the slots are used again
        for offset in range(0, 16, 5):
            assert summed(live, members, first + lap * 16 + offset, [lap, 10, 100 + offset]) == lap + 110 + offset
    counted = on_live.stats("resnet")
    assert (counted.outcomes["completed"], counted.outcomes["accepted"]) == (12, 24)
    assert [one.packets for one in counted.members] == [12, 12, 12]


def test_diagnosis_names_the_missing_ranks(live: SwitchUnderTest, on_live: Controller) -> None:
    members = run_job(on_live)
    block = members[0].first_block_id + 2
    contribute(live, members[0], block, 1)
    contribute(live, members[2], block, 1)
    contribute(live, members[2], block, 1)  # a duplicate: counted, not added
    until(lambda: sum(on_live.stats("resnet").outcomes.values()) == 3)
    before = time.monotonic()
    found = on_live.diagnose("resnet")
    (report,) = found.blocks
    assert (report.block, report.state, report.seen) == (block, "open", (0, 2))
    assert [person["host"] for person in report.missing] == ["h2"]
    (straggler,) = found.waiting_for
    assert (straggler.rank, straggler.block, straggler.last_block, straggler.packets) == (1, block, None, 0)
    assert found.hints == ("rank 1 (h2) has joined, and none of its packets has come",)
    assert report.age_ms is not None
    later = report.age_ms + 100
    until(lambda: (on_live.diagnose("resnet", block).blocks[0].age_ms or 0) >= later)
    assert time.monotonic() - before > 0.09
    assert on_live.stats("resnet").outcomes["duplicate"] == 1
    contribute(live, members[1], block, 5)
    assert struct.unpack_from(">I", receive(live, members[1])[1]) == (7,)
    assert on_live.diagnose("resnet").blocks == ()
    (done,) = on_live.diagnose("resnet", block).blocks
    assert (done.state, done.missing) == ("done", ())


def test_a_new_epoch_refuses_the_old(live: SwitchUnderTest, on_live: Controller) -> None:
    old = run_job(on_live, instance="a")
    assert summed(live, old, old[0].first_block_id, [1, 2, 3]) == 6
    new = run_job(on_live, instance="b")
    assert {one.epoch for one in new} == {old[0].epoch + 3}
    live.drain()
    contribute(live, old[0], old[0].first_block_id + 1, 9)
    header, payload = receive(live, old[0])
    assert (header.status, header.reason, payload) == (Status.REFUSED, Outcome.WRONG_PORT, b"")
    assert summed(live, new, new[0].first_block_id, [10, 20, 30]) == 60
    assert "earlier epoch" in " ".join(on_live.diagnose("resnet").hints)


def test_a_deleted_job_is_unknown_and_its_slots_are_clean(live: SwitchUnderTest, on_live: Controller) -> None:
    """A new job in an old job's slots never sees an old value."""
    old = run_job(on_live, "old")
    first = old[0].first_block_id
    assert summed(live, old, first, [1, 2, 3]) == 6
    contribute(live, old[0], first + 1, 1000)  # left open
    until(lambda: on_live.stats("old").outcomes["accepted"] == 3)
    gone = on_live.delete_job("old")
    contribute(live, old[0], first + 1, 1)
    header, _ = receive(live, old[0])
    assert (header.status, header.reason) == (Status.REFUSED, Outcome.UNKNOWN_JOB)
    new = run_job(on_live, "new")
    assert on_live.job("new").slot_base == gone.slot_base
    for offset in (0, 1):
        assert summed(live, new, new[0].first_block_id + offset, [7, 7, 7]) == 21
    assert on_live.stats("new").outcomes["completed"] == 2


def test_two_jobs_do_not_meet(live: SwitchUnderTest, on_live: Controller) -> None:
    a, b = run_job(on_live, "a"), run_job(on_live, "b")
    contribute(live, a[0], a[0].first_block_id, 1)
    assert summed(live, b, b[0].first_block_id, [4, 5, 6]) == 15
    on_live.delete_job("b")
    contribute(live, a[1], a[0].first_block_id, 2)
    contribute(live, a[2], a[0].first_block_id, 3)
    assert struct.unpack_from(">I", receive(live, a[0])[1]) == (6,)


def test_pushing_and_creating_twice_changes_nothing(live: SwitchUnderTest, on_live: Controller) -> None:
    members = run_job(on_live)
    contribute(live, members[0], members[0].first_block_id, 1)
    assert not on_live.push()[0].changed
    assert not on_live.create_job(JobSpec(name="resnet", members=("h1", "h2", "h4"), window=8)).created
    contribute(live, members[1], members[0].first_block_id, 2)
    contribute(live, members[2], members[0].first_block_id, 3)
    assert struct.unpack_from(">I", receive(live, members[0])[1]) == (6,)


def test_a_second_netsum_is_named(on_live: Controller, tmp_path: Path) -> None:
    with (
        on_live.context.client("s1") as first,
        Controller(on_live.topology, tmp_path / "another.db") as other,
        other.context.client("s1"),
        pytest.raises(SwitchError, match=r"another netsum took over as primary, one with another state file, .*--state"),
    ):
        first.push_pipeline()


def test_loading_the_program_again_leaves_no_second_replicas(live: SwitchUnderTest, on_live: Controller) -> None:
    run_job(on_live)
    (report,) = on_live.push(force=True)
    assert set(report.new_epochs) == {"resnet"}
    members = run_job(on_live, instance="b")
    assert members[0].epoch == report.new_epochs["resnet"] + 3  # that was to be resumed by the old ones
    assert summed(live, members, members[0].first_block_id, [1, 2, 3]) == 6
    assert all(live.recv(port_of(member), 0.3) is None for member in members)


def test_a_switch_that_starts_anew_gets_its_jobs_back(kind: str, on_live: Controller) -> None:
    before = run_job(on_live)
    other = start(kind)  # a new process in the old one's place knows nothing
    try:
        on_live.topology = on_live.topology.filled({"s1": {"p4runtime": other.grpc_address}})
        (report,) = on_live.reconcile()
        assert report.program_pushed
        assert not on_live.reconcile()[0].changed
        members = run_job(on_live, instance="b")
        assert members[0].epoch > before[0].epoch
        assert summed(other, members, members[0].first_block_id, [1, 2, 3]) == 6
    finally:
        other.close()


@pytest.mark.shell
def test_the_shell_on_a_live_switch(on_live: Controller, tmp_path: Path) -> None:
    """`netsum shell` reads and writes the program's tables by name; the controller goes on beside it."""
    members = run_job(on_live)
    (tmp_path / "star.yaml").write_text(on_live.topology.to_yaml())
    where = ["--topology", str(tmp_path / "star.yaml"), "--state", str(tmp_path / "state.db")]
    lines = [
        'print("members", len(list(table_entry["member"].read())))',
        'te = table_entry["forward"](action="forward_to")',
        'te.match["eth_dst"] = "02:00:00:00:00:99"',
        'te.action["port"] = "3"',
        "te.insert()",
        "exit",
    ]
    done = subprocess.run(
        [SHELL_PYTHON, *NETSUM[1:], *where, "shell"],
        input="\n".join([*lines, ""]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), "TERM": "dumb"},
    )
    assert done.returncode == 0, done.stderr
    assert "members 3" in done.stdout
    (report,) = on_live.reconcile()
    assert (report.inserted, report.modified, report.deleted) == (0, 0, 1)  # what the shell had added
    assert members[0].epoch == on_live.job("resnet").epoch.number


def test_other_traffic_is_forwarded(live: SwitchUnderTest, on_live: Controller) -> None:
    hosts = on_live.topology.hosts
    to_h2 = bytes.fromhex(hosts["h2"].mac.replace(":", "") + hosts["h1"].mac.replace(":", "")) + b"\x08\x00" + bytes(60)
    live.send(1, to_h2)
    assert live.recv(2) == to_h2
    everyone = b"\xff" * 6 + to_h2[6:]
    live.send(1, everyone)
    assert [live.recv(port) for port in (2, 3, 4)] == [everyone] * 3
    assert live.recv(1, 0.3) is None


def test_a_switch_restarts_and_the_members_go_on(live: SwitchUnderTest, on_live: Controller) -> None:
    """The process ends and comes back knowing nothing; the controller that serves notices, and the members rejoin, one
    of them with a result that the others lack: the block is summed again, from what they kept."""
    members = run_job(on_live)
    on_live.serve(watch=0.1)
    first = members[0].first_block_id
    assert summed(live, members, first, [1, 2, 3]) == 6
    assert summed(live, members, first + 1, [10, 20, 30]) == 60
    contribute(live, members[0], first + 2, 1)  # it will be forgotten
    until(lambda: on_live.stats("resnet").outcomes["accepted"] == 5)
    live.restart()
    until(lambda: on_live.job("resnet").epoch.resumes == members[0].epoch)
    until(lambda: on_live.job("resnet").state is JobState.READY)
    live.drain()
    contribute(live, members[0], first + 2, 1)  # nothing is let in before all have rejoined
    header, _ = receive(live, members[0])
    assert (header.status, header.reason) == (Status.REFUSED, Outcome.UNKNOWN_JOB)
    places = [Progress(member.epoch, first + needs) for member, needs in zip(members, (2, 1, 2), strict=True)]
    for rank in (0, 2):
        with pytest.raises(BusyError, match="rank"):
            rejoin(on_live, "resnet", rank, places[rank])
    rejoin(on_live, "resnet", 1, places[1])
    resumed = [rejoin(on_live, "resnet", rank, places[rank]) for rank in range(3)]
    assert {(one.resumes, one.first_block_id) for one in resumed} == {(members[0].epoch, first + 1)}
    assert summed(live, resumed, first + 1, [10, 20, 30]) == 60
    assert summed(live, resumed, first + 2, [1, 1, 5]) == 7
    contribute(live, members[0], first + 3, 1)
    header, _ = receive(live, members[0])
    assert (header.status, header.reason) == (Status.REFUSED, Outcome.WRONG_PORT)
    contribute(live, resumed[0], first, 1)  # what was finished before the restart is over
    header, _ = receive(live, resumed[0])
    assert header.status == Status.STALE


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
            assert (header.block_id, header.worker_cnt, header.degraded, payload) == (block, 2, 0, b"")
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
    assert (header.status, header.reason) == (Status.REFUSED, Outcome.WRONG_PORT)
    members = [on_live.join("resnet", TOKEN, rank, "b") for rank in range(3)]
    assert summed(live, members, members[0].first_block_id, [1, 2, 3]) == 6


def test_all_but_one(live: SwitchUnderTest, on_live: Controller) -> None:
    members = run_job(on_live)
    first = members[0].first_block_id
    contribute(live, members[1], first, 7)
    until(lambda: on_live.stats("resnet").outcomes["accepted"] == 1)
    assert on_live.evict("resnet", 0).closed == 0
    assert on_live.evict("resnet", 2).closed == 1
    assert receive(live, members[1])[0].worker_cnt == 1
    assert summed(live, [members[1]], first + 1, [9]) == 9


def test_sums_after_the_state_file_is_lost(live: SwitchUnderTest, on_live: Controller, tmp_path: Path) -> None:
    for step in range(8):
        members = run_job(on_live, "churn", hosts=("h1", "h2"))
        assert summed(live, members, members[0].first_block_id, [1600, step]) == 1600 + step
        on_live.delete_job("churn")
    overtaken = members[0].epoch
    with Controller(on_live.topology, tmp_path / "new.db") as new:
        new.context.store._set_meta("next_epoch", overtaken)  # the clock may give any number
        assert not new.push()[0].program_pushed
        for name in ("a", "b"):
            members = run_job(new, name, hosts=("h1", "h2"))
            assert summed(live, members, members[0].first_block_id, [7, 8]) == 15


def test_sums_after_the_state_file_is_restored(live: SwitchUnderTest, on_live: Controller, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "state.db", tmp_path / "copy.db")
    x = run_job(on_live, "x", hosts=("h1", "h2"))
    assert summed(live, x, x[0].first_block_id, [10, 20]) == 30
    on_live.delete_job("x")
    with Controller(on_live.topology, tmp_path / "copy.db") as restored:
        assert not restored.push()[0].changed
        y = run_job(restored, "y", hosts=("h3", "h4"))
        assert y[0].job_id == x[0].job_id
        assert {one.epoch for one in y}.isdisjoint(one.epoch for one in x)
        assert {one.host.udp_port for one in y}.isdisjoint(one.host.udp_port for one in x)
        assert summed(live, y, y[0].first_block_id, [100, 200]) == 300


def test_the_second_of_two_controllers_is_told(live: SwitchUnderTest, on_live: Controller, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "state.db", tmp_path / "copy.db")
    x = run_job(on_live, "x", hosts=("h1", "h2"))
    with Controller(on_live.topology, tmp_path / "copy.db") as second:
        with pytest.raises(StateError, match=r"switch s1 has jobs that .*copy.db does not know \(id 1 in epoch"):
            run_job(second, "y", hosts=("h3", "h4"))
        assert second.jobs() == []
        assert summed(live, x, x[0].first_block_id, [10, 20]) == 30, "the first is not disturbed"
        second.push(take_over=True)
        y = run_job(second, "y", hosts=("h3", "h4"))
        assert summed(live, y, y[0].first_block_id, [100, 200]) == 300
    with pytest.raises(StateError, match="another controller serves the switch"):
        run_job(on_live, "z", hosts=("h1", "h2"))


def test_loading_the_program_forgets_numbers_and_records_together(live: SwitchUnderTest, on_live: Controller) -> None:
    members = run_job(on_live, "x", hosts=("h1", "h2"))
    summed(live, members, members[0].first_block_id, [1, 2])
    slot = on_live.job("x").slot_base
    with on_live.context.client("s1") as client:
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
