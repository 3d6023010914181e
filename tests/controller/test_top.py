# SPDX-License-Identifier: MIT
"""``netsum job top``: who is a straggler, what comes for memory, what is printed, and how it ends."""

from __future__ import annotations

import http.server
import io
import itertools
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.cli.top import Snapshot, Watch, render
from netsum_controller.entries import aggregation
from netsum_controller.entries.memory import RegionCounts
from netsum_controller.entries.packet_out import AGE_UNIT_US
from netsum_controller.monitoring.collector import JobView, MemberView, Presence, SwitchView
from netsum_controller.monitoring.health import job_health, region_health
from netsum_controller.monitoring.metrics import retransmissions
from netsum_controller.p4runtime.p4info import netsum_program
from netsum_controller.state.model import Late
from rich.console import Console

from tests.controller.conftest import NETSUM, Result, Run
from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN
from tests.controller.memory_devices import FakeMemory
from tests.controller.watched import Watched
from tests.threads import PATIENCE, meanwhile

RESENT = "netsum_retransmissions_total"


def view(watched: Watched, *members: MemberView, at: float = 10.0, **changes: Any) -> JobView:
    plain = JobView(watched.job, at, {}, blocks=100, open_blocks=0, oldest=0.0, members=members)
    return replace(plain, **changes)


def member(rank: int, **changes: Any) -> MemberView:
    return replace(MemberView(rank, f"h{rank + 1}", Presence.JOINED), **changes)


def test_rates(watched: Watched) -> None:
    before = view(watched, member(0, packets=50, octets=5000), member(1, packets=7, octets=700))
    now = view(
        watched,
        *(member(0, packets=90, octets=9000), member(1, packets=3, octets=300)),  # its entry was installed anew
        at=12.0,
        blocks=150,
    )
    found = job_health(before, now)
    assert found.blocks_per_s == 25.0
    assert [one.packets_per_s for one in found.members] == [20.0, 1.5]
    assert [one.bytes_per_s for one in found.members] == [2000.0, 150.0]
    first = job_health(None, now)
    assert (first.blocks_per_s, first.members[0].packets_per_s) == (None, None)
    job = replace(watched.job, epoch=replace(watched.job.epoch, number=watched.job.epoch.number + 1))
    assert job_health(before, replace(now, job=job)).members[0].bytes_per_s is None  # of another epoch


@pytest.mark.parametrize(
    ("waits", "stragglers"),
    [
        ((0, 0, 0), []),
        ((0, 7, 0), []),  # too few to tell
        ((0, 8, 0), [1]),
        ((4, 3, 3), []),
        ((5, 3, 2), [0]),
        ((5, 3), []),  # of two, one is always the later
        ((9, 1), [0]),
    ],
)
def test_stragglers_by_waits(watched: Watched, waits: tuple[int, ...], stragglers: list[int]) -> None:
    found = job_health(None, view(watched, *(member(rank, waits=count) for rank, count in enumerate(waits))))
    assert [one.member.rank for one in found.members if one.straggler] == stragglers
    total = sum(waits)
    assert [one.share for one in found.members] == [count / total if total else None for count in waits]


def test_stragglers_by_age(watched: Watched) -> None:
    members = (
        *(member(0, oldest=0.9), member(1, oldest=1.1)),
        *(member(2, oldest=5.0, presence=Presence.LEFT), member(3, oldest=5.0, presence=Presence.SILENT)),
    )
    assert [one.straggler for one in job_health(None, view(watched, *members)).members] == [False, True, False, True]


def test_aged_and_refused(watched: Watched) -> None:
    counts = {"accepted": 9, "aged": 4, "scanned": 3, "not_member": 2, "malformed": 0, "checksum": 1}
    found = job_health(None, view(watched, outcomes=counts))
    assert (found.aged, found.refused) == (4, {"not_member": 2, "checksum": 1})


