# SPDX-License-Identifier: MIT
"""A member's metrics for Prometheus: the extra ``metrics``.

    comm = netsum.join(...)
    netsum.metrics.serve(comm, 9400)       # GET http://HOST:9400/metrics
    netsum.metrics.register(comm)          # or: among the metrics that the process already exports

Counters cover the communicator's current epoch and start again after ``comm.resync()``, as Prometheus allows; those of calls
continue. The reference that ``make docs`` builds lists them all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final, Protocol

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from netsum.descriptor import Descriptor
from netsum.fork_guard import ForkGuard, fork_guarded
from netsum.stats import Stats
from netsum.telemetry import CallEnd, Watcher

LABELS: Final = ("job", "rank")

COUNTERS: Final = {
    "blocks": ("netsum_blocks", "Blocks sent, each once."),
    "packets_sent": ("netsum_sent_packets", "Packets sent."),
    "packets_received": ("netsum_received_packets", "Packets received."),
    "bytes_sent": ("netsum_sent_bytes", "Bytes sent: netsum header and gradients, including repeats."),
    "bytes_received": ("netsum_received_bytes", "Bytes received: netsum header and gradients."),
    "retransmissions": ("netsum_retransmissions", "Blocks sent again."),
    "fast_retransmissions": (
        "netsum_fast_retransmissions",
        "Blocks sent again because later results overtook them; the timer sent the others.",
    ),
    "duplicates": ("netsum_duplicates", "Results that this rank already had."),
    "notices": ("netsum_notices", "Results that arrived without their payload, which was then asked for."),
    "malformed": ("netsum_malformed", "Packets that made no sense."),
    "stale": ("netsum_stale", "Answers that a block had been recycled."),
    "redone": ("netsum_redone_blocks", "Blocks repeated because a predicted scale did not fit."),
    "degraded": ("netsum_degraded_blocks", "Blocks with a partial result, because a rank was late."),
    "late": ("netsum_late_blocks", "Blocks whose result lacks this rank's part."),
    "lost": ("netsum_lost_blocks", "Blocks whose result was gone before this rank asked for it."),
    "ahead": ("netsum_ahead_results", "Results of blocks that this rank had not reached."),
    "backoffs": ("netsum_backoff_results", "Results that asked to give way to a job of a higher priority."),
    "congested": ("netsum_congested_packets", "Packets received that a congested link had marked."),
    "multicast": ("netsum_multicast", "Packets that came by IP multicast, as to other members."),
    "multicast_lost": ("netsum_multicast_lost", "Results that this rank had to fetch because they had not come by IP multicast."),
    "stored": ("netsum_stored_bytes", "Bytes of results and partial sums written to this host's memory."),
    "reads": ("netsum_reads", "Queries for packets of chains that did not come."),
    "resumes": ("netsum_resumes", "Switch restarts survived."),
}
"""Field of :class:`netsum.Stats` -> name (without ``_total``) and help."""

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram of calls in seconds, from one round trip to the default timeout."""


class Member(Protocol):
    """The part of a :class:`netsum.Communicator` that is used here."""

    watchers: list[Watcher]

    @property
    def stats(self) -> Stats: ...
    @property
    def descriptor(self) -> Descriptor: ...
    @property
    def active_size(self) -> int: ...


