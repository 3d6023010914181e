# SPDX-License-Identifier: MIT
"""A job as a user asks for it.

::

    name: resnet
    members: [h1, h2, h3, h4]     # rank order; the same host may hold several ranks
    window: 64                    # optional: blocks in flight (default: 256)
    chunks: 16                    # optional: payload of a block in 256-byte chunks
    late: degrade                 # optional: go on without members that are late (default: wait for them)
    block_exp: 50                 # optional, in a degrade job: least milliseconds that a block waits
    quorum: 2                     # optional, in a degrade job: workers that must be in it (default: half of them)
    tenant: vision                # optional: whose quota it counts against (default: `default`)
    share_memory: true            # optional: ranks of one host sum in its memory, and send the switch one contribution
    multicast: true               # optional: results leave once for all hosts that share a switch's port and can join a group
    priority: 3                   # optional: its class, 0 (the default) to 7; lower ones give way to higher ones
    roots: {spine1: 2, spine2: 1} # optional, if switches form a tree: which make results, and their shares of the blocks;
                                  # `plan:FILE` takes them from a plan
    advice: [[65536, 0.35]]       # optional, in an auto job: of calls of that many bytes or more, ranks may sum all but this
                                  # share by themselves (`netsum aggregator` plans it; default: the switch sums all)
    algorithm: auto               # optional: who combines, `switch`, or the members by `ring` or another algorithm, or as
                                  # `plan:FILE` says (default: `auto`, a switch if one has room, else the members)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from netsum.descriptor import AUTO, KNOWN, PLAN, check_advice, is_algorithm, without_switch
from netsum.peers.schedule_files import load_plan
from netsum.text import counted
from netsum.wire import schema
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from netsum_controller.config.topology import Name
from netsum_controller.config.yaml_files import Key, Strict, load_yaml, parse_yaml, validate
from netsum_controller.state.model import DEFAULT_TENANT, Job, Late

DEFAULT_WINDOW = 256
"""Blocks in flight: 256 of 4 KiB are 1 MiB, several round trips' worth for a software switch. The more results come at once, the
less a host spends on each. Without a switch, a message carries many blocks and often waits for one rank; others use the links
meanwhile."""
MAX_WINDOW = schema.SLOTS // 2
DEFAULT_BLOCK_EXP = 50.0
MIN_BLOCK_EXP = 1.0
MAX_BLOCK_EXP = 3_600_000.0
"""Milliseconds. A delay below the minimum is a scheduler's time slice, not a straggler; the maximum, an hour, fits the switch's
32 bits of microseconds."""

MAX_PRIORITY = 7

HISTORY = 4
"""A job that degrades gets this many times the slots that it needs ..."""
LONG_HISTORY = 1024
"""... but not more than this, unless it needs more."""


def _token(text: str) -> str:
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise ValueError("must be printable ASCII without spaces: it travels in an HTTP header")
    return text


def _advice(given: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    check_advice(given)
    return given


def check_algorithm(name: str) -> str:
    """The name, if it is a known algorithm; otherwise ValueError. A plan's file is not looked at."""
    if not is_algorithm(name):
        raise ValueError(f"must be one of {KNOWN}")
    return name


def roots_of_plan(given: Any) -> Any:
    """Of ``plan:FILE``, the roots of the plan and their weights; ValueError if there are none."""
    if not isinstance(given, str) or not given.startswith(PLAN):
        return given
    roots = load_plan(given.removeprefix(PLAN)).roots
    if not roots:
        raise ValueError(f"{given} names no roots: on its topology, no switches share the sums")
    return dict(roots)


def network_of_plan(given: Any) -> str:
    """Of ``plan:FILE``, the network that the plan is for, as JSON; "" if it has none, or is wrong, of which the roots tell."""
    if not isinstance(given, str) or not given.startswith(PLAN):
        return ""
    try:
        return load_plan(given.removeprefix(PLAN)).network
    except ValueError:
        return ""


Token = Annotated[str, Field(min_length=8, max_length=256), AfterValidator(_token)]


