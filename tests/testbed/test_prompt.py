# SPDX-License-Identifier: MIT
"""``netsum testbed``: Mininet's prompt with the controller up and a job ready."""

from __future__ import annotations

import re
import signal

import pytest
from netsum_testbed import commands
from netsum_testbed.errors import TestbedError

from tests.testbed.conftest import ROOT, Start


@pytest.mark.full
def test_exit_at_once(netsum: Start, switch: str) -> None:
    command = netsum("testbed", "--workers", "2", "--switch", switch, commands=["exit"])
    command.ends()
    assert f"{switch} switch, 2 hosts, controller at http://127.0.0.1:" in command.output
    assert "job train ready (ranks 0..1 on h1, h2)" in command.output


@pytest.mark.full
def test_work_in_it(netsum: Start, switch: str) -> None:
    """Ping; a training on all hosts; the switch restarts; reconcile; the same training gives the same weights."""
    train = "all python examples/train_digits.py"
    commands = ["h1 ping -c1 -W5 h2", "iperf h2 h1", "iperf h1 h9",
                train, "sh netsum job stats train", "switch s1 stop", "switch s1 start",
                "sh netsum reconcile", train, "all", "exit"]  # fmt: skip
    command = netsum("testbed", "--workers", "2", "--switch", switch, commands=commands)
    command.ends()
    assert "1 packets transmitted, 1 received" in command.output
    assert re.search(r"h2 -> h1: [0-9.e+]+ Mbit/s over TCP, in 5 s", command.output), command.output
    assert "usage: iperf HOST HOST, two different ones of h1, h2" in command.output
    # `reconcile` restores the job, unless the controller of the testbed, which watches the switch, was faster.
    assert re.search("job train restored under epoch|switch s1: unchanged", command.output)
    assert "usage: all COMMAND" in command.output
    sums = re.findall(r"(h\d)\| rank \d ends with weights whose first column sums to (\S+)", command.output)
    assert sorted(host for host, _ in sums) == ["h1", "h1", "h2", "h2"], command.output
    assert len({value for _, value in sums}) == 1, "each worker, both times: the same bits"


@pytest.mark.full
def test_memory(netsum: Start, switch: str) -> None:
    """A region on two hosts, which the hosts of the job open, also one that has a device itself."""
    program = "import netsum.memory as m; a = m.open('pool', dtype='int64', shape=(10000,)); print(a.fetch_add(9999, 1) >= 0)"
    commands = [f'all python -c "{program}"', "sh netsum memory show pool", "exit"]
    command = netsum("testbed", "--workers", "3", "--memory", "h1,h2", "--switch", switch, commands=commands)
    command.ends()
    assert "64 MiB of memory in region pool on h1, h2" in command.output
    assert [f"h{n}| True" in command.output for n in (1, 2, 3)] == [True] * 3, command.output
    assert re.search(r"s1 +3 ", command.output), command.output


def test_memory_on_hosts_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "without_mininet", lambda: None)
    with pytest.raises(TestbedError, match=r"--memory: there is no host .h9. \(there are: h1, h2\)"):
        commands.testbed.main(["--workers", "2", "--memory", "h1,h9"], standalone_mode=False)


@pytest.mark.bmv2
@pytest.mark.root
@pytest.mark.full
def test_a_tree(netsum: Start) -> None:
    """Two leaves under a root: ping and sum across it, and again after the root restarted."""
    sums = "all python -c 'import netsum; c = netsum.join(); print(c.allreduce([1 + c.rank])); c.barrier(); c.close()'"
    file = str(ROOT / "mininet" / "topologies" / "tree2x2.yaml")
    commands = ["h1 ping -c1 -W5 h4", sums, "switch root stop", "switch root start", "sh netsum reconcile", sums,
                "sh netsum job show train", "exit"]  # fmt: skip
    command = netsum("testbed", "--topology", file, "--switch", "bmv2", commands=commands)
    command.ends()
    assert "switch root stop | switch root start" in command.output
    assert "1 packets transmitted, 1 received" in command.output
    assert [command.output.count(f"h{n}| [10]") for n in range(1, 5)] == [2] * 4, command.output
    assert re.search("leaf1 +leaf .* root +0, 1", command.output)


@pytest.mark.full
def test_interrupt_while_hosts_work(netsum: Start, switch: str) -> None:
    """Ctrl-C ends the command in progress; then the input ends, and with it the testbed."""
    command = netsum("testbed", "--workers", "2", "--switch", switch, commands=["all echo started; sleep 1000"])
    command.wait_for("h2| started")
    command.process.send_signal(signal.SIGINT)
    command.ends()


@pytest.mark.full
def test_sigterm_ends_it_while_hosts_work(netsum: Start, switch: str) -> None:
    command = netsum("testbed", "--workers", "2", "--switch", switch, commands=["all echo started; sleep 1000"])
    command.wait_for("h2| started")
    command.process.send_signal(signal.SIGTERM)
    command.ends(143)


@pytest.mark.full
def test_sigterm_ends_it_while_a_host_works(netsum: Start, switch: str) -> None:
    command = netsum("testbed", "--workers", "2", "--switch", switch, commands=["h1 echo started; sleep 1000"])
    command.wait_for("> started")
    command.process.send_signal(signal.SIGTERM)
    command.ends(143)


@pytest.mark.full
def test_a_command_that_ends_its_hosts_shell_ends_it(netsum: Start, switch: str) -> None:
    command = netsum("testbed", "--workers", "2", "--switch", switch, commands=["h1 echo one", "h1 exit", "h2 echo two"])
    command.ends(1)
    assert "> one\n" in command.output
    assert "> two" not in command.output
    assert "netsum: host h1 is gone: that command ended its shell" in command.output


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root the command ends with one clear sentence."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(TestbedError, match="we are not root: the testbed needs root and Mininet"):
        commands.testbed.main(["--workers", "2"], standalone_mode=False)
