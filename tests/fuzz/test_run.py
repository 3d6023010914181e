"""Runs of the fuzzer: that they find nothing on our switches, and that they would find something."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import MutableSequence, Sequence

import pytest
from click.testing import CliRunner
from netsum.wire.schema import Outcome
from netsum_testbed.checking import Screen
from netsum_trials import SEARCH_PATH
from netsum_trials.strangers.command import fuzz
from netsum_trials.strangers.expect import Verdict
from netsum_trials.strangers.in_process import InProcess
from netsum_trials.strangers.report import FuzzTotals
from netsum_trials.strangers.run import Plan, Run
from netsum_trials.strangers.setup import SetupError
from netsum_trials.strangers.site import PAIR, TRIO
from netsum_trials.strangers.target import Echo, Packet, Target

PACKETS = 3000


def fuzzed(target: Target, packets: int = PACKETS, **options: int) -> tuple[FuzzTotals, list[str]]:
    """What a run on the target came to, and what it said."""
    totals, said = FuzzTotals("any"), list[str]()
    Run(target, Plan(packets, **options), "any", totals, Screen(said.append)).run()
    return totals, said


def test_strangers_change_nothing(target: Target) -> None:
    totals, said = fuzzed(target)
    assert said == []
    assert not totals.failures
    tally = totals.tally("any")
    assert tally.packets == PACKETS
    assert sum(tally.outcomes.values()) + tally.forwarded + tally.forged + tally.arp == PACKETS
    refusals = {outcome.name.lower() for outcome in Outcome if outcome >= Outcome.DUPLICATE}
    changing = {"aged", "swept", "returned", "resent", "told"}  # no partial is on its way
    changing |= {"asked"}  # and the leaf's job waits, so that it has nothing to ask
    assert set(tally.outcomes) == refusals - changing, "a run this long meets every reason"
    assert 0 < tally.bytes_out < tally.bytes_in


class Broken(InProcess):
    """A switch with a fault that shows after the first thousand packets."""

    name = "broken"

    def send(self, packets: Sequence[Packet], verdicts: Sequence[Verdict]) -> Echo:
        self.echo = super().send(packets, verdicts)
        self.fail()
        return self.echo

    def fail(self) -> None:
        raise NotImplementedError

    def register(self, name: str) -> MutableSequence[int]:
        [values] = [array.values for full, array in self.pipeline.registers.items() if full.endswith(name)]
        return values


class ForgetsASource(Broken):
    def fail(self) -> None:
        self.register("record_register")[TRIO.slot_of(TRIO.block(3))] &= ~(1 << 192)


class LosesAGradient(Broken):
    def fail(self) -> None:
        self.register("buffer14")[PAIR.slot_of(PAIR.block(0))] ^= 1


class DropsAGroup(Broken):
    def fail(self) -> None:
        self.pipeline.pre.delete_group(TRIO.job_id)


class DropsAnEntry(Broken):
    def fail(self) -> None:
        table = self._tables["rewrite"]
        for entry in list(table.entries())[:1]:
            table.delete(entry.match)


class Miscounts(Broken):
    def fail(self) -> None:
        [packets] = [array.packets for name, array in self.pipeline.counters.items() if name.endswith("outcomes")]
        packets[PAIR.job_id * 32 + Outcome.STALE] += 1


class SwallowsAnAnswer(Broken):
    def fail(self) -> None:
        self.echo.answers[1] -= 1


@pytest.mark.parametrize(
    "kind", [ForgetsASource, LosesAGradient, DropsAGroup, DropsAnEntry, Miscounts, SwallowsAnAnswer]
)
def test_a_change_is_found(kind: type[Broken]) -> None:
    totals, said = fuzzed(kind(), 1000)
    assert totals.tally("any").state_changes
    assert said


def test_an_answer_that_is_larger_than_its_question_is_found() -> None:
    class Amplifies(Broken):
        def fail(self) -> None:
            self.echo.answer_bytes[1] += 1 << 30

    totals, _ = fuzzed(Amplifies(), 1000)
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
    next(table for name, table in target.pipeline.tables.items() if name.endswith("job.job")).exact.clear()
    with pytest.raises(SetupError, match="block 0 of job 77 does not age"):
        fuzzed(target, 10)


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
    command = [sys.executable, "-m", "netsum_trials", "fuzz", "--packets", "100000000", "--switch", "bmv2"]
    environment = {**os.environ, "PYTHONPATH": SEARCH_PATH}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("bmv2: 100,000,000 packets")
        process.send_signal(signal.SIGINT)
        line = json.loads(process.stdout.read().splitlines()[-1])
    assert process.returncode == 130
    assert (line["interrupted"], line["crashes"], line["state_changes"]) == (True, 0, 0)
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"netsum-{process.pid}-" not in names