class Exporter(Collector):
    """A member's metrics in a registry, until closed. A second one for the same member and registry is a :class:`ValueError`."""

    def __init__(self, comm: Member, registry: CollectorRegistry) -> None:
        self._comm, self._registry = comm, registry
        self._labels = (comm.descriptor.job, str(comm.descriptor.rank))
        self._own = CollectorRegistry()  # has the metrics that are counted here; `collect` passes them on
        self._calls = Counter(
            "netsum_calls",
            "Calls that have ended, by outcome: ok, partial, or the error's name.",
            (*LABELS, "collective", "outcome"),
            registry=self._own,
        )
        self._seconds = Histogram(
            "netsum_call_seconds",
            "Seconds from a call's start to its end.",
            (*LABELS, "collective"),
            buckets=BUCKETS,
            registry=self._own,
        )
        self._reduced = Counter(
            "netsum_goodput_bytes",
            "Bytes of this rank's arrays in calls that have a result.",
            (*LABELS, "collective"),
            registry=self._own,
        )
        with _guard:
            members = _members.setdefault(registry, _Members(registry))
            members.add(self._labels, self)
        comm.watchers.append(self._ended)

    def _ended(self, call: CallEnd) -> None:
        self._calls.labels(*self._labels, call.collective, call.outcome).inc()
        self._seconds.labels(*self._labels, call.collective).observe(call.seconds)
        if call.error is None:
            self._reduced.labels(*self._labels, call.collective).inc(call.nbytes)

    def collect(self) -> Iterator[Metric]:
        stats, labels = self._comm.stats, self._labels
        for field, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=LABELS)
            counter.add_metric(labels, getattr(stats, field))
            yield counter
        refused = CounterMetricFamily("netsum_refused", "Contributions that the switch refused.", labels=(*LABELS, "reason"))
        for reason, count in dict(stats.refusals).items():
            refused.add_metric((*labels, reason.lower()), count)
        yield refused
        for name, text, value in (
            ("netsum_rtt_seconds", "Smoothed time from sending a block to its result; 0 if none yet.", stats.rtt),
            ("netsum_epoch", "Number of the member's epoch.", self._comm.descriptor.epoch),
            ("netsum_active_ranks", "Ranks that the job waits for.", self._comm.active_size),
        ):
            gauge = GaugeMetricFamily(name, text, labels=LABELS)
            gauge.add_metric(labels, value)
            yield gauge
        for metric in self._own.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric

    def close(self) -> None:
        with _guard:
            _members[self._registry].remove(self._labels)
        if self._ended in self._comm.watchers:
            self._comm.watchers.remove(self._ended)


class _Members(Collector):
    """All members of one registry: each metric must appear once, with the samples of all of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._exporters: dict[tuple[str, str], Exporter] = {}
        registry.register(self)

    def describe(self) -> list[Metric]:
        return []  # the registry need not collect to learn the names, which are ours alone

    def add(self, labels: tuple[str, str], exporter: Exporter) -> None:
        if labels in self._exporters:
            raise ValueError(
                f"job {labels[0]!r}, rank {labels[1]}: its metrics are already in this registry; close() those first"
            )
        self._exporters[labels] = exporter

    def remove(self, labels: tuple[str, str]) -> None:
        self._exporters.pop(labels, None)

    def collect(self) -> Iterator[Metric]:
        with _guard:
            exporters = list(self._exporters.values())
        merged: dict[str, Metric] = {}
        for exporter in exporters:
            for metric in exporter.collect():
                merged.setdefault(metric.name, metric)
                if merged[metric.name] is not metric:
                    merged[metric.name].samples.extend(metric.samples)
        yield from merged.values()


_guard: Final = threading.RLock()
_members: Final[dict[CollectorRegistry, _Members]] = {}


def register(comm: Member, registry: CollectorRegistry = REGISTRY) -> Exporter:
    """Export a member's metrics through ``registry`` (default: the process's), until the exporter's ``close()``."""
    return Exporter(comm, registry)


class Server:
    """An HTTP server with the metrics of one member alone."""

    def __init__(self, comm: Member, port: int, address: str) -> None:
        self._home = ForkGuard()
        registry = CollectorRegistry()
        self._exporter = Exporter(comm, registry)
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError:
            self.close()
            raise
        fork_guarded(self._server.socket)
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop serving. Has no effect in a forked process, which does not serve."""
        if not self._home.here:
            return
        if hasattr(self, "_server"):
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        self._exporter.close()


def serve(comm: Member, port: int = 0, address: str = "127.0.0.1") -> Server:
    """Serve a member's metrics at ``http://ADDRESS:PORT/metrics`` (0: a free port, see ``port``) in a thread of its own, until
    ``close()``. Anyone who can reach the address can see how training goes, so use one that only Prometheus reaches. Raises
    :class:`OSError` if the port is taken."""
    return Server(comm, port, address)
