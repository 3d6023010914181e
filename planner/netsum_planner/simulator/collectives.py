# SPDX-License-Identifier: MIT
"""An allreduce as messages: through switches that sum, by netsum's host algorithms, or by a plan.

Up to :data:`MOST` messages, the host algorithms are netsum's own (netsum.peers.schedules), batch by batch as its window sends
them. Larger calls are one batch, and then a ring and the two binary trees are each one flow along all their edges: a rank can
send on only what it has received, so that all go at the pace of the slowest edge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from netsum.collectives.call_fingerprint import FIRST_CODES
from netsum.core.endpoint import GROUP
from netsum.descriptor import HOST_ALGORITHMS
from netsum.peers.schedules import make_plan, two_trees
from netsum.wire.schema import EVERYONE, MAX_WORKERS

from netsum_planner.errors import PlanError
from netsum_planner.simulator.aggregation import Tree, trees
from netsum_planner.simulator.network import Numbers, Wire
from netsum_planner.simulator.schedules import MOST, Schedule

IN_NETWORK: Final = "in_network"
ALGORITHMS: Final = (IN_NETWORK, *HOST_ALGORITHMS)


@dataclass(frozen=True)
class Call:
    """An allreduce of ``nbytes`` between ``hosts``, in the order of their ranks; ``lane`` tells apart the connections of
    different jobs."""

    algorithm: str
    hosts: tuple[str, ...]
    nbytes: float
    wire: Wire
    lane: object = None


def add_allreduce(schedule: Schedule, call: Call, ready: Sequence[int]) -> list[int]:
    """Add the messages of a call. Rank i takes part once ``ready[i]`` has arrived; returns, for each rank, what must have arrived
    when the call is over for it. :class:`PlanError` if the network or the algorithm cannot do it."""
    if call.algorithm not in ALGORITHMS:
        raise PlanError(f"there is no algorithm {call.algorithm} (there are: {', '.join(ALGORITHMS)})")
    if len(call.hosts) == 1:
        return list(ready)
    if call.algorithm == IN_NETWORK:
        return _in_network(schedule, call, ready)
    batches = _batches(call)
    if batches is not None:
        return _by_hosts(schedule, call, ready, *batches)
    if call.algorithm == "halving_doubling":
        return _exchanges(schedule, call, ready)
    if call.algorithm == "ring":
        return _ring(schedule, call, ready)
    if call.algorithm == "double_binary_tree":
        return _two_trees(schedule, call, ready)
    raise PlanError(
        f"{call.algorithm} between {len(call.hosts)} hosts is too large to simulate: "
        "take fewer hosts, ring, halving_doubling, double_binary_tree or in_network"
    )


def _in_network(schedule: Schedule, call: Call, ready: Sequence[int]) -> list[int]:
    """Every block goes up a tree once and comes down once, at one rate on all links. The call opens with a block of its own."""
    network, wire = schedule.network, call.wire
    found = network.remembered(call.hosts, trees)
    opened = schedule.wait(ready)
    opened = schedule.wait([opened], max(_round_trip(schedule, tree, call.hosts, wire.opening, wire) for tree in found))
    parts = []
    for number, tree in enumerate(found):
        trip = _round_trip(schedule, tree, call.hosts, wire.packet, wire)
        links = tree.links(network)
        slowest = float(network.capacity[links].min())

        def way(number: int = number) -> Numbers:
            return _of(network.remembered(call.hosts, trees), number).links(network)

        # The first block fills the pipeline; the rest follow at the rate of the narrowest link.
        size = wire.blocks(call.nbytes) / len(found) * wire.packet
        parts.append(
            schedule.flow(
                ("tree", call.hosts, number),
                way,
                size,
                [opened],
                pause=max(0.0, trip - wire.packet / slowest),
                cap=wire.window / len(found) * wire.packet / trip,
            )
        )
    over = schedule.wait(parts)
    return [over] * len(call.hosts)


def _of(found: Sequence[Tree], number: int) -> Tree:
    """There may be fewer trees once links are down."""
    return found[number % len(found)]


def _round_trip(schedule: Schedule, tree: Tree, hosts: Sequence[str], packet: int, wire: Wire) -> float:
    """Seconds from the sending of a packet to its result: it is stored and forwarded at each switch."""
    network = schedule.network
    longest = 0.0
    known: dict[str, float] = {tree.root: 0.0}
    for host in hosts:
        way = tree.way(host)
        for child, parent in reversed(list(pairwise(way))):
            if child not in known:
                both = [network.number[child, parent], network.number[parent, child]]
                there = float((packet / network.capacity[both] + network.delay[both]).sum())
                known[child] = known[parent] + there
        longest = max(longest, known[host])
    return longest + 2 * wire.host_s


@dataclass(frozen=True)
class _Part:
    """A rank's part in an algorithm: in each round, to whom it sends how many rows, and from whom it receives."""

    rounds: tuple[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], ...]


