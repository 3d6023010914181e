# SPDX-License-Identifier: MIT
"""Makes calls on trees of switches and counts the bytes on their links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from netsum.communicator import Communicator
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.context import ControllerContext
from netsum_controller.planning.items import job_trees
from netsum_controller.planning.trees import Trees
from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.ranks import joined

from tests.system.traffic.costs import COSTS, FRAME_HEADERS, Cost, Formula, Place, between_hosts, frames, headers

# The bytes on each link of a network, as its switches count them.
#
# A switch counts what comes in. So both directions of a link between switches are known, each at its far end, and of a
# host's link what the host has sent.


class Passed(NamedTuple):
    """Frames, and bytes of whole frames."""

    frames: int
    bytes: int


Way = tuple[str, str]
"""One direction of a link: from a host or a switch, to a switch."""

Traffic = Mapping[Way, Passed]


def read_links(context: ControllerContext) -> dict[Way, Passed]:
    """Read what has passed since the switches' programs were loaded; parallel links between two switches are added up. Takes one
    call per switch. Raises :class:`~netsum_controller.errors.SwitchError` if one does not answer."""
    passed: dict[Way, Passed] = {}
    for switch in context.topology.switches:
        senders = {host.port: name for name, host in context.topology.hosts_of(switch).items()}
        senders |= {port: other.switch for port, other in context.topology.neighbors(switch).items()}
        with context.client(switch) as client:
            counted = client.read_ports(senders)
        for port, sender in senders.items():
            way = (sender, switch)
            before = passed.get(way, Passed(0, 0))
            passed[way] = Passed(before.frames + counted[port][0], before.bytes + counted[port][1])
    return passed


def between(before: Traffic, after: Traffic) -> dict[Way, Passed]:
    """Bytes between two readings."""
    return {way: Passed(frames - before[way].frames, octets - before[way].bytes) for way, (frames, octets) in after.items()}


# Bytes of each collective, measured at the hosts, next to the formulas.
#
# Through a switch, packets are sent again when they seem lost. Without a switch, all bytes of the members' messages are
# counted: payload, 14 bytes per row, message headers, acknowledgments, the agreement, and a barrier after each call,
# since a rank that has its results may still have something to send.


RANKS: Final = 4
SIZE: Final = 1 << 18
"""S, in bytes."""


@dataclass(frozen=True)
class Bytes:
    """The bytes that the formula expects, headers included, and those that were measured."""

    formula: str
    expected: int
    measured: int


@dataclass(frozen=True)
class Volume:
    """Bytes that one rank (the first of those that ``who`` names) sent and received in one call. ``again``: packets sent
    again."""

    collective: str
    who: str
    sent: Bytes
    received: Bytes
    again: int


@dataclass(frozen=True)
class HostVolume(Bytes):
    """Bytes that all ranks sent in one call, without a switch. ``again``: messages sent again."""

    collective: str
    again: int


def measure(communicators: Sequence[Communicator], size: int = SIZE) -> list[Volume]:
    """Make each call once, of ``size`` bytes of float32 per rank, in a job without faults."""
    n, block_bytes = len(communicators), communicators[0].descriptor.block_bytes
    volumes: list[Volume] = []
    count(communicators, "allreduce", size)  # the round-trip time is known from here on
    for cost in COSTS:
        counted, more = count(communicators, cost.collective, size), headers(cost, n, size, block_bytes)
        for (who, formulas), moved in zip(cost.ranks.items(), counted, strict=False):
            sent, received = (
                Bytes(formula.words, int(formula.share(Place(n)) * size) + more, octets)
                for formula, octets in zip(formulas, moved, strict=False)
            )
            volumes.append(Volume(cost.collective, who, sent, received, moved[2]))
    return volumes


def measure_without(communicators: Sequence[Communicator], size: int = SIZE) -> list[HostVolume]:
    """The same in a job whose members combine themselves."""
    algorithm, n = communicators[0].descriptor.algorithm, len(communicators)
    count(communicators, "allreduce", size, settle=Communicator.barrier)  # the round-trip time is known from here on
    volumes = []
    for cost in COSTS:
        counted = count(communicators, cost.collective, size, settle=Communicator.barrier)
        words, least = between_hosts(cost, algorithm, n, size)
        sent, again = (sum(each[which] for each in counted) for which in (0, 2))
        volumes.append(HostVolume(words, least, sent, cost.collective, again))
    return volumes


def count(
    communicators: Sequence[Communicator], name: str, size: int, settle: Callable[[Communicator], None] = lambda _: None
) -> list[tuple[int, int, int]]:
    """Bytes that each rank sent and received in one call, and packets that it retransmitted; the root is rank 0.
    ``settle(comm)`` is called between the call and the counting."""

    def counts(comm: Communicator) -> Any:
        stats = comm.stats
        return np.array([stats.bytes_sent, stats.bytes_received, stats.retransmissions])

    def make(comm: Communicator) -> tuple[int, int, int]:
        before = counts(comm)
        make_call(comm, name, size)
        settle(comm)
        sent, received, again = (counts(comm) - before).tolist()
        return sent, received, again

    return on_all(communicators, make)


def on_all(communicators: Sequence[Communicator], make: Callable[[Communicator], Any]) -> list[Any]:
    """Do something on every rank, at the same time."""
    with ThreadPoolExecutor(len(communicators)) as pool:
        return list(pool.map(make, communicators))


def make_call(comm: Communicator, name: str, size: int) -> None:
    """Make one rank's part of a call of ``size`` bytes of float32 per rank (scatter: at the root); a sum's result is checked."""
    number = size // 4 // (comm.size if name == "scatter" and comm.rank else 1)
    given = np.full(number, comm.rank + 1, np.float32)
    collective, _, how = name.partition(" ")
    options = {"bits": int(how.removeprefix("bits="))} if how.startswith("bits=") else {}
    if how == "half zeros":
        given[: number // 2] = 0
    result = getattr(comm, collective)(*([] if name == "barrier" else [given]), **options)
    if name == "allreduce" and not (result == comm.size * (comm.size + 1) / 2).all():
        raise AssertionError(f"rank {comm.rank}: the sum is wrong")


WINDOW: Final = 8
"""So few blocks in flight that no packet waits long enough to seem lost."""
TRIES: Final = 6


@dataclass(frozen=True)
class LinkBytes(Bytes):
    """One direction of a link. ``again``: frames beyond one per block, which are retransmissions, requests for them, and headers
    of blocks whose payload has gone ahead."""

    again: int


@dataclass(frozen=True)
class Line:
    """One call on one link, or on all links from a switch to its parents, which share the blocks. What a host receives is not
    counted."""

    topology: str
    collective: str
    link: str
    up: LinkBytes
    down: LinkBytes | None = None


@dataclass(frozen=True)
class Below:
    """An allreduce with that many ``hosts`` of the job below a leaf: the bytes on all their links, and on the leaf's uplink."""

    hosts: int
    sent: int
    up: LinkBytes
    down: LinkBytes


