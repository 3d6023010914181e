# SPDX-License-Identifier: MIT
"""A small configuration to explore: what clients ask, who may fail, and what is wanted of the group."""

from __future__ import annotations

from dataclasses import dataclass, field

from netsum_controller.memory.model import Member, ReplicaGroup

from tests.model.memory.device import ModelReplica

R, W = "read", "write"


@dataclass(frozen=True)
class ControlRules:
    """The controller's rules that can be switched off."""

    switches_first: bool = True  # all switches have an epoch's tables before a device is told of the epoch
    whole_only: bool = True  # a primary follows from among the whole members
    same_memory: bool = True  # a device that has lost its memory is another one
    vouched: bool = True  # a device that has less than it has vouched for has lost its memory


@dataclass(frozen=True)
class Scenario:
    """Devices are numbers; the first ``group`` of them are in the first epoch's group."""

    name: str
    programs: tuple[tuple[str, ...], ...]  # of each client: R and W
    group: int = 2
    devices: int = 2
    durable: bool = False
    put_back: tuple[int, ...] = ()  # devices whose folder may once become again what it was at first
    heard: bool = False  # what they had vouched for until then, the controller has heard
    says: bool = True  # clients say what they were told
    restarts: tuple[int, ...] = ()  # devices that may restart, each as often as it is named
    wanted: tuple[tuple[int, ...], ...] = ()  # what is wanted of the group, one after the other, from the second epoch on
    silent: tuple[int, ...] = ()  # who may seem dead to the controller
    epochs: int = 3
    switches: int = 1  # client c is behind switch c modulo this
    keep: int = 1024  # executed records that a log keeps
    swift: bool = False  # backups have instructions as soon as they are sent, so no device asks for any
    batches: bool = False  # also deliver what is there for a device in one batch
    timers: bool = False  # also explore what is sent again by timers, not only what safety needs
    replica: type[ModelReplica] = ModelReplica
    control: ControlRules = field(default_factory=ControlRules)

    def first_group(self) -> ReplicaGroup:
        return ReplicaGroup(1, tuple(Member(str(number), "0") for number in range(self.group)))
