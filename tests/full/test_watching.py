# SPDX-License-Identifier: MIT
"""Monitoring from outside while ranks make calls: metrics of controller and members, `job top` and logs."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from netsum import CallTimeoutError, Communicator, EvictedError, NetsumError, metrics
from netsum_controller.cli.top import Snapshot, Watch
from netsum_controller.monitoring.health import JobHealth
from netsum_controller.state.model import Late
from netsum_testbed.fabric import Fabric
from prometheus_client import CollectorRegistry

from tests.full.calls import on_all, results
from tests.full.conftest import Members, joined
from tests.full.trouble import Training
from tests.hosts.test_metrics import Samples, parse, samples
from tests.threads import PATIENCE, until


def registered(communicators: list[Communicator]) -> CollectorRegistry:
    """With the metrics of all of them."""
    registry = CollectorRegistry()
    for comm in communicators:
        metrics.register(comm, registry)
    return registry


def scrape(fabric: Fabric) -> Samples:
    """The controller's metrics."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{fabric.controller.url}/metrics", timeout=PATIENCE) as answer:
        return parse(answer.read().decode())


def only(snapshot: Snapshot) -> JobHealth:
    assert not snapshot.troubles
    (job,) = snapshot.jobs
    return job


def when(watch: Watch, condition: Callable[[JobHealth], bool], what: str) -> JobHealth:
    """Take snapshots until one is as it should be; one for which a busy switch was too slow is none."""
    seen: list[JobHealth] = []

    def look() -> bool:
        snapshot = watch.snapshot()
        seen.extend(snapshot.jobs)
        return bool(snapshot.jobs) and not snapshot.troubles and condition(seen[-1])

    until(look, what)
    return seen[-1]


def total(comm: Communicator) -> Any:
    return comm.allreduce(np.full(3000, comm.rank, np.int32), timeout=PATIENCE)


def test_controller_and_members_count_the_same(fabric: Fabric, members: Members) -> None:
    with members(3) as communicators:
        name = communicators[0].descriptor.job
        registry = registered(communicators)
        results(on_all(communicators, lambda comm: [total(comm) for _ in range(5)]))
        results(on_all(communicators, lambda comm: comm.barrier(timeout=PATIENCE)))
        own = samples(registry)
        seen: Samples = {}
        blocks = own["netsum_blocks_total", name, "0"]

        def fresh() -> bool:  # the controller reuses its last reading for a while
            seen.update(scrape(fabric))
            return seen.get(("netsum_job_blocks_total", name)) == blocks

        until(fresh, "the controller's metrics of all blocks")
        switch = next(iter(fabric.topology.switches))
        assert seen["netsum_switch_up", switch] == 1
        for comm in communicators:
            rank = str(comm.rank)
            host = fabric.controller.job(name).members[comm.rank]
            assert own["netsum_calls_total", "allreduce", name, "ok", rank] == 5
            assert own["netsum_calls_total", "barrier", name, "ok", rank] == 1
            assert own["netsum_goodput_bytes_total", "allreduce", name, rank] == 5 * 12000
            assert own["netsum_call_seconds_count", "allreduce", name, rank] == 5
            assert own["netsum_epoch", name, rank] == seen["netsum_job_epoch", name]
            assert own["netsum_rtt_seconds", name, rank] > 0
            sent, resent = (own[f"netsum_{what}_total", name, rank] for what in ("sent_packets", "retransmissions"))
            assert sent == blocks + resent
            here = (host, name, rank)
            assert seen["netsum_member_packets_total", *here] == sent  # nothing is lost here
            assert seen["netsum_member_repeats_total", *here] == resent
            assert seen["netsum_member_bytes_total", *here] > own["netsum_sent_bytes_total", name, rank]
            assert seen["netsum_member_missing_blocks", *here] == 0
        assert seen["netsum_job_packets_total", name, "completed"] == seen["netsum_job_blocks_total", name]
        assert seen["netsum_job_open_blocks", name] == 0
        assert seen["netsum_job_members", name, "joined"] == 3
        assert seen["netsum_joins_total", name, "join", "ok"] == 3


@pytest.mark.full
def test_top_finds_the_one_that_all_wait_for(fabric: Fabric, members: Members) -> None:
    with members(3) as communicators:
        watch = Watch(fabric.controller, communicators[0].descriptor.job)
        with Training(communicators, pause=lambda rank, _step: 0.05 * (rank == 1)) as training:
            found = when(watch, lambda job: any(one.straggler for one in job.members), "a straggler")
            assert [one.straggler for one in found.members] == [False, True, False]
            share = found.members[1].share
            assert share is not None
            assert share >= 0.5
            training.on(5)
            going = when(watch, lambda job: bool(job.blocks_per_s), "blocks per second")
            assert all(one.bytes_per_s and one.packets_per_s for one in going.members)
            training.finish()


