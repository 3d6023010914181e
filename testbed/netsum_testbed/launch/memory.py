"""`netsum run --memory FILE`: memory devices beside the ranks, and the regions that the program opens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from netsum_controller.config.yaml_marks import Strict, load_yaml, validate
from netsum_controller.memory.spec import RegionSpec
from pydantic import Field

from netsum_testbed.fabric import Fabric


class MemoryFile(Strict):
    """``devices``: how many hosts serve memory, besides those of the ranks."""

    devices: int = Field(default=1, ge=1, le=64)
    regions: tuple[RegionSpec, ...] = Field(strict=False, min_length=1)


def load_memory(path: Path) -> MemoryFile:
    """Raises :class:`InputError` with a line for everything that is wrong."""
    return validate(MemoryFile, load_yaml(path))


def start_memory(fabric: Fabric, wanted: MemoryFile, hosts: Sequence[str], token: str) -> None:
    """Start devices on these hosts and make the regions, which open with the job's token."""
    fabric.memory.start(hosts)
    for spec in wanted.regions:
        fabric.memory.create(spec.model_copy(update={"token": spec.token or token}))
