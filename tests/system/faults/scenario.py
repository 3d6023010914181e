# SPDX-License-Identifier: MIT
"""Scenarios as data: validated, read from JSON or YAML (docs/testbed.md has an example), and logged in one line."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from netsum.transports.impairment import Impairment
from netsum.wire.schema import MAX_WORKERS
from netsum_controller.config.yaml_files import Problem, Problems, load_yaml, validate
from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST: Final = 0.5
"""A link with more loss would be as good as cut."""
LONGEST: Final = 60.0
"""Seconds that an event may last."""


class Where(StrEnum):
    """Places where packets are disturbed."""

    HOSTS = "hosts"
    KERNEL = "kernel"
    SWITCH = "switch"


class EventKind(StrEnum):
    """Events that may happen to a machine or a link."""

    STALL = "stall"
    KILL = "kill"
    CUT = "cut"
    RESTART_SWITCH = "restart_switch"
    RESTART_CONTROLLER = "restart_controller"
    EVICT = "evict"
    CUT_TRUNK = "cut_trunk"
    MOVE = "move"
    HANG_CONTROLLER = "hang_controller"

    @property
    def of_a_rank(self) -> bool:
        """True if it happens to one rank."""
        return self in (EventKind.STALL, EventKind.KILL, EventKind.CUT, EventKind.EVICT)


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rates(_Data):
    """One direction of a link. ``loss``, ``duplicate``, ``reorder``: probabilities for a packet; ``burst``: packets lost
    together on average; ``delay_ms``: how long every packet is held, and ``jitter_ms``: at most how much longer."""

    loss: float = Field(default=0.0, ge=0.0, le=MOST)
    duplicate: float = Field(default=0.0, ge=0.0, le=MOST)
    reorder: float = Field(default=0.0, ge=0.0, le=MOST)
    burst: float = Field(default=1.0, ge=1.0, le=1000.0)
    delay_ms: float = Field(default=0.0, ge=0.0, le=1000.0)
    jitter_ms: float = Field(default=0.0, ge=0.0, le=1000.0)

    def faults(self) -> Impairment:
        """The rates as the faulty transport takes them."""
        return Impairment(
            drop=self.loss,
            duplicate=self.duplicate,
            reorder=self.reorder,
            burst=self.burst,
            latency=self.delay_ms / 1000,
            jitter=self.jitter_ms / 1000,
        )


class LinkFaults(_Data):
    """A rank's link: ``up`` to the switch, ``down`` from it."""

    up: Rates = Rates()
    down: Rates = Rates()


class Event(_Data):
    """Something that happens when the first rank begins call ``after``, and is over ``seconds`` later: so long the rank is
    stalled, the link is cut, the switch or controller is off, or the members combine themselves; so long a killed or evicted
    rank's place stays empty. ``what``: the switch that restarts (else the job's first), the link between switches that is
    cut, or the algorithm to which the job moves."""

    after: int = Field(ge=0)
    kind: EventKind
    rank: int | None = Field(default=None, ge=0, lt=MAX_WORKERS)
    what: str | None = None
    seconds: float = Field(default=0.2, ge=0.0, le=LONGEST)

    @property
    def whom(self) -> int:
        """The rank that it happens to."""
        assert self.rank is not None, f"{self.kind} happens to no rank"
        return self.rank

    @property
    def which(self) -> str:
        """The link or algorithm that it concerns."""
        assert self.what is not None, f"{self.kind} is about nothing"
        return self.what

    @model_validator(mode="after")
    def _names_its_rank(self) -> Self:
        if self.kind.of_a_rank and self.rank is None:
            raise ValueError(f"{self.kind} happens to a rank: give `rank`")
        if not self.kind.of_a_rank and self.rank is not None:
            raise ValueError(f"{self.kind} happens to no rank: leave `rank` out")
        if self.what is None and self.kind in (EventKind.CUT_TRUNK, EventKind.MOVE):
            raise ValueError(f"{self.kind} happens to a link between switches, or moves to an algorithm: give `what`")
        return self


class Scenario(_Data):
    """Faults in a job. ``links`` are by rank, ``trunks`` by the name of a link between switches; others have no
    faults."""

    seed: int = Field(default=0, ge=0)
    where: Where = Where.HOSTS
    links: dict[int, LinkFaults] = {}
    trunks: dict[str, Rates] = {}
    events: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        named: dict[tuple[str | int, ...], Rates] = {
            ("links", rank, way): getattr(link, way) for rank, link in self.links.items() for way in ("up", "down")
        }
        named |= {("trunks", name): rates for name, rates in self.trunks.items()}
        problems = [
            Problem(path, "the kernel only loses packets: give `loss` alone")
            for path, rates in named.items()
            if self.where is Where.KERNEL and rates != Rates(loss=rates.loss)
        ]
        if self.where is Where.HOSTS and self.trunks:
            words = "hosts have no part in links between switches: where is `kernel` or `switch`"
            problems.append(Problem(("trunks",), words))
        if problems:
            raise Problems(problems)
        return self

    def link(self, rank: int) -> LinkFaults:
        """Faults of a rank's packets."""
        return self.links.get(rank, LinkFaults())

    def has(self, *kinds: EventKind) -> bool:
        """True if such an event is planned."""
        return any(event.kind in kinds for event in self.events)

    def to_line(self) -> str:
        """JSON in one line, without defaults."""
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True), separators=(",", ":"))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a scenario from a JSON or YAML file. :class:`~netsum_controller.errors.InputError` quotes every wrong line."""
        return validate(cls, load_yaml(path))
