# SPDX-License-Identifier: MIT
"""Trainings that want hosts, for tests of placement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from netsum_planner.placement.failure_domains import derived
from netsum_planner.placement.jobs import TrainingJob, Wanted
from netsum_planner.placement.search import Placer
from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import Layer, Machine, Training

MACHINE = Machine(gflops=10_000)
MB = 1e6
BLOCKS = Training(name="blocks", batch=8, layers=tuple(Layer(name=f"b{n}", parameters=10 * MB, gflops=10) for n in range(4)))
"""A sample takes 12 ms, forward and backward; all gradients are 160 MB."""


def job(name: str = "job", workers: int = 4, training: Training = BLOCKS, **more: Any) -> TrainingJob:
    return TrainingJob(Wanted(name=name, training=Path("x.yaml"), workers=workers, **more), training)


def placer(topology: Topology, *jobs: TrainingJob, taken: str = "", **more: Any) -> Placer:
    scopes = derived(topology)
    return Placer(topology, replace(scopes, taken=frozenset(taken.split())), jobs, MACHINE, **more)
