"""Makes calls on trees of switches and counts the bytes on their links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from netsum.communicator import Communicator
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.planning.items import job_trees
from netsum_controller.planning.trees import Trees
from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.members import joined

from netsum_trials.bytes.costs import COSTS, FRAME_HEADERS, Cost, Formula, Place, frames, headers
from netsum_trials.bytes.counters import Passed, Traffic, between, read_links
from netsum_trials.bytes.hosts import SIZE, Bytes, make_call, on_all

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
        return [
            name
            for name, node in self.trees.nodes.items()
            if node.uplinks and any(child.host for child in node.children)
        ]


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
    """What a call moved between a leaf and its parents."""
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
