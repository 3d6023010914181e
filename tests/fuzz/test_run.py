# SPDX-License-Identifier: MIT
"""Runs of the fuzzer: they find nothing on our switches, and they would find a fault."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, MutableSequence, Sequence

import pytest
from click.testing import CliRunner
from netsum.wire.schema import RECORD_FIELDS, Outcome, positions
from netsum_testbed.checking import Screen

from tests.full.commands import shell_code
from tests.system import SEARCH_PATH
from tests.system.fuzz.expect import Verdict
from tests.system.fuzz.run import FuzzPlan, FuzzTotals, SwitchFuzz, fuzz
from tests.system.fuzz.setup import SetupError
from tests.system.fuzz.site import JOBS, PAIR, TRIO
from tests.system.fuzz.targets import Echo, InProcess, Packet, Target

PACKETS = 3000


def fuzzed(target: Target, packets: int = PACKETS, **options: int) -> tuple[FuzzTotals, list[str]]:
    """The totals of a run on the target, and what it printed."""
    totals, said = FuzzTotals("any"), list[str]()
    SwitchFuzz(target, FuzzPlan(packets, **options), "any", totals, Screen(said.append)).run()
    return totals, said


@pytest.mark.full
def test_untrusted_senders_change_nothing(target: Target) -> None:
    totals, said = fuzzed(target)
    assert said == []
    assert not totals.failures
    tally = totals.tally("any")
    assert tally.packets == PACKETS
    assert sum(tally.outcomes.values()) + tally.forwarded + tally.forged + tally.arp == PACKETS
    refusals = {outcome.name.lower() for outcome in Outcome if outcome >= Outcome.DUPLICATE}
    changing = {
        "aged",
        "scanned",
        "parent_result",
        "resent",
        "parent_status",
        "early_payload",
    }  # no partial is on its way
    changing |= {"payload_missing"}  # nor has a payload gone ahead of one
    changing |= {"queried_parent"}  # and the leaf's job waits, so that it has nothing to query
    assert set(tally.outcomes) == refusals - changing, "a run this long meets every reason"
    assert 0 < tally.bytes_out < tally.bytes_in


class Broken(InProcess):
    """A switch with a fault that shows after the first thousand packets."""

    name = "broken"

    def __init__(self, fault: Callable[[Broken], None]) -> None:
        super().__init__()
        self.fault = fault

    def send(self, packets: Sequence[Packet], verdicts: Sequence[Verdict]) -> Echo:
        self.echo = super().send(packets, verdicts)
        self.fault(self)
        return self.echo

    def register(self, name: str) -> MutableSequence[int]:
        [cells] = [cells for full, cells in self.pipeline.registers.items() if full.endswith(name)]
        return cells


def forgets_a_source(switch: Broken) -> None:
    seen = next(low for field, low in positions(RECORD_FIELDS) if field.name == "seen")
    switch.register("record_register")[JOBS[TRIO].slot_of(JOBS[TRIO].first_block_id + 3)] &= ~(1 << seen)


def loses_a_gradient(switch: Broken) -> None:
    switch.register("buffer14")[JOBS[PAIR].slot_base] ^= 1


def drops_a_group(switch: Broken) -> None:
    switch.pipeline.pre.delete_group(TRIO)


def drops_an_entry(switch: Broken) -> None:
    table = switch._tables["rewrite"]
    for entry in list(table.entries())[:1]:
        table.delete(entry.match)


def miscounts(switch: Broken) -> None:
    [packets] = [array.packets for name, array in switch.pipeline.counters.items() if name.endswith("outcomes")]
    packets[PAIR * 32 + Outcome.STALE] += 1


def swallows_an_answer(switch: Broken) -> None:
    switch.echo.answers[1] -= 1


def amplifies(switch: Broken) -> None:
    switch.echo.answer_bytes[1] += 1 << 30


@pytest.mark.parametrize(
    "fault", [forgets_a_source, loses_a_gradient, drops_a_group, drops_an_entry, miscounts, swallows_an_answer]
)
def test_a_change_is_found(fault: Callable[[Broken], None]) -> None:
    totals, said = fuzzed(Broken(fault), 1000)
    assert totals.tally("any").state_changes
    assert said


def test_an_answer_that_is_larger_than_its_question_is_found() -> None:
    totals, _ = fuzzed(Broken(amplifies), 1000)
    assert (totals.tally("any").amplified, totals.exit_code) == (1, 1)


def test_an_exception_of_the_program_is_a_crash() -> None:
    class Raises(InProcess):
        def send(self, packets: Sequence[Packet], verdicts: Sequence[Verdict]) -> Echo:
            self.pipeline.process = None  # type: ignore[method-assign,assignment]
            return super().send(packets, verdicts)

    totals, said = fuzzed(Raises(), 1000)
    assert totals.tally("any").crashes == 1
    assert "the program failed on" in said[0]


def test_blocks_that_are_not_as_they_are_meant_to_be_end_the_run() -> None:
    target = InProcess()
    jobs = next(table for name, table in target.pipeline.tables.items() if name.endswith("job.job"))
    for entry in list(jobs.entries()):
        jobs.delete(entry.match)
    with pytest.raises(SetupError, match="block 0 of job 77 does not age"):
        fuzzed(target, 10)


@pytest.mark.full
def test_command_ends_in_a_json_line() -> None:
    done = CliRunner().invoke(fuzz, ["--packets", "2000", "--switch", "embedded", "--seed", "7"])
    assert done.exit_code == 0, done.output
    line = json.loads(done.output.splitlines()[-1])
    assert {name: line[name] for name in ("packets", "crashes", "state_changes", "amplified", "seed")} == {
        "packets": 2000, "crashes": 0, "state_changes": 0, "amplified": 0, "seed": 7,
    }  # fmt: skip
    assert line["bytes_out"] <= line["bytes_in"]
    assert line["switches"]["embedded"]["packets"] == 2000


def test_exit_codes() -> None:
    totals = FuzzTotals("any", 1)
    assert totals.exit_code == 1, "nothing was sent: nothing was shown"
    totals.tally("embedded").packets = 5
    assert totals.exit_code == 0
    totals.interrupted = True
    assert totals.exit_code == 130
    totals.tally("bmv2").state_changes = 1
    assert totals.exit_code == 1


@pytest.mark.root
@pytest.mark.bmv2
def test_ctrl_c_leaves_nothing_behind() -> None:
    """The line of JSON comes all the same, with what was sent until then; namespace and switch are gone."""
    command = [sys.executable, "-m", "tests.system", "fuzz", "--packets", "100000000", "--switch", "bmv2"]
    environment = {**os.environ, "PYTHONPATH": SEARCH_PATH}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("bmv2: 100,000,000 packets")
        process.send_signal(signal.SIGINT)
        line = json.loads(process.stdout.read().splitlines()[-1])
    assert shell_code(process.returncode) == 130
    assert (line["interrupted"], line["crashes"], line["state_changes"]) == (True, 0, 0)
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"netsum-{process.pid}-" not in names
