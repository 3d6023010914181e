# SPDX-License-Identifier: MIT
"""The `netsum` command, as a person types it: what it prints, where, and the exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click
import pytest
from netsum.wire.schema import Outcome
from netsum_controller.entries import aggregation
from netsum_controller.p4runtime.p4info import netsum_program

from tests.controller.certificates import Certificates
from tests.controller.conftest import NETSUM, Run
from tests.controller.fake_switch import FakeSwitch, pack_record
from tests.threads import PATIENCE

JOB = "name: resnet\nmembers: [h1, h2, h4]\nwindow: 8\n"


@pytest.fixture(autouse=True)
def job_file(tmp_path: Path) -> None:
    (tmp_path / "resnet.yaml").write_text(JOB)


def test_the_life_of_a_job(run: Run, switch: FakeSwitch) -> None:
    assert run("switch", "push").out == "switch s1: program loaded, 11 entries added\n"
    assert run("switch", "push").out == "switch s1: unchanged\n"
    empty = switch.installed
    created = run("job", "create", "resnet.yaml")
    assert re.fullmatch(r"job resnet: created, id 1 on s1, slots 0\.\.15, epoch \d+\ntoken [\w-]{24}\n", created.out)
    assert run("job", "create", "resnet.yaml").out == "job resnet: unchanged (id 1 on s1)\n"
    (listed,) = json.loads(run("job", "list", "--json").out)
    assert (listed["name"], listed["slots"], listed["workers"], listed["joined"]) == ("resnet", 16, 3, 0)
    assert "resnet" in run("job", "list").out
    shown = json.loads(run("job", "show", "resnet", "--json").out)
    assert [one["host"] for one in shown["members"]] == ["h1", "h2", "h4"]
    words = run("job", "show", "resnet").out
    assert words.startswith("job resnet: ready, 0 of 3 members joined\n  combines   id 1 on s1, slots 0..15; algorithm auto\n")
    assert "not joined" in words
    written = run("job", "join-file", "resnet", "--out", "d")
    assert written.out.split() == ["d/resnet.0.json", "d/resnet.1.json", "d/resnet.2.json"]
    (row,) = json.loads(run("switch", "show", "--json").out)
    assert row["program"] == "netsum"
    assert row["entries"] == {
        "my_station": 1, "source_guard": 5, "forward": 4, "member": 3, "rewrite": 3, "job": 1, "multicast group": 3,
    }  # fmt: skip
    assert "netsum" in run("switch", "show").out
    assert run("job", "delete", "resnet").out == "job resnet: deleted\n"
    assert switch.installed == empty
    assert json.loads(run("job", "list", "--json").out) == []
    assert run("job", "list").out == "there are no jobs; `netsum job create FILE` makes one\n"


def test_stats_and_why(run: Run, switch: FakeSwitch) -> None:
    run("switch", "push")
    run("job", "create", "resnet.yaml")
    job = json.loads(run("job", "show", "resnet", "--json").out)
    run("job", "join-file", "resnet")
    assert "no block is open" in run("job", "diagnose", "resnet").out
    for block in range(job["first_block_id"], job["first_block_id"] + 10):
        slot = job["slot_base"] + block % job["slots"]
        switch.records[slot] = pack_record(epoch=job["epoch"], block_id=block, state=1, seen=0b101, worker_cnt=2)
    switch.age = 1500
    why = run("job", "diagnose", "resnet").out.splitlines()
    first = job["first_block_id"]
    assert why[0] == f"block {first} (slot {first % 16}): open for 1.54 s, waiting for rank 1 (h2)"
    assert why[8] == "... and 2 more open blocks"
    assert "- rank 1 (h2) has joined, and none of its packets has come" in why
    one = json.loads(run("job", "diagnose", "resnet", "--block", str(first + 1), "--json").out)
    assert one["blocks"][0]["record"]["worker_cnt"] == 2
    assert "no rank's contribution has come" in run("job", "diagnose", "resnet", "--block", str(first + 10)).out
    past = str((first - job["slots"]) % (1 << 32))
    assert "finished; its slot holds a later block" in run("job", "diagnose", "resnet", "--block", past).out
    assert "no packet has had any of the 23 outcomes" in run("job", "stats", "resnet").out
    counter = netsum_program().object_id("counters", aggregation.COUNTER)
    switch.counters[counter, aggregation.indices(job["job_id"])[Outcome.WRONG_PORT]] = 3
    stats = run("job", "stats", "resnet").out
    assert re.search(r"wrong_port +3 *\n", stats)
    assert "accepted" not in stats
    assert "no packet has had any of the other 22 outcomes (--all lists them)" in stats
    assert re.search(r"accepted +0 *\n", run("job", "stats", "resnet", "--all").out)
    assert json.loads(run("job", "stats", "resnet", "--json").out)["outcomes"]["accepted"] == 0


def test_evict_and_admit(run: Run, switch: FakeSwitch) -> None:
    run("switch", "push")
    run("job", "create", "resnet.yaml")
    run("job", "join-file", "resnet")
    switch.scans_close = 3
    evicted = run("job", "evict", "resnet", "1")
    assert evicted.out == "job resnet: rank 1 (h2): evicted; 2 of 3 go on, 3 blocks had waited for it\n"
    assert run("job", "evict", "resnet", "1").out == "job resnet: rank 1 (h2): was evicted already\n"
    assert "evicted" in run("job", "show", "resnet").out
    assert json.loads(run("job", "show", "resnet", "--json").out)["evicted"] == [1]
    again = json.loads(run("job", "evict", "resnet", "1", "--json").out)
    assert (again["changed"], again["evicted"], again["members"], again["new_epoch"]) == (False, True, [0, 2], None)
    admitted = json.loads(run("job", "admit", "resnet", "1", "--json").out)
    assert (admitted["changed"], admitted["evicted"], admitted["members"]) == (True, False, [0, 1, 2])
    assert admitted["new_epoch"] == json.loads(run("job", "show", "resnet", "--json").out)["epoch"]
    assert run("job", "admit", "resnet", "1").out == "job resnet: rank 1 (h2): is not evicted\n"
    run("job", "evict", "resnet", "1")
    epoch = admitted["new_epoch"] + 3
    assert run("job", "admit", "resnet", "1").out == f"job resnet: rank 1 (h2): admitted; all join under epoch {epoch}\n"


def test_options_of_create(run: Run) -> None:
    run("switch", "push")
    assert run("job", "create", "resnet.yaml", "--late", "degrade", "--block-exp", "2.5", "--quorum", "3").code == 0
    words = "blocks are closed without late members after 2.5 ms if 3 workers took part, once all members have joined"
    assert words in run("job", "show", "resnet").out
    shown = json.loads(run("job", "show", "resnet", "--json").out)
    assert (shown["late"], shown["block_exp_ms"], shown["quorum"], shown["aging"]) == ("degrade", 2.5, 3, False)
    assert "unchanged" in run("job", "create", "resnet.yaml", "--late=degrade", "--block-exp=2.5", "--quorum=3").out
    refused = run("job", "create", "resnet.yaml")
    assert (refused.code, "exists with late degrade, not wait" in refused.err) == (1, True)
    refused = run("job", "create", "resnet.yaml", "--late=degrade", "--quorum=3")
    assert "exists with block_exp 2.5 ms, not 50 ms" in refused.err
    refused = run("job", "create", "resnet.yaml", "--late=degrade", "--block-exp=2.5")
    assert "exists with quorum 3, not 2" in refused.err


def test_reconcile_after_a_restart(run: Run, switch: FakeSwitch) -> None:
    run("switch", "push")
    run("job", "create", "resnet.yaml")
    switch.restart()
    out = run("reconcile").out
    assert re.fullmatch(r"switch s1: program loaded, 20 entries added, job resnet restored under epoch \d+\n", out)
    assert run("reconcile", "s1").out == "switch s1: unchanged\n"


def test_topology(run: Run) -> None:
    assert run("topology", "check").out == "star4: 1 switch, 4 hosts, no errors\n"
    shown = run("topology", "show").out
    assert "02:6e:73:00:00:fe" in shown
    assert "10.0.0.4" in shown
    assert json.loads(run("topology", "show", "--json").out)["hosts"]["h3"]["mtu"] == 1500


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("job create nope.yaml", 2, "nope.yaml: No such file or directory"),
        ("job create resnet.yaml --late never", 2, "'never' is not one of 'wait', 'degrade'"),
        ("job create resnet.yaml --quorum 2", 2, "option --quorum: quorum: is for jobs with `late: degrade`"),
        ("job create resnet.yaml --late degrade --quorum 4", 2, "quorum: is 4, and the job has 3 members"),
        ("job evict vgg 0", 1, "there is no job 'vgg'"),
        ("job evict vgg first", 2, "'first' is not a valid integer"),
        ("job create bad.yaml", 2, "bad.yaml:2: members: "),
        ("job create big.yaml --algorithm switch", 1, "needs 8192 slots|a window of 4096"),
        ("job create", 2, "Missing argument 'FILE...'. (see `netsum job create --help`)"),
        ("job show vgg", 1, "there is no job 'vgg'"),
        ("job delete vgg", 1, "there is no job 'vgg'"),
        ("job delte vgg", 2, "No such command 'delte'"),
        ("job diagnose resnet --block -3", 2, "Invalid value for '--block'"),
        ("switch push s9", 2, "has no switch 's9' (it has: s1)"),
        ("--topology nope.yaml topology show", 2, "nope.yaml: No such file or directory"),
        ("--state /proc/nope/state.db job list", 1, "/proc/nope"),
    ],
)
def test_one_line_for_an_error(run: Run, tmp_path: Path, arguments: str, code: int, words: str) -> None:
    run("switch", "push")
    run("job", "create", "resnet.yaml")
    (tmp_path / "bad.yaml").write_text("name: bad\nmembers: h1\n")
    (tmp_path / "big.yaml").write_text("name: big\nmembers: [h1, h2]\nwindow: 4096\n")
    before = run("job", "list", "--json").out
    result = run(*arguments.split())
    assert result.code == code
    assert result.out == ""
    assert result.err.startswith("netsum: ")
    assert result.err.count("\n") == 1
    assert any(word in result.err for word in words.split("|"))
    assert run("job", "list", "--json").out == before


def test_a_line_for_each_error_of_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\nmembers: h1\nwindow: 0\n")
    result = run("job", "create", "bad.yaml")
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines() == [
        "netsum: bad.yaml:2: members: must be a list, like [h1, h2] (it is 'h1')",
        "netsum: bad.yaml:3: window: must be 1 or more (it is 0)",
    ]


def test_an_unreachable_switch(run: Run, switch: FakeSwitch) -> None:
    switch.stop()
    for arguments in (
        ["switch", "push"],
        ["switch", "show"],
        ["job", "create", "resnet.yaml", "--algorithm", "switch"],
        ["reconcile"],
        ["shell"],
    ):
        result = run(*arguments)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("netsum: switch s1: no P4Runtime server answers at unix:")
        assert result.err.count("\n") == 1


def test_without_a_topology(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NETSUM_TOPOLOGY")
    result = run("job", "list")
    assert (result.code, result.err) == (2, "netsum: no topology: give --topology FILE or set NETSUM_TOPOLOGY\n")


def test_the_state_file_is_found(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NETSUM_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert run("job", "list").code == 0
    assert (tmp_path / "xdg" / "netsum" / "star4.db").exists()


def test_commands_of_other_packages(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in that cannot be imported costs its own command only, and says so when it is run."""
    from importlib.metadata import EntryPoint

    @click.command("hello")
    def hello() -> None:
        click.echo("hello from a plug-in")

    def load(entry: EntryPoint) -> click.Command:
        if entry.name == "broken":
            raise ModuleNotFoundError("No module named 'no_such_package'", name="no_such_package")
        return hello

    monkeypatch.setattr(EntryPoint, "load", load)
    monkeypatch.setattr(
        "netsum_controller.cli.plugins.entry_points",
        lambda group: [EntryPoint(name, "no_such_package.commands:main", group) for name in ("broken", "hello")],
    )
    assert run("hello").out == "hello from a plug-in\n"
    listed = run("--help")
    assert listed.code == 0
    assert "(not installed: no_such_package)" in listed.out
    result = run("broken", "--some", "flags")
    assert result.code == 1
    assert result.err == "netsum: `netsum broken` cannot be loaded: No module named 'no_such_package'\n"


