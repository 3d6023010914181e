# SPDX-License-Identifier: MIT
"""A member's metrics as Prometheus sees them."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
from netsum import CallTimeoutError, Descriptor, Report, Stats, metrics
from netsum.telemetry import CallEnd, Watcher
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.hosts.network import descriptor
from tests.threads import PATIENCE


class Member:
    """The parts of a communicator that metrics read."""

    def __init__(self, rank: int = 0) -> None:
        self.descriptor: Descriptor = descriptor(rank, 4)
        self.stats = Stats()
        self.active_size = 4
        self.watchers: list[Watcher] = []

    def end(self, collective: str, seconds: float = 0.01, error: BaseException | None = None, **report: Any) -> None:
        for tell in self.watchers:
            tell(CallEnd(collective, seconds, 4000, error, Report(**report)))


Samples = dict[tuple[str, ...], float]


def samples(registry: CollectorRegistry) -> Samples:
    return parse(generate_latest(registry).decode())


def parse(text: str) -> Samples:
    """(name, labels' values in the order of their names ...) -> value."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            key = (each.name, *(each.labels[name] for name in sorted(each.labels)))
            assert key not in found, f"{key} is there twice"
            found[key] = each.value
    return found


def test_what_a_member_exports() -> None:
    registry, member = CollectorRegistry(), Member(rank=2)
    metrics.register(member, registry)
    member.stats = Stats(blocks=7, bytes_sent=7000, retransmissions=3, fast_retransmissions=1, late=2, lost=1, rtt=0.004)
    member.stats.refusals["NOT_MEMBER"] = 5
    member.end("allreduce", 0.003)
    member.end("allreduce", 0.3, blocks=3, degraded=1)
    member.end("allreduce", 2.0, CallTimeoutError("late"))
    member.end("barrier")
    found = samples(registry)
    here = ("test", "2")
    assert found["netsum_blocks_total", *here] == 7
    assert found["netsum_sent_bytes_total", *here] == 7000
    assert found["netsum_retransmissions_total", *here] == 3
    assert found["netsum_fast_retransmissions_total", *here] == 1
    assert (found["netsum_late_blocks_total", *here], found["netsum_lost_blocks_total", *here]) == (2, 1)
    assert found["netsum_refused_total", "test", "2", "not_member"] == 5
    assert found["netsum_rtt_seconds", *here] == 0.004
    assert (found["netsum_active_ranks", *here], found["netsum_epoch", *here]) == (4, 7)
    calls = {key[1:]: value for key, value in found.items() if key[0] == "netsum_calls_total"}
    assert calls == {
        ("allreduce", "test", "ok", "2"): 1,
        ("allreduce", "test", "partial", "2"): 1,
        ("allreduce", "test", "call_timeout", "2"): 1,
        ("barrier", "test", "ok", "2"): 1,
    }
    assert found["netsum_call_seconds_count", "allreduce", "test", "2"] == 3
    assert found["netsum_call_seconds_bucket", "allreduce", "test", "0.005", "2"] == 1
    assert found["netsum_call_seconds_bucket", "allreduce", "test", "+Inf", "2"] == 3
    assert found["netsum_goodput_bytes_total", "allreduce", "test", "2"] == 8000


def test_every_count_of_stats_is_exported() -> None:
    assert set(metrics.COUNTERS) == set(vars(Stats())) - {"refused", "refusals", "rtt"}


def test_several_members_of_a_process_share_a_registry() -> None:
    registry, members = CollectorRegistry(), [Member(rank) for rank in range(3)]
    exporters = [metrics.register(member, registry) for member in members]
    for rank, member in enumerate(members):
        member.stats.blocks = 10 + rank
        member.end("allreduce")
    text = generate_latest(registry).decode()
    assert text.count("# HELP netsum_blocks_total") == text.count("# TYPE netsum_calls_total") == 1
    found = samples(registry)
    assert [found["netsum_blocks_total", "test", str(rank)] for rank in range(3)] == [10, 11, 12]
    assert [found["netsum_calls_total", "allreduce", "test", "ok", str(rank)] for rank in range(3)] == [1, 1, 1]
    with pytest.raises(ValueError, match="rank 1: its metrics are already in this registry"):
        metrics.register(members[1], registry)
    exporters[1].close()
    assert not members[1].watchers
    assert ("netsum_blocks_total", "test", "1") not in samples(registry)
    metrics.register(members[1], registry)  # its place is free again
    assert samples(registry)["netsum_blocks_total", "test", "1"] == 11
    assert ("netsum_calls_total", "allreduce", "test", "ok", "1") not in samples(registry)


def test_stats_are_those_of_now() -> None:
    registry, member = CollectorRegistry(), Member()
    metrics.register(member, registry)
    member.stats = Stats(blocks=5)  # as after a resync
    assert samples(registry)["netsum_blocks_total", "test", "0"] == 5


def test_served_over_http() -> None:
    member = Member()
    member.stats.blocks = 41
    server = metrics.serve(member)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        assert 'netsum_blocks_total{job="test",rank="0"} 41.0' in text
        assert {line.split("{")[0].split("_")[0] for line in text.splitlines() if line[0] != "#"} == {"netsum"}
        with pytest.raises(OSError, match="in use"):
            metrics.serve(Member(), server.port)
    finally:
        server.close()
    assert not member.watchers
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE)
