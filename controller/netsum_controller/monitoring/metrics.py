# SPDX-License-Identifier: MIT
"""The controller's metrics for Prometheus: the state of jobs and switches, and what the controller has done.

Switches are read on request, but at most once in :data:`MAX_AGE` seconds, so a storm of scrapes costs them nothing.
The help of each family is its line in the reference, which ``make docs`` builds.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from netsum.controller_http import open_url
from netsum.wire.schema import REJECTIONS, Outcome
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from netsum_controller.config.topology import Topology
from netsum_controller.context import ControllerContext
from netsum_controller.memory.model import MemoryState, Placed, Region
from netsum_controller.monitoring.collector import JobCollector, JobView, Presence, SwitchView, whole
from netsum_controller.state.model import Job, Seat

# What members report about themselves, if their metrics (:mod:`netsum.metrics`) can be reached.


TIMEOUT = 0.5
"""Seconds that a member has to answer."""

_MEMBERS_AT_ONCE = 16
_MOST = 1 << 20  # bytes of a page
_RESENT = "netsum_retransmissions_total"


def address_of(template: str, seat: Seat, topology: Topology) -> str:
    """The URL of one member: the template's ``{rank}``, ``{host}`` and ``{ip}`` are replaced by its own."""
    host = topology.hosts.get(seat.host)
    values = {"{rank}": str(seat.rank), "{host}": seat.host, "{ip}": host.ip if host is not None else seat.host}
    for name, value in values.items():
        template = template.replace(name, value)
    return template


def retransmissions(job: Job, template: str, topology: Topology) -> dict[int, int]:
    """Rank -> its own count, for the members that answer."""
    seats = [seat for seat in job.epoch.seats if seat.active]
    if not seats:
        return {}
    with ThreadPoolExecutor(min(_MEMBERS_AT_ONCE, len(seats)), "netsum-member-metrics") as pool:
        pages = pool.map(lambda seat: _fetch(address_of(template, seat, topology)), seats)
        counts = {seat.rank: _count(page, job.name, seat.rank) for seat, page in zip(seats, pages, strict=True)}
    return {rank: count for rank, count in counts.items() if count is not None}


def _fetch(url: str) -> str:
    try:
        with open_url(url, TIMEOUT) as answer:
            return str(answer.read(_MOST).decode("utf-8", "replace"))
    except (OSError, ValueError, http.client.HTTPException):
        return ""


def _count(page: str, job: str, rank: int) -> int | None:
    try:
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    except ValueError:
        return None  # whatever answers there, it is no member
    for sample in samples:
        if sample.name == _RESENT and (sample.labels.get("job"), sample.labels.get("rank")) == (job, str(rank)):
            return int(sample.value)
    return None


# Metrics of memory in the network: what comes for each region, how its shards are, which devices are there.


def memory_metrics(state: MemoryState, views: Sequence[SwitchView]) -> Iterator[Metric]:
    """All families; switches are not asked again."""
    labels = ("region", "switch")
    packets = CounterMetricFamily(
        "netsum_region_packets", "Instructions for the region that the switch has translated.", labels=labels
    )
    octets = CounterMetricFamily("netsum_region_bytes", "Bytes of those packets, as whole frames.", labels=labels)
    names = {region.id: name for name, region in state.regions.items()}
    for view in views:
        for number, counts in view.regions.items():
            if number in names:
                packets.add_metric((names[number], view.name), counts.packets)
                octets.add_metric((names[number], view.name), counts.bytes)
    shards = GaugeMetricFamily(
        "netsum_region_shards",
        "Shards: ok, moving, degraded (too few devices have everything), lost.",
        labels=("region", "state"),
    )
    for name, region in state.regions.items():
        found = [how_is(region, placed) for placed in state.shards[name]]
        for word in ("ok", "moving", "degraded", "lost"):
            shards.add_metric((name, word), found.count(word))
    up = GaugeMetricFamily("netsum_memory_device_up", "The memory device reports.", labels=("host",))
    for host, device in state.devices.items():
        up.add_metric((host,), device.alive)
    yield from (packets, octets, shards, up)


