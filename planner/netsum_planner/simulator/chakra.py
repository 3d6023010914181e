# SPDX-License-Identifier: MIT
"""Chakra execution traces (MLCommons), a file a rank, for those who go on with ASTRA-sim.

``PREFIX.RANK.et`` has protobuf messages, each after its length: GlobalMetadata, then Nodes (schema/protobuf/et_def.proto). A call
through switches is one COMM_COLL_NODE; one of a host algorithm its sends and receives, with what they wait for. The few fields
that are needed are encoded here, so that the generated classes are not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from netsum_planner.errors import PlanError
from netsum_planner.simulator.collectives import IN_NETWORK
from netsum_planner.simulator.network import SimulatedNetwork, Wire
from netsum_planner.simulator.run import build, hosts_of
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.simulator.schedules import Schedule
from netsum_planner.topologies.model import Topology

VERSION: Final = "0.0.4"
COMP, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
ALL_REDUCE: Final = 0
_VARINT, _BYTES = 0, 2
_INT64, _BOOL = 9, 27
"""Numbers of an attribute's fields."""


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def _data(field: int, value: bytes) -> bytes:
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def _attribute(name: str, field: int, value: int) -> bytes:
    return _data(10, _data(1, name.encode()) + _number(field, value))


@dataclass(frozen=True)
class Node:
    """One operation of a rank. ``numbers`` are its attributes."""

    number: int
    name: str
    kind: int
    waits: Sequence[int]
    micros: int = 0
    numbers: tuple[tuple[str, int], ...] = ()

    def encode(self) -> bytes:
        waits = b"".join(varint(each) for each in self.waits)
        parts = [_number(1, self.number), _data(2, self.name.encode()), _number(3, self.kind)]
        parts += [_data(5, waits)] if waits else []
        parts += [_number(7, self.micros)] if self.micros else []
        parts.append(_attribute("is_cpu_op", _BOOL, 0))
        parts += [_attribute(name, _INT64, value) for name, value in self.numbers]
        return b"".join(parts)


def write_traces(prefix: Path, topology: Topology, scenario: Scenario, wire: Wire, seed: int = 0) -> list[Path]:
    """Write the first job's traces; returns the files. Ranks of the trace are the job's."""
    job = scenario.jobs[0]
    hosts = hosts_of(job, topology)
    nodes = _calls(job, hosts) if job.algorithm == IN_NETWORK and job.plan is None else None
    if nodes is None:
        only = scenario.model_copy(update={"jobs": (job,), "failures": ()})
        schedule, _ = build(SimulatedNetwork(topology), only, wire, seed)
        nodes = _messages(schedule, hosts)
    found = []
    for rank, of_rank in enumerate(nodes):
        path = prefix.with_name(f"{prefix.name}.{rank}.et")
        parts = [_data(1, VERSION.encode()), *(node.encode() for node in of_rank)]
        path.write_bytes(b"".join(varint(len(part)) + part for part in parts))
        found.append(path)
    return found


def _calls(job: JobPlan, hosts: Sequence[str]) -> list[list[Node]]:
    """Compute, allreduce, compute, allreduce..."""
    nodes = []
    for call in range(job.calls):
        waits = (2 * call,) if call else ()
        nodes.append(Node(2 * call + 1, "compute", COMP, waits, round(job.compute_ms * 1000)))
        numbers = (("comm_type", ALL_REDUCE), ("comm_size", job.size))
        nodes.append(Node(2 * call + 2, "allreduce", COLLECTIVE, (2 * call + 1,), numbers=numbers))
    return [nodes] * len(hosts)


def _messages(schedule: Schedule, hosts: Sequence[str]) -> list[list[Node]]:
    """Every rank's sends and receives, and between them what waits for several, as computing that takes no time."""
    ranks = {host: rank for rank, host in enumerate(hosts)}
    nodes: list[list[Node]] = [[] for _ in hosts]
    messages = schedule.messages
    for message in range(len(messages)):
        waits = tuple(each + 1 for each in sorted(messages.waits[message]))
        if message in schedule.owners:
            micros = round(messages.pause[message] * 1e6)
            rank = ranks[schedule.owners[message]]
            nodes[rank].append(Node(message + 1, f"wait {message}", COMP, waits, micros))
        elif message in schedule.ends:
            sender, receiver = (ranks[host] for host in schedule.ends[message])
            numbers = (
                ("comm_src", sender),
                ("comm_dst", receiver),
                ("comm_size", max(1, round(messages.size[message]))),
                ("comm_tag", message),
            )
            nodes[sender].append(Node(message + 1, f"send {message}", SEND, waits, numbers=numbers))
            nodes[receiver].append(Node(message + 1, f"receive {message}", RECEIVE, (), numbers=numbers))
        else:
            raise PlanError(f"{len(hosts)} hosts are too many for a trace of messages: take fewer, or in_network")
    return nodes
