# SPDX-License-Identifier: MIT
"""The scenario of a simulation: jobs and their calls, who is late, which links fail. From a YAML file (docs/planning.md) or
Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from netsum.text import parse_size
from netsum_controller.config.yaml_files import Closed, Problem, Problems, load_yaml, validate
from netsum_controller.errors import InputError
from pydantic import BeforeValidator, Field, model_validator

from netsum_planner.simulator.collectives import ALGORITHMS, IN_NETWORK
from netsum_planner.topologies.model import Topology


def _bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_size(value)
    except ValueError as error:
        raise Problems([Problem((), str(error))]) from None


Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Size = Annotated[int, BeforeValidator(_bytes), Field(ge=1)]


class JobPlan(Closed):
    """A job that makes ``calls`` allreduces of ``size`` bytes; before each, every rank computes for ``compute_ms``. No ``hosts``:
    all of the topology. ``plan`` is the file of a plan instead of an algorithm."""

    name: str = "job"
    hosts: tuple[str, ...] = ()
    algorithm: str = IN_NETWORK
    plan: Path | None = None
    size: Size = 1 << 20
    calls: Annotated[int, Field(ge=1)] = 1
    compute_ms: Milliseconds = 0.0
    start_ms: Milliseconds = 0.0

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.algorithm not in ALGORITHMS:
            raise Problems([Problem(("algorithm",), f"{self.algorithm} is none of {', '.join(ALGORITHMS)}")])
        if len(set(self.hosts)) < len(self.hosts):
            raise Problems([Problem(("hosts",), "a host is named twice")])
        return self


class Straggler(Closed):
    """A host that begins a call ``late_ms`` later, with this ``probability``."""

    host: str
    late_ms: Milliseconds
    probability: Annotated[float, Field(gt=0, le=1)] = 1.0


class Failure(Closed):
    """A link, named by its ends, that is down both ways from ``at_ms`` on, ``until_ms`` if that is given. ``found_ms`` later,
    paths and trees avoid it, or use it again."""

    link: Annotated[tuple[str, str], Field(strict=False)]
    at_ms: Milliseconds
    until_ms: Milliseconds | None = None
    found_ms: Milliseconds = 1000.0

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.until_ms is not None and self.until_ms <= self.at_ms:
            raise Problems([Problem(("until_ms",), f"must be later than at_ms, {self.at_ms:g}")])
        return self


class Scenario(Closed):
    """Everything that happens."""

    jobs: tuple[JobPlan, ...] = Field(min_length=1)
    stragglers: tuple[Straggler, ...] = ()
    failures: tuple[Failure, ...] = ()

    @model_validator(mode="after")
    def _different(self) -> Self:
        names = [job.name for job in self.jobs]
        twice = [Problem(("jobs", n, "name"), f"{name} is taken") for n, name in enumerate(names) if name in names[:n]]
        if twice:
            raise Problems(twice)
        return self


def read_scenario(path: Path, topology: Topology) -> Scenario:
    """The scenario of a file, whose hosts and links the topology must have. :class:`InputError` names the line."""
    document = load_yaml(path)
    scenario = validate(Scenario, document)
    hosts, known = set(topology.hosts), set(topology.rates)
    wrong: list[tuple[tuple[str | int, ...], str]] = []
    for n, job in enumerate(scenario.jobs):
        wrong += [(("jobs", n, "hosts"), f"there is no host {host}") for host in job.hosts if host not in hosts]
    for n, late in enumerate(scenario.stragglers):
        wrong += [(("stragglers", n, "host"), f"there is no host {late.host}")] if late.host not in hosts else []
    for n, each in enumerate(scenario.failures):
        if each.link not in known:
            wrong.append((("failures", n, "link"), f"there is no link {' - '.join(each.link)}"))
    if wrong:
        raise InputError(*(f"{document.where(at)}: {'.'.join(map(str, at))}: {words}" for at, words in wrong))
    return scenario