def how_is(region: Region, placed: Placed) -> str:
    """One word for a shard: ``degraded`` means that fewer devices than the region wants have everything of it."""
    shard = placed.installed
    if shard.lost:
        return "lost"
    if shard.target is not None:
        return "moving"
    whole = sum(not member.joining for member in shard.group.members)
    return "degraded" if whole < region.replicas else "ok"


MAX_AGE: Final = 2.0
"""Seconds for which a reading of the switches is reused."""

_AT_ONCE: Final = 8


class Metrics:
    """The answer to ``GET /metrics``."""

    def __init__(self, context: ControllerContext, max_age: float = MAX_AGE) -> None:
        self._registry = CollectorRegistry()
        self._switches = SwitchCollector(context, max_age)
        self._registry.register(self._switches)
        self._registry.register(ControllerCollector(context))
        ProcessCollector(registry=self._registry)

    def page(self, accept: str) -> tuple[str, bytes]:
        """Content type and body in the format that an ``Accept`` header asks for."""
        return encoded(self._registry, accept)

    def views(self) -> list[SwitchView]:
        """The state of the switches on the page, as :meth:`SwitchCollector.views`."""
        return self._switches.views()


def encoded(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """Content type and body; an ``Accept`` that cannot be parsed means any format."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # of a version that is no number
        encode, content_type = choose_encoder("")
    return content_type, encode(registry)


class SwitchCollector(Collector):
    """Switches and jobs as they are."""

    def __init__(self, context: ControllerContext, max_age: float = MAX_AGE, clock: Callable[[], float] = time.monotonic) -> None:
        self._context, self._max_age, self._clock = context, max_age, clock
        self._collectors: dict[str, JobCollector] = {}
        self._guard = threading.Lock()
        self._views: list[SwitchView] = []
        self._read_at = float("-inf")

    def describe(self) -> list[Metric]:
        return []  # registering must not read switches

    def views(self) -> list[SwitchView]:
        """The switches of the topology, read at most ``max_age`` seconds ago. Callers during a reading wait for its result."""
        with self._guard:
            if self._clock() - self._read_at >= self._max_age:
                names = list(self._context.topology.switches)
                for name in names:
                    self._collectors.setdefault(name, JobCollector(self._context))
                with ThreadPoolExecutor(min(_AT_ONCE, len(names)), "netsum-metrics") as pool:
                    self._views = list(pool.map(lambda name: self._collectors[name].look(name), names))
                self._read_at = self._clock()
            return self._views

    def collect(self) -> Iterator[Metric]:
        views = self.views()
        jobs = whole(job for view in views for job in view.jobs)
        up = GaugeMetricFamily("netsum_switch_up", "The switch answers and runs our program.", labels=("switch",))
        took = GaugeMetricFamily("netsum_switch_read_seconds", "How long reading the switch took.", labels=("switch",))
        for view in views:
            up.add_metric((view.name,), view.up)
            took.add_metric((view.name,), view.seconds)
        yield from (up, took)
        yield from _port_metrics(self._context.topology, views)
        yield from _job_metrics(jobs)
        yield from _member_metrics(jobs)
        yield from memory_metrics(self._context.memory.state(), views)


def _port_metrics(topology: Topology, views: list[SwitchView]) -> Iterator[Metric]:
    labels = ("switch", "port", "from")
    packets = CounterMetricFamily("netsum_port_packets", "Packets that came in at the switch's port.", labels=labels)
    octets = CounterMetricFamily("netsum_port_bytes", "Bytes of those packets, as whole frames.", labels=labels)
    dropped = CounterMetricFamily(
        "netsum_port_dropped_packets",
        "Packets of them that were dropped: their sender address belongs to another port, or they have a VLAN tag.",
        labels=labels,
    )
    for view in views:
        others = topology.on_ports(view.name)
        for port, counts in view.ports.items():
            here = (view.name, str(port), others.get(port, ""))
            packets.add_metric(here, counts.packets)
            octets.add_metric(here, counts.bytes)
            dropped.add_metric(here, counts.dropped)
    yield from (packets, octets, dropped)


def _job_metrics(jobs: list[JobView]) -> Iterator[Metric]:
    packets = CounterMetricFamily(
        "netsum_job_packets", "Packets of the job at its switches, by what became of them.", labels=("job", "outcome")
    )
    refused = CounterMetricFamily(
        "netsum_job_refused_packets", "Those of them that were refused, by reason.", labels=("job", "reason")
    )
    blocks = CounterMetricFamily("netsum_job_blocks", "Blocks of the epoch that have begun.", labels=("job",))
    epoch = _job_gauge("netsum_job_epoch", "Number of the job's epoch.")
    opened = _job_gauge("netsum_job_open_blocks", "Blocks that wait for a rank.")
    oldest = _job_gauge("netsum_job_oldest_block_seconds", "Age of the oldest open block; 0: none is, at most 67.")
    members = GaugeMetricFamily(
        "netsum_job_members",
        "Members: absent (have not joined), joined, silent (blocks lack them, nothing came for 1 s), left, evicted.",
        labels=("job", "presence"),
    )
    for view in jobs:
        name = view.job.name
        # While a switch is missing, the sum would be a counter that falls and then jumps.
        for outcome, count in view.outcomes.items() if view.complete else ():
            family = refused if Outcome[outcome.upper()] in REJECTIONS else packets
            family.add_metric((name, outcome), count)
        blocks.add_metric((name,), view.blocks)
        epoch.add_metric((name,), view.job.epoch.number)
        opened.add_metric((name,), view.open_blocks)
        oldest.add_metric((name,), view.oldest)
        for presence in Presence:
            members.add_metric((name, presence), sum(member.presence is presence for member in view.members))
    yield from (packets, refused, blocks, epoch, opened, oldest, members)


def _job_gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=("job",))


def _member_metrics(jobs: list[JobView]) -> Iterator[Metric]:
    labels = ("job", "rank", "host")
    packets = CounterMetricFamily("netsum_member_packets", "Packets of the member that its switch let in.", labels=labels)
    octets = CounterMetricFamily("netsum_member_bytes", "Bytes of those packets, as whole frames.", labels=labels)
    repeats = CounterMetricFamily(
        "netsum_member_repeats",
        "Packets of the member for blocks that had its part already; jobs that wait only.",
        labels=labels,
    )
    missing = GaugeMetricFamily("netsum_member_missing_blocks", "Open blocks that lack the member.", labels=labels)
    oldest = GaugeMetricFamily(
        "netsum_member_oldest_missing_seconds",
        "Age of the oldest block that lacks the member; 0: none does.",
        labels=labels,
    )
    for view in jobs:
        for member in view.members:
            here = (view.job.name, str(member.rank), member.host)
            packets.add_metric(here, member.packets)
            octets.add_metric(here, member.octets)
            if member.repeats is not None:
                repeats.add_metric(here, member.repeats)
            missing.add_metric(here, member.missing)
            oldest.add_metric(here, member.oldest or 0.0)
    yield from (packets, octets, repeats, missing, oldest)


class ControllerCollector(Collector):
    """Counts of what the controller has done since it began to serve, without jobs that are gone."""

    _COUNTS: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
        "joins": (
            "netsum_joins",
            "Joins and rejoins of members: ok, or the refusal, such as busy, evicted or cannot_resume.",
            ("job", "kind", "result"),
        ),
        "reconciles": (
            "netsum_reconciles",
            "Switches compared with what they should have: changed, unchanged, failed.",
            ("switch", "result"),
        ),
        "http": ("netsum_http_requests", "HTTP requests.", ("call", "status")),
        "scans": ("netsum_scans", "Scans sent for the job's old blocks.", ("job",)),
        "unanswered_scans": ("netsum_unanswered_scans", "Those of them that were not answered.", ("job",)),
        "scanned_blocks": ("netsum_scanned_blocks", "Blocks that they closed.", ("job",)),
    }

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        """All families; no switch is asked."""
        counters = self._context.counters
        counts = {key: counters.of(key) for key in self._COUNTS}
        jobs = {job.name for job in self._context.store.jobs() if job.exists}
        for key, (name, text, labels) in self._COUNTS.items():
            family = CounterMetricFamily(name, text, labels=labels)
            gone = {values for values in counts[key] if labels[0] == "job" and values[0] not in jobs}
            counters.forget(key, gone)  # members make groups, which are jobs, as often as they like
            for values in counts[key].keys() - gone:
                family.add_metric(values, counts[key][values])
            yield family