def _batches(call: Call) -> tuple[int, list[_Part], int] | None:
    """Of a call as netsum's hosts make it: the number of batches, every rank's part in one, and a batch's rows. None if that is
    too much."""
    workers, blocks = len(call.hosts), -(-int(call.nbytes) // call.wire.block_bytes)
    if workers > MAX_WORKERS:
        return None
    longest = max(1, min(call.wire.window // 2, GROUP))
    batches = max(1, -(-blocks // longest))
    rows = max(1, min(blocks, longest))
    if batches * workers * 2 * workers.bit_length() > MOST:
        return None
    anyone = (EVERYONE,) * rows
    parts, count = [], 0
    for rank in range(workers):
        plan = make_plan(call.algorithm, rank, workers, anyone, anyone, call.algorithm)
        parts.append(
            _Part(
                tuple(
                    (
                        tuple((send.peer, len(send.rows)) for send in one.sends),
                        tuple(receive.peer for receive in one.receives),
                    )
                    for one in plan.rounds
                )
            )
        )
        count += sum(len(one.sends) for one in plan.rounds)
    return (batches, parts, rows) if batches * count <= MOST else None


def _by_hosts(schedule: Schedule, call: Call, ready: Sequence[int], batches: int, parts: Sequence[_Part], rows: int) -> list[int]:
    """Batch after batch, as many at a time as the window holds. The opening block is a batch of its own, and so are the codes
    that it has no room for."""
    in_flight = max(1, call.wire.window // rows)
    done = list(ready)
    for _ in range(1 if batches * rows <= FIRST_CODES else 2):
        done = _batch(schedule, call, parts, done, call.wire.block_bytes / rows / 16)
    finished: list[list[int]] = []
    row = call.nbytes / (batches * rows)
    for number in range(batches):
        begins = finished[number - in_flight] if number >= in_flight else done
        ended = _batch(schedule, call, parts, begins, row)
        before = finished[-1] if finished else done
        finished.append(
            [schedule.wait([one, other], host=host) for host, one, other in zip(call.hosts, ended, before, strict=True)]
        )
    return finished[-1]


def _batch(schedule: Schedule, call: Call, parts: Sequence[_Part], begins: Sequence[int], row: float) -> list[int]:
    """One batch of ``row`` bytes a row. The messages between two ranks are received in the order in which they are sent."""
    sent: dict[tuple[int, int], deque[int]] = {}
    numbers: list[list[list[int]]] = []
    for rank, part in enumerate(parts):
        of_rank = []
        for sends, _ in part.rounds:
            of_round = []
            for peer, count in sends:
                message = schedule.send(
                    call.hosts[rank],
                    call.hosts[peer],
                    call.wire.message(count * row),
                    (),
                    lane=call.lane,
                    pause=call.wire.host_s,
                )
                sent.setdefault((rank, peer), deque()).append(message)
                of_round.append(message)
            of_rank.append(of_round)
        numbers.append(of_rank)
    done = []
    for rank, part in enumerate(parts):
        gate = begins[rank]
        for (_, receives), messages in zip(part.rounds, numbers[rank], strict=True):
            for message in messages:
                schedule.wait_also(message, (gate,))
            if receives:
                came = [sent[peer, rank].popleft() for peer in receives]
                gate = schedule.wait([gate, *came], host=call.hosts[rank])
        done.append(gate)
    return done


def _exchanges(schedule: Schedule, call: Call, ready: Sequence[int]) -> list[int]:
    """Recursive halving-doubling of the whole array, between a power of two of ranks."""
    workers = len(call.hosts)
    if workers & (workers - 1):
        raise PlanError(f"halving_doubling between {workers} hosts is simulated only if they are a power of two")
    distances = [workers >> step for step in range(1, workers.bit_length())]
    rounds: list[tuple[tuple[tuple[int, int], ...], tuple[int, ...]]]
    parts = []
    for rank in range(workers):
        rounds = [(((rank ^ far, far),), (rank ^ far,)) for far in (*distances, *reversed(distances))]
        parts.append(_Part(tuple(rounds)))
    return _batch(schedule, call, parts, ready, call.nbytes / workers)


def _ring(schedule: Schedule, call: Call, ready: Sequence[int]) -> list[int]:
    """2 (n - 1) steps, all at the pace of the slowest."""
    network, hosts = schedule.network, call.hosts
    steps = 2 * (len(hosts) - 1)

    def way() -> Numbers:
        return np.concatenate([network.path(one, other) for one, other in zip(hosts, (*hosts[1:], hosts[0]), strict=True)])

    longest = max(
        float(network.delay[network.path(one, other)].sum()) for one, other in zip(hosts, (*hosts[1:], hosts[0]), strict=True)
    )
    size = steps * call.wire.message(call.nbytes / len(hosts))
    pause = steps * (longest + call.wire.host_s)
    over = schedule.flow(("ring", hosts), way, size, [schedule.wait(ready)], pause=pause)
    return [over] * len(hosts)


def _two_trees(schedule: Schedule, call: Call, ready: Sequence[int]) -> list[int]:
    """Half of the array up and down each tree, cut into enough chunks that all edges are busy."""
    network, hosts = schedule.network, call.hosts
    begin = schedule.wait(ready)
    parts = []
    for number, tree in enumerate(two_trees(len(hosts))):
        edges = [(child, parents[0]) for child, parents in enumerate(tree.parents) if parents]

        def way(edges: Sequence[tuple[int, int]] = edges) -> Numbers:
            there = [network.path(hosts[child], hosts[parent]) for child, parent in edges]
            return np.concatenate([*there, *(network.path(hosts[parent], hosts[child]) for child, parent in edges)])

        hop = max(float(network.delay[network.path(hosts[child], hosts[parent])].sum()) for child, parent in edges)
        depth = 2 * (len(hosts).bit_length() - 1)
        size = call.wire.message(call.nbytes / 2)
        pause = depth * (hop + call.wire.host_s)
        parts.append(schedule.flow(("tree", number, hosts), way, size, [begin], pause=pause))
    return [schedule.wait(parts)] * len(hosts)
