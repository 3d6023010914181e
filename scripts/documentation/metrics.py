# SPDX-License-Identifier: MIT
"""Reference of the metrics: the families that the collectors themselves yield, with their labels and help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, Final

from netsum.metrics import Exporter
from netsum.stats import Stats
from netsum.telemetry import CallEnd
from netsum_controller.memory.model import MemoryState
from netsum_controller.monitoring.metrics import ControllerCollector, SwitchCollector
from netsum_controller.observability import Counters
from netsum_memory.metrics import DeviceCollector
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

INTRODUCTIONS: Final = {
    "The controller": "`netsum serve` answers `GET /metrics`. Besides: `process_*`, of the controller's process.",
    "A member": "`netsum.metrics.serve(comm, port)`, or `netsum.metrics.register(comm)` for a program's own registry.",
    "A memory device": "`netsum-memory --metrics PORT`, on 127.0.0.1.",
}


class _NoSwitches(SwitchCollector):
    """Families have their names, labels and help without a sample."""

    def views(self) -> list[Any]:
        return []


def families() -> dict[str, list[Metric]]:
    """Return the families of each program, by its name in :data:`INTRODUCTIONS`."""
    context: Any = SimpleNamespace(
        topology=SimpleNamespace(),
        memory=SimpleNamespace(state=MemoryState),
        counters=Counters(),
        store=SimpleNamespace(jobs=list),
    )
    member: Any = SimpleNamespace(descriptor=SimpleNamespace(job="", rank=0, epoch=0), stats=Stats(), active_size=1, watchers=[])
    tally = SimpleNamespace(instructions={}, refused={}, dropped={}, bytes_received=0, bytes_sent=0, packets_sent=0)
    device = SimpleNamespace(tally=tally, holdings=SimpleNamespace(bytes_held=0, all=list))
    server: Any = SimpleNamespace(device=device, link=SimpleNamespace(lost={}))
    vault: Any = SimpleNamespace(journal_bytes=0, checkpoints=0)
    report: Any = SimpleNamespace(partial=False)
    exporter = Exporter(member, CollectorRegistry())
    for watcher in member.watchers:
        watcher(CallEnd("allreduce", 0.0, 0, None, report))  # prometheus_client's own counters show their labels in samples alone
    try:
        collected: tuple[Iterable[Metric], ...] = (
            [*_NoSwitches(context).collect(), *ControllerCollector(context).collect()],
            list(exporter.collect()),
            list(DeviceCollector(server, vault).collect()),
        )
    finally:
        exporter.close()
    return dict(zip(INTRODUCTIONS, map(list, collected), strict=True))


def exposed_name(family: Metric) -> str:
    """Return the name as Prometheus shows it."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def labels(family: Metric) -> list[str]:
    """Return the names of the family's labels; a histogram's ``le`` is left out."""
    named = getattr(family, "_labelnames", ())
    return list(named or dict.fromkeys(name for sample in family.samples for name in sample.labels if name != "le"))


def page() -> str:
    """Return the Markdown of all metrics."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Metrics\n\nEvery metric that netsum's programs export to Prometheus, as the programs describe it.\n"
    for program, found in families().items():
        yield f"## {program}\n\n{INTRODUCTIONS[program]}\n\n| metric | type | labels | meaning |\n|---|---|---|---|"
        for family in found:
            names = " ".join(f"`{name}`" for name in labels(family)) or "-"
            yield f"| `{exposed_name(family)}` | {family.type} | {names} | {family.documentation} |"
        yield ""
