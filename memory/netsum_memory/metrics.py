# SPDX-License-Identifier: MIT
"""A device's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from netsum_memory.message import instruction_name
from netsum_memory.serve import Server
from netsum_memory.storage import Storage


class DeviceCollector(Collector):
    """Reads the counters of a server that runs in another thread: each is a number, so it is whole."""

    def __init__(self, server: Server, vault: Storage | None) -> None:
        self._server, self._vault = server, vault

    def collect(self) -> Iterator[Metric]:
        tally = self._server.device.tally
        yield _counts(
            "netsum_memory_instructions",
            "Instructions taken, repeats too.",
            ("instruction",),
            {instruction_name(number): count for number, count in list(tally.instructions.items())},
        )
        yield _counts(
            "netsum_memory_refused",
            "Instructions refused; where a shard has several devices, each counts.",
            ("instruction", "reason"),
            tally.refused,
        )
        yield _counts("netsum_memory_dropped", "Packets without a reply.", ("reason",), tally.dropped)
        yield _counts("netsum_memory_lost", "Packets that the network did not take.", ("reason",), self._server.link.lost)
        yield _count("netsum_memory_received_bytes", "Bytes received: UDP payload.", tally.bytes_received)
        yield _count("netsum_memory_sent_bytes", "Bytes sent: UDP payload.", tally.bytes_sent)
        yield _count("netsum_memory_sent_packets", "Packets sent.", tally.packets_sent)
        holdings = self._server.device.holdings
        yield GaugeMetricFamily("netsum_memory_held_bytes", "Bytes of the shards held.", holdings.bytes_held)
        yield from self._shards()
        if self._vault is not None:
            yield GaugeMetricFamily("netsum_memory_journal_bytes", "Bytes of the journal.", self._vault.journal_bytes)
            yield _count("netsum_memory_checkpoints", "Checkpoints made.", self._vault.checkpoints)

    def _shards(self) -> Iterator[Metric]:
        labels = ("region", "shard")
        position = GaugeMetricFamily("netsum_memory_position", "Instructions in the shard's log.", labels=labels)
        primary = GaugeMetricFamily("netsum_memory_primary", "1 if this device is the shard's primary.", labels=labels)
        for holding in self._server.device.holdings.all():
            shard = holding.shard
            values = (shard.region.name, str(shard.index))
            position.add_metric(values, shard.position)
            primary.add_metric(values, int(shard.primary))
        yield position
        yield primary


def _counts(name: str, text: str, labels: tuple[str, ...], counts: Mapping[Any, int]) -> Metric:
    metric = CounterMetricFamily(name, text, labels=labels)
    for key, count in list(counts.items()):
        metric.add_metric(key if isinstance(key, tuple) else (key,), count)
    return metric


def _count(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(name, text, value)


class MetricsServer:
    """``GET /metrics`` on a port of the loopback's, in a thread of its own."""

    def __init__(self, server: Server, vault: Storage | None, port: int) -> None:
        """Raises OSError if the port is taken."""
        registry = CollectorRegistry()
        registry.register(DeviceCollector(server, vault))
        self._server, self._thread = start_http_server(port, "127.0.0.1", registry)
        self.port: int = self._server.server_port

    _thread: Thread

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
