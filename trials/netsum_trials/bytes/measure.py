"""Makes calls on networks and counts the bytes on their links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from netsum.communicator import Communicator
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.planning.job_items import job_trees
from netsum_controller.planning.trees import Trees
from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.members import joined

from netsum_trials.bytes.counters import Passed, Traffic, between, read_links
from netsum_trials.bytes.rules import RULES, Formula, Place, Rule, frames, octets

RANKS: Final = 4
SIZE: Final = 1 << 18
"""S, in bytes."""
WINDOW: Final = 8
"""Few blocks under way: no queue that looks like a loss."""
TRIES: Final = 6


@dataclass(frozen=True)
class Bytes:
    """One direction of a link: bytes that the formula expects, headers included, and bytes that there were. ``frames`` more than
    one a block: what was sent again, and what asked for it."""

    formula: str
    expected: int
    measured: int
    again: int


@dataclass(frozen=True)
class Line:
    """One call on one link (several: from a switch to its parents, which share the blocks). Nobody counts what a host gets."""

    topology: str
    collective: str
    link: str
    up: Bytes
    down: Bytes | None = None


class Network:
    """A job on a fabric, and what its calls move."""

    def __init__(
        self, fabric: Fabric, members: Sequence[str], communicators: Sequence[Communicator], trees: Trees
    ) -> None:
        self.fabric = fabric
        self.members = members
        self.communicators = communicators
        self.trees = trees
        self.block_bytes = communicators[0].descriptor.block_bytes

    def call(self, name: str, size: int = SIZE) -> Traffic:
        """Make a call on all ranks, with rank 0 as the root; what passed each link meanwhile. On a busy machine answers are
        late, and packets are sent again for nothing: of some calls, the one that moved the fewest bytes counts."""
        least: Traffic = {}
        for _ in range(TRIES):
            traffic = self._call(name, size)
            if least and _total(traffic) == _total(least):
                break
            least = min(least or traffic, traffic, key=_total)
        return least

    def _call(self, name: str, size: int) -> Traffic:
        before = read_links(self.fabric.controller.site)
        with ThreadPoolExecutor(len(self.communicators)) as pool:
            list(pool.map(lambda comm: make_call(comm, name, size), self.communicators))
        return between(before, read_links(self.fabric.controller.site))

    def leaves(self) -> list[str]:
        """The switches with members that have a parent."""
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


def make_call(comm: Communicator, name: str, size: int) -> None:
    """One rank's part of a call of float32s, ``size`` bytes a rank (scatter: at the root); checks a reduction's result."""
    count = size // 4 // (comm.size if name == "scatter" and comm.rank else 1)
    given = np.full(count, comm.rank + 1, np.float32)
    collective, _, how = name.partition(" ")
    options = {"bits": int(how.removeprefix("bits="))} if how.startswith("bits=") else {}
    if how == "half zeros":
        given[: count // 2] = 0
    result = getattr(comm, collective)(*([] if name == "barrier" else [given]), **options)
    if name == "allreduce" and not (result == comm.size * (comm.size + 1) / 2).all():
        raise AssertionError(f"rank {comm.rank}: the sum is wrong")


def collectives(made: Network, rules: Sequence[Rule] = RULES) -> Iterator[Line]:
    """Each collective: on the link of rank 0's host, and between its switch, and another one, and their parents."""
    topology = made.fabric.topology
    root, n = made.members[0], len(made.members)
    home = topology.hosts[root].switch
    leaves = sorted(made.leaves(), key=lambda name: name != home)[:2]
    for rule in rules:
        traffic = made.call(rule.collective)
        first = count(made, rule, rule.host, Place(n, 1, with_root=True), [traffic[root, home]])
        yield Line(topology.name, rule.collective, f"{root} - {home}", first)
        for leaf in leaves:
            yield uplinks(made, rule, leaf, traffic)


def uplinks(made: Network, rule: Rule, leaf: str, traffic: Traffic) -> Line:
    """What a call has moved between a leaf and its parents."""
    node = made.trees.nodes[leaf]
    place = Place(len(made.members), len(node.ranks), 0 in node.ranks)
    parents = [uplink.switch for uplink in node.uplinks]
    up = count(made, rule, rule.up, place, [traffic[leaf, parent] for parent in parents])
    down = count(made, rule, rule.down, place, [traffic[parent, leaf] for parent in parents])
    other = parents[0] if len(parents) == 1 else f"{len(parents)} parents"
    return Line(made.fabric.topology.name, rule.collective, f"{leaf} - {other}", up, down)


def count(made: Network, rule: Rule, formula: Formula, place: Place, passed: Sequence[Passed]) -> Bytes:
    """What has passed, next to what should."""
    due = frames(rule, place.n, SIZE, made.block_bytes)
    measured, there = sum(each.bytes for each in passed), sum(each.frames for each in passed)
    return Bytes(formula.words, octets(formula.share(place), due, SIZE), measured, there - due)