@dataclass(frozen=True)
class Stripe:
    """One leaf's link to one root. ``due``: the root's share of the stripes; ``up`` and ``down`` in bytes, and as shares of
    what all of the leaf's uplinks carried."""

    weights: str
    link: str
    due: float
    up: int
    up_share: float
    down: int
    down_share: float


@dataclass(frozen=True)
class Network:
    """A job on a fabric, and the bytes that its calls move."""

    fabric: Fabric
    members: Sequence[str]
    communicators: Sequence[Communicator]
    trees: Trees

    @property
    def block_bytes(self) -> int:
        return self.communicators[0].descriptor.block_bytes

    def call(self, name: str, size: int = SIZE) -> Traffic:
        """Make a call on all ranks, with rank 0 as the root; return what passed each link meanwhile. On a busy machine answers
        are late and packets are retransmitted needlessly, so of several calls the one that moved the fewest bytes counts."""
        least: Traffic = {}
        for _ in range(TRIES):
            traffic = self._call(name, size)
            if least and _total(traffic) == _total(least):
                break
            least = min(least or traffic, traffic, key=_total)
        return least

    def _call(self, name: str, size: int) -> Traffic:
        before = read_links(self.fabric.controller.context)
        on_all(self.communicators, lambda comm: make_call(comm, name, size))
        return between(before, read_links(self.fabric.controller.context))

    def leaves(self) -> list[str]:
        """The switches that have both members and a parent."""
        return [name for name, node in self.trees.nodes.items() if node.uplinks and any(child.host for child in node.children)]