class JobSpec(Strict):
    """A job to create. Without a ``token`` a random one is made."""

    name: Name
    members: tuple[Name, ...] = Field(strict=False, min_length=1, max_length=schema.MAX_WORKERS)
    late: Late = Field(default=Late.WAIT, strict=False)
    algorithm: Annotated[str, AfterValidator(check_algorithm)] = AUTO
    window: int = Field(default=DEFAULT_WINDOW, ge=1, le=MAX_WINDOW)
    chunks: int | None = Field(default=None, ge=1, le=schema.MAX_CHUNKS)
    token: Token | None = Field(default=None, repr=False)
    block_exp: float | None = Field(default=None, ge=MIN_BLOCK_EXP, le=MAX_BLOCK_EXP)
    quorum: int | None = Field(default=None, ge=1)
    tenant: Name = DEFAULT_TENANT
    priority: int = Field(default=0, ge=0, le=MAX_PRIORITY)
    share_memory: bool = False
    multicast: bool = False
    roots: Annotated[dict[Name, Annotated[int, Field(ge=1)]] | None, Field(min_length=1), BeforeValidator(roots_of_plan)] = None
    advice: Annotated[tuple[Annotated[tuple[int, float], Field(strict=False)], ...], AfterValidator(_advice)] = Field(
        default=(), strict=False
    )
    """See :class:`netsum.descriptor.Descriptor`."""
    rates: str = Field(default="", repr=False)
    """The rates of cables that the advice follows from, in words."""
    network: str = Field(default="", repr=False)
    """Of the plan that the roots are from: if a part of it dies, other roots are planned for the rest."""

    @model_validator(mode="before")
    @classmethod
    def _with_network(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "network" in data or not (network := network_of_plan(data.get("roots"))):
            return data
        return {**data, "network": network}

    # These look at settings above their own; one that is wrong is not in `info.data`.

    @field_validator("block_exp", "quorum")
    @classmethod
    def _degrades(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("late") is Late.WAIT:
            raise ValueError("is for jobs with `late: degrade`; this one waits for every member")
        return value

    @field_validator("quorum")
    @classmethod
    def _within(cls, quorum: int | None, info: ValidationInfo) -> int | None:
        members = info.data.get("members")
        if quorum is not None and members is not None and quorum > len(members):
            raise ValueError(f"is {quorum}, and the job has {counted(len(members), 'member')}")
        return quorum

    @field_validator("algorithm")
    @classmethod
    def _hosts_wait(cls, algorithm: str, info: ValidationInfo) -> str:
        if without_switch(algorithm) and info.data.get("late") is Late.DEGRADE:
            raise ValueError("cannot continue without late members (`late: degrade`); a switch can")
        return algorithm

    @field_validator("multicast")
    @classmethod
    def _of_a_switch(cls, multicast: bool, info: ValidationInfo) -> bool:
        if multicast and without_switch(info.data.get("algorithm", AUTO)):
            raise ValueError("is for results of a switch; in this job the members combine themselves")
        return multicast

    @property
    def may_do_without(self) -> bool:
        """True if the members may combine themselves if no switch has room. (A switch that does not answer is a different
        case.)"""
        return self.algorithm == AUTO and self.late is Late.WAIT

    @property
    def leaders(self) -> tuple[int, ...]:
        """For each rank, the lowest that the topology has on the same host; () if ranks share no memory."""
        return tuple(map(self.members.index, self.members)) if self.share_memory else ()

    @property
    def block_exp_us(self) -> int:
        """Age at which a block may be closed, microseconds; 0 in a job that waits."""
        if self.late is Late.WAIT:
            return 0
        return round(1000 * (DEFAULT_BLOCK_EXP if self.block_exp is None else self.block_exp))

    @property
    def least_workers(self) -> int:
        """Workers that must be in a block that is closed early: the quorum, or half of the members, rounded up; 0 in a job that
        waits."""
        if self.late is Late.WAIT:
            return 0
        return (len(self.members) + 1) // 2 if self.quorum is None else self.quorum

    @property
    def slots(self) -> int:
        """Slots that the window needs: a power of two, at least twice the window. A job that degrades gets more, within limits,
        so that late members still find the results of recent windows."""
        needed = 1 << (2 * self.window - 1).bit_length()
        return needed if self.late is Late.WAIT else max(needed, min(HISTORY * needed, LONG_HISTORY))


def spec_of(job: Job) -> JobSpec:
    """The spec of a job like this one."""
    degrade = job.late is Late.DEGRADE
    return JobSpec(
        name=job.name,
        members=job.members,
        window=job.window,
        chunks=job.chunks,
        late=job.late,
        block_exp=job.block_exp_ms if degrade else None,
        quorum=job.quorum if degrade else None,
        tenant=job.tenant,
        priority=job.priority,
        share_memory=job.share_memory,
        multicast=job.multicast and not without_switch(job.algorithm),
        roots=dict(job.roots) or None,
        algorithm=job.algorithm,
        network=job.network,
        advice=job.advice,
        rates=job.rates,
    )


def load_job(path: str | Path, instead: Mapping[Key, Any] | None = None) -> JobSpec:
    """Job of a YAML file; the settings in ``instead``, which come from options, override its own.
    :class:`~netsum_controller.errors.InputError` quotes every wrong line."""
    document = load_yaml(path)
    if instead and isinstance(document.data, dict):
        document.data.update(instead)
        options = {key: f"--{'root' if key == 'roots' else str(key).replace('_', '-')}" for key in instead}
        document = replace(document, options=options)
    return validate(JobSpec, document)


def parse_job(text: str, source: str = "job") -> JobSpec:
    return validate(JobSpec, parse_yaml(text, source))