@contextmanager
def serving(*options: str) -> Iterator[tuple[IO[str], str]]:
    """`netsum serve` as a process of its own, which ends well: what it logs, and the first line that it prints."""
    command = [*NETSUM, "serve", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            yield server.stderr, server.stdout.readline()
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=PATIENCE)
    assert server.returncode == 0


def test_serve_until_interrupted(run: Run) -> None:
    run("switch", "push")
    created = run("job", "create", "resnet.yaml").out
    token = created.split("token ")[1].strip()
    with serving() as (_, line):
        assert line.startswith("serving star4 at http://127.0.0.1:")
        url = line.split(" at ")[1].strip()
        body = json.dumps({"rank": 0, "instance": "a"}).encode()
        request = urllib.request.Request(f"{url}/v1/jobs/resnet/join", body, {"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert json.loads(answer.read())["controller"] == url
        (listed,) = json.loads(run("job", "list", "--json").out)  # beside it, on the same state file
        assert listed["joined"] == 1


@pytest.mark.parametrize("words", [("--host", "::"), ("--advertise", "fe80::2"), ("--advertise", "[fe80::2]:80")])
def test_serve_is_ipv4_only(run: Run, words: tuple[str, str]) -> None:
    result = run("serve", "--port", "0", *words)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert result.err.startswith(f"netsum: {' '.join(words)}: must be a name or an address of IPv4, without a port")


@pytest.mark.full
@pytest.mark.usefixtures("run")
def test_serve_over_tls_restores_a_switch(switch: FakeSwitch, certificates: Certificates) -> None:
    """It was never pushed, and then it restarts."""
    pem = ("--tls-cert", certificates.path("server.pem"), "--tls-key", certificates.path("server.key"))
    with serving(*pem) as (log, said):
        assert said.startswith("serving star4 at https://127.0.0.1:")
        for _ in range(2):
            while "switch s1 is restored" not in (line := log.readline()):
                assert line, "it has ended"
            switch.restart()


@pytest.mark.usefixtures("run")
def test_serve_without_watching(switch: FakeSwitch) -> None:
    with serving("--no-watch") as (_, said):
        assert said.startswith("serving star4 at http://127.0.0.1:")
    assert switch.config is None


def test_shell_needs_a_program(run: Run) -> None:
    result = run("shell")
    assert (result.code, result.out) == (1, "")
    assert "has no P4 program yet" in result.err


@pytest.mark.usefixtures("run")
def test_a_closed_pipe() -> None:
    """`netsum topology show | head -1` ends without a traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [*NETSUM, "topology", "show"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(writer)
    assert "Traceback" not in done.stderr


def test_jobs_without_a_switch(run: Run, switch: FakeSwitch) -> None:
    run("switch", "push")
    created = run("job", "create", "resnet.yaml", "--algorithm", "ring")
    assert re.match(r"job resnet: created, its members combine themselves \(ring\), epoch \d+\ntoken \S+\n$", created.out)
    again = run("job", "create", "resnet.yaml", "--algorithm", "ring")
    assert again.out == "job resnet: unchanged (its members combine themselves (ring))\n"
    assert "(ring)" in run("job", "list").out
    assert json.loads(run("job", "show", "resnet", "--json").out)["combines"] == "ring"
    assert "not at a switch" in run("job", "diagnose", "resnet").out
    assert "no switch counts" in run("job", "stats", "resnet").out
    top = run("job", "top", "resnet", "--once")
    assert (top.code, "unseen by any switch" in top.err) == (1, True)
    moved = json.loads(run("job", "move", "resnet", "--algorithm", "switch", "--json").out)
    assert (moved["changed"], moved["combines"], moved["switches"], moved["resumes"]) == (True, "switch", ["s1"], False)
    assert run("job", "move", "resnet", "--algorithm", "switch").out == "job resnet: unchanged, on s1\n"
    switch.stop()
    left = run("job", "move", "resnet", "--algorithm", "auto").out.splitlines()
    assert left[0].startswith("job resnet: moved, its members combine themselves (auto); members join anew under epoch ")
    assert left[1].startswith("no switch serves it: switch s1: no P4Runtime server answers")
    assert run("job", "move", "resnet", "--algorithm", "star").code == 2
    assert run("job", "delete", "resnet").out == "job resnet: deleted\n"
