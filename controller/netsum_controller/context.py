# SPDX-License-Identifier: MIT
"""The state that every operation of the controller works on: the topology, the state file and the P4 program. Finds switches
that are down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
from netsum_p4runtime import p4runtime_pb2_grpc

from netsum_controller.config.topology import Topology
from netsum_controller.errors import ControllerError, InputError, SwitchError
from netsum_controller.memory.devices import Beats
from netsum_controller.memory.rows import MemoryRows
from netsum_controller.observability import Counters
from netsum_controller.p4runtime.channel import Silence, open_channel, read_cookie
from netsum_controller.p4runtime.client import CONNECT_TIMEOUT, SwitchClient
from netsum_controller.p4runtime.p4info import CompiledProgram
from netsum_controller.planning.replan import Replan
from netsum_controller.state.store import Store

PATIENCE = 2.0
"""Seconds that a switch has to answer where others wait too, and it is asked again."""

_AT_ONCE = 16

Answer = TypeVar("Answer")


@dataclass
class ControllerContext:
    """``topology`` may be replaced (a testbed learns addresses late); ``url`` is set while the HTTP endpoint serves;
    ``counters`` counts what is done; ``down`` are the switches that do not answer, as far as this process has looked
    (:func:`find_down`): paths and trees avoid them. ``dead_links`` are links between switches that carry nothing, as far as this
    process has found out, and until when (:func:`time.monotonic`) new trees avoid them. ``silence`` knows which switches
    hang. ``replan`` makes other weights for the roots of a job whose network has lost something; None: the controller's own rules
    do. ``beats`` are the memory devices that report to this process, ``memory`` is what the state file knows of them and of
    regions."""

    topology: Topology
    store: Store
    program: CompiledProgram
    url: str | None = None
    connect_timeout: float = CONNECT_TIMEOUT
    patience: float = PATIENCE
    counters: Counters = field(default_factory=Counters)
    down: set[str] = field(default_factory=set)
    dead_links: dict[str, float] = field(default_factory=dict)
    silence: Silence = field(default_factory=Silence)
    replan: Replan | None = None
    beats: Beats = field(default_factory=Beats)
    memory: MemoryRows = field(init=False)

    def __post_init__(self) -> None:
        self.memory = MemoryRows(self.store)
        self.beats.vouched = self.memory.vouched()

    @property
    def links_down(self) -> frozenset[str]:
        """The links that new trees avoid now."""
        now = time.monotonic()
        return frozenset(name for name, until in list(self.dead_links.items()) if now < until)

    @property
    def usable(self) -> Topology:
        """The topology without them."""
        down = self.links_down
        return self.topology.without(down) if down else self.topology

    def topology_for(self, roots: Mapping[str, int] | None) -> Topology:
        """The part of the network where a new job may go. Roots that were asked for may not be able to share without a link,
        so who asks for some first gets them, and others when that is found not to work."""
        return self.topology if roots else self.usable

    def client(self, switch: str, *, brief: bool = False) -> SwitchClient:
        """``brief``: it has ``patience`` seconds to answer, not ``connect_timeout``."""
        found = self.topology.switches.get(switch)
        if found is None:
            known = ", ".join(self.topology.switches)
            raise InputError(f"the topology {self.topology.name!r} has no switch {switch!r} (it has: {known})")
        timeout = self.patience if brief else self.connect_timeout
        return SwitchClient(switch, found, self.program, connect_timeout=timeout, silence=self.silence)

    def require_program(self, client: SwitchClient) -> None:
        """Raise :class:`SwitchError` unless the switch runs our very program."""
        cookie = client.pipeline_cookie()
        if cookie is None:
            raise SwitchError(f"switch {client.name} has no P4 program yet: run `netsum switch push`")
        if cookie != self.program.cookie:
            raise SwitchError(
                f"switch {client.name} runs another P4 program than this netsum's: run `netsum switch push` "
                f"(it loads the program and restores the jobs under new epochs)"
            )


def find_down(context: ControllerContext) -> frozenset[str]:
    """Ask all switches at once whether they are there, and set ``context.down``. A switch whose address is not known yet is not
    down. Without links between switches, and where hosts do not reach several, there is no way around any, so only those that
    were down are asked. This is one call to each switch, which disturbs no client and takes at most ``context.patience``."""
    switches = context.topology.switches
    avoidable = context.topology.links or any(switch.stripes for switch in switches.values())
    names = [name for name in switches if avoidable or name in context.down]
    for name, there in zip(names, at_once(lambda name: answers(context, name), names), strict=True):
        (context.down.discard if there else context.down.add)(name)
    return frozenset(context.down)


def at_once(call: Callable[[str], Answer], switches: Iterable[str]) -> list[Answer]:
    """The result of the function for each switch; it is called for all at the same time. Its first error is raised when all are
    done."""
    names = list(switches)
    if len(names) < 2:
        return [call(name) for name in names]
    with ThreadPoolExecutor(min(_AT_ONCE, len(names)), "netsum-reach") as pool:
        return list(pool.map(call, names))


def answers(context: ControllerContext, name: str) -> bool:
    """True if a switch is there, or may be: its address is not known yet, or it cannot be asked."""
    switch = context.topology.switches[name]
    if switch.p4runtime is None:
        return True
    try:
        with closing(open_channel(switch.p4runtime, switch.tls)) as channel:
            read_cookie(p4runtime_pb2_grpc.P4RuntimeStub(channel), switch.device_id, context.patience)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            context.silence.begins(name)
        return error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    except ControllerError:
        return True  # one of our PEM files is missing, which says nothing about the switch
    context.silence.ends(name)
    return True
