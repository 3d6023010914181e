# SPDX-License-Identifier: MIT
"""The jobs that want hosts, from a file; the first has the first choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from netsum_controller.config.yaml_files import Closed, Problem, Problems, load_yaml, validate
from pydantic import Field, model_validator

from netsum_planner.placement.failure_domains import LEVELS, FailureDomains
from netsum_planner.simulator.collectives import ALGORITHMS, IN_NETWORK
from netsum_planner.training.job import Layer, Training, read_training

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
STATE_BYTES = 16.0
"""A parameter with its gradient and Adam's state in mixed precision: 2 + 2 + 12 (Rajbhandari et al., ZeRO, SC 2020)."""


class Sizes(NamedTuple):
    """Workers that share a layer (tensor parallel), stages of the pipeline, and replicas (data parallel)."""

    tp: int
    pp: int
    dp: int

    def __str__(self) -> str:
        return f"{self.tp} x {self.pp} x {self.dp}"


class Wanted(Closed):
    name: str
    training: Path
    workers: Count
    tp: Count | None = None
    pp: Count | None = None
    memory_gbytes: Positive | None = Field(default=None, alias="memory_GB")
    state_bytes: Positive = STATE_BYTES
    activation_mbytes: Positive | None = Field(default=None, alias="activation_MB")
    microbatches: Count = 8
    algorithm: str = IN_NETWORK
    tensor: str | None = "rack"
    pipeline: str | None = "zone"
    data: str | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        wrong = []
        levels = (("tensor", self.tensor), ("pipeline", self.pipeline), ("data", self.data))
        for key, level in levels:
            if level is not None and level not in LEVELS:
                wrong.append(Problem((key,), f"{level} is none of {', '.join(LEVELS)}"))
        if not wrong:
            width = [LEVELS.index(level) if level else len(LEVELS) for _, level in levels]
            for (narrow, one), (wide, other) in pairwise(enumerate(levels)):
                if width[narrow] > width[wide]:
                    words = f"{other[1]} is less than the {one[1] or 'everything'} that {one[0]} may take"
                    wrong.append(Problem((other[0],), words))
        if self.algorithm not in ALGORITHMS:
            wrong.append(Problem(("algorithm",), f"{self.algorithm} is none of {', '.join(ALGORITHMS)}"))
        for key, size in (("tp", self.tp), ("pp", self.pp)):
            if size is not None and size > 1 and self.activation_mbytes is None:
                wrong.append(Problem((key,), "needs activation_MB, what a sample takes between two layers"))
        if self.workers % ((self.tp or 1) * (self.pp or 1)):
            wrong.append(Problem(("workers",), "must be a multiple of tp * pp"))
        if wrong:
            raise Problems(wrong)
        return self


