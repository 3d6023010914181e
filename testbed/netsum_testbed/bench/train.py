"""DistributedDataParallel on netsum and on Gloo, in one run: step times by link rate, and whether the replicas agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from netsum.descriptor import SWITCH
from netsum_controller.config.job_spec import JobSpec
from rich.table import Table

from netsum_testbed.bench.torch_ranks import found_by
from netsum_testbed.fabric import Fabric
from netsum_testbed.tables import make_table

BACKENDS: Final = ("netsum", "gloo")


@dataclass(frozen=True)
class Training:
    """``workers`` ranks do so many timed ``steps``, each with a ``batch`` of its own, on a model of ``width`` whose gradients are
    in buckets of ``bucket_mib``."""

    workers: int = 4
    steps: int = 20
    width: int = 512
    batch: int = 1024
    bucket_mib: float = 0.25

    def run(self, fabric: Fabric) -> dict[str, Any]:
        """Train on a fabric, every rank a process on its own host; returns the figures."""
        members = tuple(fabric.topology.hosts)[: self.workers]
        job = fabric.create_job(JobSpec(name="bench", members=members, algorithm=SWITCH))
        words = (self.steps, self.width, self.batch, self.bucket_mib)
        found: dict[str, Any] = found_by(fabric, job, "netsum_testbed.bench.train_rank", words)
        fabric.delete_job(job.name)
        return found


def training_table(switch: str, training: Training, runs: Mapping[int, Mapping[str, Any]]) -> Table:
    """A line for each rate and backend."""
    columns = ("link", "", ">step\nms", ">backward\nms", ">alone\nms", ">sums alone\nms", ">hidden\n%", "replicas")
    rows: list[Sequence[str]] = []
    size = 0
    for rate, found in runs.items():
        size = found["gradient_bytes"]
        for backend in BACKENDS:
            of = found[backend]
            times = [f"{of[f'{name}_ms']:.1f}" for name in ("step", "backward", "compute", "communicate")]
            equal = "equal" if found["replicas_equal"][backend] else "DIFFERENT"
            rows.append(
                (f"{rate} Mbit/s" if rate else "unlimited", backend, *times, f"{100 * of['hidden']:.0f}", equal)
            )
    title = f"{switch} switch, {training.workers} workers, {size / 1e6:.1f} MB of gradients: medians of {training.steps} steps"
    return make_table(title, columns, rows)