def test_top_tells_who_is_silent_and_since_when(fabric: Fabric, members: Members) -> None:
    with members(3) as communicators:
        watch = Watch(fabric.controller, communicators[0].descriptor.job)
        results(on_all(communicators, total))
        first = communicators[0].descriptor.first_block_id
        before = communicators[2].stats.blocks
        works = [comm.allreduce_async(np.ones(3000, np.int32), timeout=PATIENCE) for comm in communicators[:2]]
        found = when(watch, lambda job: job.members[2].member.presence == "silent", "silence")
        assert [one.straggler for one in found.members] == [False, False, True]
        silent = found.members[2].member
        assert silent.oldest is not None
        assert silent.oldest >= 1.0
        assert silent.missing == found.view.open_blocks > 0
        assert found.block_id(silent.last_block) == first + before - 1
        works.append(communicators[2].allreduce_async(np.ones(3000, np.int32), timeout=PATIENCE))
        assert [set(work.wait().tolist()) for work in works] == [{3}] * 3
        done = only(watch.snapshot())
        assert (done.view.open_blocks, done.members[2].member.presence) == (0, "joined")


@pytest.mark.full
def test_partial_results_are_seen_on_both_sides(fabric: Fabric, members: Members) -> None:
    with members(3, late=Late.DEGRADE, block_exp=20.0, quorum=2) as communicators:
        name = communicators[0].descriptor.job
        registry = registered(communicators)
        watch = Watch(fabric.controller, name)
        with Training(communicators, check=False, pause=lambda rank, _step: 0.2 * (rank == 2)) as training:
            found = when(watch, lambda job: job.aged > 0 and job.members[2].straggler, "aged blocks")
            assert [one.straggler for one in found.members] == [False, False, True]
            assert found.members[0].member.repeats is None
            training.stop(3)
        own = samples(registry)
        assert own["netsum_degraded_blocks_total", name, "0"] > 0
        assert own["netsum_calls_total", "allreduce", name, "partial", "0"] > 0
        assert own["netsum_late_blocks_total", name, "0"] == 0
        assert own["netsum_late_blocks_total", name, "2"] + own["netsum_lost_blocks_total", name, "2"] > 0


def test_logs_name_job_rank_block_and_who_is_missing(fabric: Fabric, members: Members, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "netsum.member")
    with members(3) as communicators:
        job, epoch = communicators[0].descriptor.job, communicators[0].descriptor.epoch
        got = on_all(communicators[:2], lambda comm: comm.allreduce(np.ones(10, np.int32), timeout=2.0))
        assert [type(each.error) for each in got] == [CallTimeoutError] * 2
        fabric.controller.evict(job, 2)
        with pytest.raises(NetsumError) as refused:
            communicators[2].allreduce(np.ones(10, np.int32), timeout=PATIENCE)
        assert isinstance(refused.value, EvictedError)
    ours = [record for record in caplog.records if getattr(record, "job", None) == job]
    told = {(record.levelname, vars(record)["rank"]): vars(record) for record in ours if record.levelno >= logging.WARNING}
    assert {vars(record)["rank"] for record in ours if record.getMessage().startswith("joined")} == {0, 1, 2}
    assert {vars(record)["rank"] for record in ours if record.getMessage().startswith("closed")} == {0, 1, 2}
    assert set(told) == {("ERROR", 0), ("ERROR", 1), ("WARNING", 2)}
    for rank in (0, 1):
        record = told["ERROR", rank]
        assert (record["epoch"], record["missing"]) == (epoch, [2])
        assert record["block"] == communicators[0].descriptor.first_block_id
    assert "evicted" in told["WARNING", 2]["message"]


@pytest.mark.full
def test_a_switch_restart_is_seen_on_both_sides(fragile: Fabric, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "netsum.member")
    switch = next(iter(fragile.topology.switches))

    def is_up(value: int) -> bool:
        return scrape(fragile)["netsum_switch_up", switch] == value

    with joined(fragile, 3, window=8) as communicators:
        job, epoch = communicators[0].descriptor.job, communicators[0].descriptor.epoch
        registry = registered(communicators)
        with Training(communicators) as training:
            training.on()
            before = scrape(fragile)
            fragile.kill_switch()
            until(lambda: is_up(0), "metrics say that the switch is down")
            fragile.start_switch()
            until(lambda: is_up(1), "metrics say that it is up")
            training.finish()
        own, seen = samples(registry), scrape(fragile)
        changed = ("netsum_reconciles_total", "changed", switch)
        assert seen[changed] == before[changed] + 1
        assert seen["netsum_joins_total", job, "rejoin", "ok"] >= 3
        for rank in range(3):
            assert own["netsum_resumes_total", job, str(rank)] == 1
            assert own["netsum_epoch", job, str(rank)] > epoch
            assert own["netsum_calls_total", "allreduce", job, "ok", str(rank)] == training.steps[rank]
    resumed = [vars(record) for record in caplog.records if "resumes at block" in record.getMessage()]
    assert sorted(record["rank"] for record in resumed) == [0, 1, 2]
    assert {record["job"] for record in resumed} == {job}
    assert len({(record["epoch"], record["block"]) for record in resumed}) == 1