def _total(traffic: Traffic) -> int:
    return sum(passed.bytes for passed in traffic.values())


@contextmanager
def network(fabric: Fabric, hosts: Sequence[str], **options: Any) -> Iterator[Network]:
    """A job with a rank on each of these hosts."""
    spec = JobSpec(name="links", members=tuple(hosts), window=WINDOW, **options)
    with joined(fabric, spec) as members:
        trees = job_trees(fabric.topology, fabric.controller.job(spec.name))
        made = Network(fabric, hosts, members.communicators, trees)
        made.call("allreduce")  # the round trip time is known from here on
        yield made


def collectives(made: Network, costs: Sequence[Cost] = COSTS) -> Iterator[Line]:
    """Measure each collective, on the link of rank 0's host, and between two leaves (the first is rank 0's) and their parents."""
    topology = made.fabric.topology
    root, n = made.members[0], len(made.members)
    home = topology.hosts[root].switch
    leaves = sorted(made.leaves(), key=lambda name: name != home)[:2]
    for cost in costs:
        traffic = made.call(cost.collective)
        first = compare(made, cost, cost.root, Place(n, 1, with_root=True), [traffic[root, home]])
        yield Line(topology.name, cost.collective, f"{root} - {home}", first)
        for leaf in leaves:
            yield uplinks(made, cost, leaf, traffic)


def uplinks(made: Network, cost: Cost, leaf: str, traffic: Traffic) -> Line:
    """Bytes that a call moved between a leaf and its parents."""
    node = made.trees.nodes[leaf]
    place = Place(len(made.members), len(node.ranks), 0 in node.ranks)
    parents = [uplink.switch for uplink in node.uplinks]
    up = compare(made, cost, cost.up, place, [traffic[leaf, parent] for parent in parents])
    down = compare(made, cost, cost.down, place, [traffic[parent, leaf] for parent in parents])
    other = parents[0] if len(parents) == 1 else f"{len(parents)} parents"
    return Line(made.fabric.topology.name, cost.collective, f"{leaf} - {other}", up, down)


def compare(made: Network, cost: Cost, formula: Formula, place: Place, passed: Sequence[Passed]) -> LinkBytes:
    """Compare what passed with what should have."""
    due = int(formula.share(place) * SIZE) + headers(cost, place.n, SIZE, made.block_bytes, FRAME_HEADERS)
    again = sum(each.frames for each in passed) - frames(cost, place.n, SIZE, made.block_bytes)
    return LinkBytes(formula.words, due, sum(each.bytes for each in passed), again)


def below(made: Network, leaf: str) -> Below:
    """Measure an allreduce on the links of one leaf."""
    traffic = made.call("allreduce")
    line = uplinks(made, COSTS[0], leaf, traffic)
    hosts = [host for host in made.members if made.fabric.topology.hosts[host].switch == leaf]
    assert line.down is not None
    return Below(len(hosts), sum(traffic[host, leaf].bytes for host in hosts), line.up, line.down)


def stripes(made: Network, weights: str, size: int) -> Iterator[Stripe]:
    """Measure an allreduce of ``size`` bytes on every uplink of every leaf."""
    traffic = made.call("allreduce", size)
    seats = Counter(made.trees.roots)
    for leaf in made.leaves():
        roots = [uplink.switch for uplink in made.trees.nodes[leaf].uplinks]
        up_all = sum(traffic[leaf, root].bytes for root in roots)
        down_all = sum(traffic[root, leaf].bytes for root in roots)
        for root in roots:
            due, up, down = seats[root] / made.trees.stripes, traffic[leaf, root].bytes, traffic[root, leaf].bytes
            yield Stripe(weights, f"{leaf} - {root}", due, up, up / up_all, down, down / down_all)
