"""The optimizer at the memory beside the optimizer in every rank: what a step takes, and what it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from netsum.descriptor import SWITCH
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.memory.model import RegionSpec
from rich.table import Table

from netsum_testbed.bench.torch_ranks import found_by
from netsum_testbed.fabric import Fabric
from netsum_testbed.tables import make_table

HERE: Final = "in every rank"
EACH: Final = "each rank pushes"
SUMMED: Final = "the switch sums"
WAYS: Final = (HERE, EACH, SUMMED)


def region_name(way: str, size: int) -> str:
    return f"{way.replace(' ', '-')}-{size}"


@dataclass(frozen=True)
class Optimizers:
    """``workers`` ranks do so many timed ``steps`` of Adam, on models of these ``sizes`` in bytes, in each way; ``devices`` hold
    the memory."""

    workers: int = 4
    devices: int = 2
    steps: int = 20
    sizes: tuple[int, ...] = (64 << 10, 256 << 10, 1 << 20)

    def run(self, fabric: Fabric) -> list[dict[str, Any]]:
        """Train on a fabric, every rank a process on its own host; returns the figures by size."""
        hosts = list(fabric.topology.hosts)
        members = tuple(hosts[: self.workers])
        job = fabric.create_job(JobSpec(name="bench", members=members, algorithm=SWITCH))
        fabric.memory.start(hosts[self.workers : self.workers + self.devices])
        for size in self.sizes:
            for way, workers in ((EACH, self.workers), (SUMMED, 1)):
                self._create(fabric, region_name(way, size), size, workers, fabric.tokens[job.name])
        words = (self.steps, *self.sizes)
        found: list[dict[str, Any]] = found_by(fabric, job, "netsum_testbed.bench.optimizer_rank", words)
        return found

    @staticmethod
    def _create(fabric: Fabric, name: str, size: int, workers: int, token: str) -> None:
        options = {"optimizer": "adam", "workers": workers}
        fabric.memory.create(
            RegionSpec.of(name=name, kind="parameters", dtype="float32", size=size, options=options, token=token)
        )


def optimizer_table(switch: str, plan: Optimizers, runs: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each size and way."""
    columns = (
        *(">parameters\nbytes", "optimizer at the memory", ">step\nms"),
        *(">sent\nbytes", ">received\nbytes", ">all to memory\nbytes", ">memory sends\nbytes"),
    )
    rows: list[Sequence[str]] = []
    for found in runs:
        for way in WAYS:
            of = found[way]
            name = "no: in every rank" if way == HERE else way
            counted = [f"{of[key]:,}" for key in ("sent", "received", "to_memory", "from_memory")]
            rows.append((f"{found['size']:,}", name, f"{of['step_ms']:.1f}", *counted))
    title = f"{switch} switch, {plan.workers} workers, {plan.devices} devices: rank 0, medians and means of {plan.steps} steps"
    return make_table(title, columns, rows)