class _File(Closed):
    jobs: Annotated[tuple[Wanted, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _different(self) -> Self:
        names = [job.name for job in self.jobs]
        if twice := [Problem(("jobs", n, "name"), f"{name} is taken") for n, name in enumerate(names) if name in names[:n]]:
            raise Problems(twice)
        return self


class TrainingJob(NamedTuple):
    """A training that wants hosts, and how (docs/planning.md names the settings). All sizes share ``workers * training.batch``
    samples a step."""

    wanted: Wanted
    training: Training

    @property
    def name(self) -> str:
        return self.wanted.name

    @property
    def workers(self) -> int:
        return self.wanted.workers

    @property
    def activation(self) -> float:
        """Bytes of a sample between two layers."""
        return (self.wanted.activation_mbytes or 0.0) * 1e6

    def samples(self, sizes: Sizes) -> float:
        """Of a replica in a step."""
        return self.workers * self.training.batch / sizes.dp

    def microbatches(self, sizes: Sizes) -> int:
        """Without a pipeline, a step is not cut."""
        return 1 if sizes.pp == 1 else max(1, min(self.wanted.microbatches, int(self.samples(sizes))))

    def stages(self, pp: int) -> list[tuple[Layer, ...]]:
        """Consecutive layers by stage, so that the stage with most work has as little as possible. Cost: layers^2 * pp."""
        layers = self.training.layers
        ends = (0, *_cut(tuple(self.work(layers)), pp))
        return [layers[begin:end] for begin, end in pairwise(ends)]

    def share(self, stage: Sequence[Layer]) -> float:
        """Of the work of all layers."""
        return sum(self.work(stage)) / (sum(self.work(self.training.layers)) or 1.0)

    def work(self, layers: Sequence[Layer]) -> list[float]:
        """GFLOP of each layer, or its parameters where no layer of the training has any."""
        return [layer.gflops if self.training.gflops else layer.parameters for layer in layers]

    def memory(self, sizes: Sizes) -> float:
        """Bytes that the neediest worker needs: its parameters' state, and the activations of the microbatches in progress, one
        for each layer."""
        in_flight = min(self.microbatches(sizes), sizes.pp) * self.samples(sizes) / self.microbatches(sizes)
        return max(
            self.state(stage, sizes) + len(stage) * self.activation * in_flight / sizes.tp for stage in self.stages(sizes.pp)
        )

    def state(self, stage: Sequence[Layer], sizes: Sizes) -> float:
        """Bytes that a worker of this stage must have to go on."""
        return sum(layer.parameters for layer in stage) * self.wanted.state_bytes / sizes.tp

    def sizes(self) -> Iterator[Sizes]:
        """All wanted sizes that fit the memory, fewest parts of the model first."""
        several = self.wanted.activation_mbytes is not None
        for parts in _divisors(self.workers) if several else [1]:
            for tp in _divisors(parts):
                found = Sizes(tp, parts // tp, self.workers // parts)
                wanted = self.wanted.tp in (None, found.tp) and self.wanted.pp in (None, found.pp)
                if wanted and found.pp <= len(self.training.layers) and self.fits(found):
                    yield found

    def fits(self, sizes: Sizes) -> bool:
        return self.wanted.memory_gbytes is None or self.memory(sizes) <= self.wanted.memory_gbytes * 1e9


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


@lru_cache(maxsize=1024)
def _cut(work: tuple[float, ...], parts: int) -> tuple[int, ...]:
    """The index at which each part ends."""
    until = [0.0, *accumulate(work)]
    # Of the first n layers, the most work of a part, and where parts end.
    best: dict[int, tuple[float, tuple[int, ...]]] = {n: (until[n], (n,)) for n in range(1, len(work) + 1)}
    for part in range(2, parts + 1):
        best = {
            n: min((max(best[m][0], until[n] - until[m]), (*best[m][1], n)) for m in range(part - 1, n))
            for n in range(part, len(work) + 1)
        }
    return best[len(work)][1]


def read_jobs(path: Path) -> tuple[TrainingJob, ...]:
    """The jobs of a file, with their trainings, whose files are named from there. :class:`InputError` names the line."""
    file = validate(_File, load_yaml(path))
    return tuple(TrainingJob(wanted, read_training(path.parent / wanted.training)) for wanted in file.jobs)


# The hosts of one job, in the order of its ranks.


@dataclass(frozen=True)
class Placement:
    """``order``: the host of each rank. Ranks count tensor parallel first, then data parallel, then stages, as those of
    Megatron-LM and DeepSpeed do: rank (p * dp + d) * tp + t is part t of stage p in replica d."""

    job: TrainingJob
    sizes: Sizes
    order: tuple[str, ...]

    @property
    def tensor_groups(self) -> list[tuple[str, ...]]:
        """Hosts that share a layer; the group of stage p in replica d is the (p * dp + d)-th."""
        tp = self.sizes.tp
        return [self.order[first : first + tp] for first in range(0, len(self.order), tp)]

    @property
    def data_groups(self) -> list[tuple[str, ...]]:
        """Hosts that sum the same gradients."""
        tp, _, dp = self.sizes
        return [self.order[first : first + dp * tp][t::tp] for first in range(0, len(self.order), dp * tp) for t in range(tp)]

    @property
    def passes(self) -> list[tuple[str, str]]:
        """The pairs of hosts that send each other activations."""
        return list(zip(self.order, self.order[self.sizes.dp * self.sizes.tp :], strict=False))

    @property
    def replicas(self) -> list[tuple[str, ...]]:
        """The hosts of each, stage after stage."""
        groups, dp = self.tensor_groups, self.sizes.dp
        return [tuple(host for group in groups[d::dp] for host in group) for d in range(dp)]

    def with_group(self, number: int, hosts: tuple[str, ...]) -> Placement:
        """Other hosts for one tensor group."""
        groups = self.tensor_groups
        groups[number] = hosts
        return replace(self, order=tuple(host for group in groups for host in group))

    def holds(self, scopes: FailureDomains) -> bool:
        """True if every group is in one scope of the level that its job wants."""
        wanted = self.job.wanted
        return (
            all(scopes.together(group, wanted.tensor) for group in self.tensor_groups)
            and all(scopes.together(replica, wanted.pipeline) for replica in self.replicas)
            and scopes.together(self.order, wanted.data)
        )

    def to_json(self) -> dict[str, Any]:
        tp, pp, dp = self.sizes
        return {"tensor_parallel": tp, "pipeline_parallel": pp, "data_parallel": dp, "order": list(self.order)}