def test_rates_of_regions(memory: FakeMemory) -> None:
    ours, theirs = memory.create("ours", replicas=3), memory.create("theirs", replicas=1)

    def look(name: str, at: float, *counts: tuple[int, int], up: bool = True) -> SwitchView:
        regions = dict(zip((ours.id, theirs.id), itertools.starmap(RegionCounts, counts), strict=False))
        return SwitchView(name, up, 0.1, at=at, regions=regions)

    before = {
        "s1": look("s1", 10.0, (100, 10_000)),
        "s2": look("s2", 10.0, (50, 5_000), (7, 700)),
        "s3": look("s3", 10.0, up=False),
    }
    now = [
        look("s1", 12.0, (140, 14_000), (10, 1_000)),  # theirs is new there
        look("s2", 14.0, (90, 9_000), (4, 400)),  # its entry was installed anew
        look("s3", 12.0, (1000, 100_000)),
        look("s4", 12.0, (1000, 100_000)),
    ]
    memory.devices["h4"].up = False
    memory.tick()
    memory.tick(5)
    state = memory.context.memory.state()
    first, second = (region_health(state, name, before, now) for name in ("ours", "theirs"))
    assert (first.packets, first.bytes, first.packets_per_s, first.bytes_per_s) == (2230, 223_000, 30.0, 3000.0)
    assert (second.packets, second.packets_per_s, second.bytes_per_s) == (14, 6.0, 600.0)
    assert (first.shards, first.devices) == ({"degraded": 16}, {"h1": True, "h2": True, "h4": False})
    assert region_health(state, "ours", {}, now).packets_per_s is None


Once = Callable[..., Result]


@pytest.fixture
def once(run: Run) -> Once:
    """The output of `job top --once`."""
    return lambda *more: run("job", "top", "--once", "--interval", "0.2", *more)


def test_a_snapshot(watched: Watched, switch: FakeSwitch, once: Once) -> None:
    watched.blocks(20, b20=0b011, b21=0b001)
    watched.packets(25, 21, 20)
    switch.age = int(2.5e6 / AGE_UNIT_US)
    counter = watched.controller.context.program.object_id("counters", aggregation.COUNTER)
    switch.counters[counter, aggregation.indices(watched.job.job_id)[10]] = 3
    found = once("resnet")
    assert found.code == 0
    job = watched.job
    assert found.out.splitlines()[0] == (
        f"resnet  epoch {job.epoch.number} on s1, waits, 0 blocks/s, 2 open, the oldest for 2.5 s, refused: 3 wrong port"
    )
    rows = [line.split() for line in found.out.splitlines() if re.match(r" *\d", line)]
    last = [str(job.epoch.first_block_id + ahead) for ahead in (21, 20, 19)]
    assert rows == [
        ["0", "h1", "joined", "0", "0", "0%", "3", "0", "-", last[0]],
        ["1", "h2", "silent", "0", "0", "0%", "0", "1", "2.5", "s", last[1], "straggler"],
        ["2", "h4", "silent", "0", "0", "100%", "0", "2", "2.5", "s", last[2], "straggler"],
    ]


def shown(snapshot: Snapshot, width: int) -> str:
    """The table, as it looks on a terminal."""
    screen = Console(file=io.StringIO(), width=width, record=True)
    screen.print(render(snapshot, width))
    return screen.export_text()


def test_eighty_columns_are_enough(watched: Watched) -> None:
    members = (
        member(0, packets=10**6, octets=10**9, last_block=10**6, repeats=12345),
        member(1, presence=Presence.EVICTED, waits=99, last_block=10**6, missing=128, oldest=66.6),
        member(2, presence=Presence.SILENT, waits=99, last_block=10**6, missing=128, oldest=66.6),
    )
    before = view(watched, *(member(rank) for rank in range(3)))
    found = job_health(before, view(watched, *members, at=11.0, blocks=123456))
    text = shown(Snapshot([found], []), 80)
    assert "…" not in text
    assert "straggler" in text
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())


def test_json(watched: Watched, once: Once) -> None:
    watched.blocks(4, b4=0b011)
    watched.packets(5, 5, 4)
    printed = once("--json")
    assert printed.code == 0
    found = json.loads(printed.out)
    (job,) = found["jobs"]
    assert found["troubles"] == []
    assert (job["job"], job["switch"], job["late"], job["blocks"], job["open_blocks"]) == ("resnet", "s1", "wait", 5, 1)
    assert (job["epoch"], job["blocks_per_s"], job["refused"], job["aged"]) == (watched.job.epoch.number, 0.0, {}, 0)
    first, _, third = job["members"]
    assert (first["rank"], first["host"], first["state"], first["packets"]) == (0, "h1", "joined", 5)
    assert (third["missing_blocks"], third["waits"], third["share"], third["packets_per_s"]) == (1, 2, 1.0, 0.0)
    assert third["last_block"] == watched.job.epoch.first_block_id + 3
    assert (third["straggler"], third["resent"], first["oldest_missing_s"]) == (False, None, None)


def test_all_jobs_and_none(controller: Controller, switch: FakeSwitch, spec: JobSpec, once: Once) -> None:
    assert once() == Result(0, "there are no jobs\n", "")
    Watched(controller, switch, spec)
    controller.create_job(JobSpec(name="alexnet", members=("h1", "h2"), late=Late.DEGRADE, token=TOKEN))
    found = once()
    assert found.code == 0
    heads = [line for line in found.out.splitlines() if "epoch" in line]
    assert [line.split()[0] for line in heads] == ["alexnet", "resnet"]
    assert "degrades after 50 ms, quorum 1, 0 blocks/s, 0 aged" in heads[0]
    assert found.out.count("absent") == 2


def test_regions_of_memory(memory: FakeMemory, switch: FakeSwitch, spec: JobSpec, once: Once) -> None:
    memory.create("weights")
    switch.packets_let_in |= {key: 5 for key in switch.rows if key[0] == netsum_program().object_id("tables", "region")}
    found = once()
    assert (found.code, "there are no jobs" in found.out) == (0, False)
    (row,) = (line for line in found.out.splitlines() if "weights" in line)
    assert row.split() == ["weights", "0", "0", "16", "ok"]
    (region,) = json.loads(once("--json").out)["regions"]
    assert region == {
        "region": "weights",
        "packets": 5,
        "bytes": 0,
        "packets_per_s": 0.0,
        "bytes_per_s": 0.0,
        "shards": {"ok": 16},
        "devices": {"h1": True, "h2": True, "h4": True},
    }
    Watched(memory.controller, switch, spec)
    assert json.loads(once("resnet", "--json").out)["regions"] == []


def test_what_cannot_be_shown(watched: Watched, switch: FakeSwitch, once: Once) -> None:
    unknown = once("vgg")
    assert (unknown.code, unknown.err) == (1, "netsum: there is no job 'vgg'; `netsum job list` shows all jobs\n")
    assert once("--interval", "0").code == 2
    watched.controller.context.connect_timeout = 0.2
    switch.stop()
    down = once("resnet")
    assert down.code == 1
    assert "switch s1: no P4Runtime server answers" in down.err
    snapshot = Watch(watched.controller, None).snapshot()  # in a table that lives, it is a line
    assert "switch s1: no P4Runtime server answers" in shown(snapshot, 200)


class Page(http.server.BaseHTTPRequestHandler):
    """A server with metrics of rank 1, and of a rank 2 that is not a member."""

    def do_GET(self) -> None:
        text = {
            "/1/h2": f'{RESENT}{{job="vgg",rank="1"}} 9\n{RESENT}{{job="resnet",rank="1"}} 7\n',
            "/2/h4": "<html>not metrics at all {{{\n",
        }.get(self.path, "")
        self.send_response(200 if text else 404)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def pages() -> Iterator[str]:
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server,
        meanwhile(partial(server.serve_forever, 0.05), server.shutdown),
    ):
        yield f"http://127.0.0.1:{server.server_port}/{{rank}}/{{host}}"


def test_members_own_counts(watched: Watched, controller: Controller, pages: str, once: Once) -> None:
    assert retransmissions(watched.job, pages, controller.topology) == {1: 7}
    assert retransmissions(watched.job, "http://127.0.0.1:9/{ip}", controller.topology) == {}
    found = once("--metrics", pages)
    assert found.code == 0
    assert "RESENT" in found.out
    assert [line.split()[7] for line in found.out.splitlines() if re.match(r" *\d", line)] == ["-", "7", "-"]


def wait_for(stream: int, what: bytes, seen: bytes = b"") -> bytes:
    deadline = time.monotonic() + PATIENCE
    while what not in seen:
        assert select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0], f"no {what!r} in {seen!r}"
        chunk = os.read(stream, 65536)
        assert chunk, f"it ended: {seen!r}"
        seen += chunk
    return seen


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("terminal", [True, pytest.param(False, marks=pytest.mark.full)])
def test_ctrl_c_ends_it_well(where: list[str], terminal: bool) -> None:
    reader, writer = pty.openpty() if terminal else os.pipe()
    command = [*NETSUM, *where, "job", "top", "--interval", "0.2"]
    environment = {**os.environ, "COLUMNS": "150", "LINES": "40", "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, env=environment)
    try:
        os.close(writer)
        seen = wait_for(reader, b"blocks/s")
        seen = wait_for(reader, b"0 blocks/s", seen)  # the second, which has rates
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert (b"\x1b[?1049h" in seen) == terminal  # on a screen of its own, which it leaves again
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.usefixtures("watched")
def test_json_lines(where: list[str]) -> None:
    command = [*NETSUM, *where, "job", "top", "--interval", "0.2", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert first["jobs"][0]["blocks_per_s"] is None
    assert second["jobs"][0]["blocks_per_s"] == 0.0
