# SPDX-License-Identifier: MIT
"""A small configuration to explore: programs of the ranks, and what the controller and the world may do to them.

The world's events besides the network: the switch restarts (loses everything), a rank's process is replaced by a new
one. Each has a budget; each leads to a new epoch, as the controller makes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from netsum.wire.schema import EVERYONE, Op, Status

from tests.model.host import (
    ALL_HOST_RULES,
    EXCUSED,
    FORGED,
    GROUP_PORT,
    Call,
    Host,
    HostRules,
    Phase,
    Result,
    Todo,
    advance,
    contribution,
    exponent_of,
    group_key_of,
    join_group,
    key_of,
)
from tests.model.rules import ALL_RULES, ID_MASK, Group, Job, Member, Packet, Reply, Rules, Uplink
from tests.model.topology import EDGE_PORTS, Child, Node, Shape, nodes_of

PORT_BASE = 20000
PORTS_OF_EPOCH = 16
"""UDP ports that an epoch uses: half for the ranks, half for the edges between switches."""


@dataclass(frozen=True)
class EpochRules:
    """The controller's rules that can be switched off."""

    fresh_epoch: bool = True  # an epoch number is never used twice
    asks_switches: bool = True  # which are taken; off: the controller's state says, which may be of an earlier time
    fresh_ids: bool = True  # first_block_id outside every earlier range of ids
    fresh_ports: bool = True  # UDP ports in turn
    new_epoch_for_taken_rank: bool = True
    raised_after_restart: bool = True
    only_whole_epochs_resume: bool = True  # after a restart: not those of jobs that degrade, or with a rank evicted
    no_eviction_after_resume: bool = True  # until all results are of this epoch; off: in place, at once
    shares_of_quorum: bool = True  # a switch below the root has its share of the quorum, rounded up; off: none
    lowest_of_all: bool = True  # all report before the lowest is installed; off: the first to report decides
    stops_to_report: bool = True  # a rank begins no block once it has reported; off: it goes on in the old epoch
    eviction_changes_group: bool = True  # the group's key; no member has joined then. Off: all goes on by multicast
    report_names_group: bool = True  # a member's word that it has joined counts for the group that it was told of; off: for any
    report_names_epoch: bool = True  # a report counts for the epoch that its rank was told of; off: for any, however old


@dataclass(frozen=True)
class Scenario:
    """One configuration. ``programs`` of the first run, ``replaced`` of the run after a rank was replaced."""

    name: str
    programs: tuple[tuple[Call, ...], ...]
    window: int = 2
    slots: int = 4
    tree: Shape = ()  # (): a star
    roots: int = 1  # over the same leaves, by stripes
    first_block_id: int = 96
    second_block_id: int = 0x60000060  # of the run after a replacement; fresh unless EpochRules say otherwise
    replaced: tuple[tuple[Call, ...], ...] = ()
    switch_restarts: int = 0
    moves: int = 0  # of the job: an epoch resumes another that goes on until its members have stopped
    reports_fly: bool = False  # reports reach the controller at any time, any number of times, or never
    replacements: int = 0
    files: bool = False  # members come with copies of one run's descriptors: who replaces another is in the same epoch
    state_losses: int = 0  # the controller goes back to its state of before the first epoch
    followers_at_once: bool = False  # of a replacement: no rank is left behind in the old run
    calls_differ: bool = False  # every rank must end with MISMATCH
    may_differ: bool = False  # with it or without: it depends on the order of packets whether the ranks can tell
    quorum: int = 0  # of a job that degrades; 0: blocks wait for ever
    sends: int = 1  # how often a member has to send a block, at most, while nothing is lost and a controller scans
    keyed: bool = False  # members are known by their keys, not by their addresses
    multicast: tuple[int, ...] = ()  # ranks that have joined the job's IP multicast group
    joins: tuple[int, ...] = ()  # ranks that join it later, and report that at any time
    rebinds: int = 0  # how often the network gives rank 0 another address
    forger: bool = False  # sends contributions and results that lack the right key, from any address; and so do the evicted
    scanner: bool = True  # a controller is there to scan; off: only what members send closes blocks
    mortals: tuple[int, ...] = ()  # ranks that may die
    evicts: bool = False  # the controller evicts who has died
    rules: Rules = ALL_RULES
    host_rules: HostRules = ALL_HOST_RULES
    epoch_rules: EpochRules = field(default_factory=EpochRules)

    @property
    def workers(self) -> int:
        return len(self.programs)

    def is_over(self, host: Host) -> bool:
        """True at the end: of the program, or with MISMATCH where the calls differ. A rank that no other waits for may not
        notice that they do."""
        if self.may_differ and host.mismatched:
            return True  # it has said so, and waits for no answer
        return host.ended if self.calls_differ and not self.degrades else host.done

    @property
    def degrades(self) -> bool:
        return self.quorum > 0

    @property
    def partial(self) -> bool:
        """True if a result may lack a rank."""
        return self.degrades or bool(self.mortals)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The switches, parents before children."""
        return nodes_of(self.tree or tuple(range(self.workers)), self.roots)

    def udp_port(self, rank: int, epoch: int) -> int:
        return PORT_BASE + rank + (PORTS_OF_EPOCH * epoch if self.epoch_rules.fresh_ports else 0)

    def edge_port(self, port: int, epoch: int) -> int:
        """The UDP port of an edge, which has this port at both ends."""
        return self.udp_port(PORTS_OF_EPOCH // 2 + port - EDGE_PORTS, epoch)

    def job(self, epoch: int, first_block_id: int, evicted: frozenset[int] = frozenset()) -> Job:
        """Items that the controller installs on the root for an epoch."""
        job = self.jobs(epoch, first_block_id, evicted)[0]
        assert job is not None
        return job

    def jobs(
        self,
        epoch: int,
        first_block_id: int,
        evicted: frozenset[int] = frozenset(),
        *,
        begun: bool = False,
        in_group: frozenset[int] | None = None,
    ) -> tuple[Job | None, ...]:
        """The same on every switch; None on one without members. ``begun``: evicted within the epoch, so that a switch
        stands for as many workers as before. ``in_group``: the ranks that have reported that they joined the group, if not all
        of ``multicast``."""
        present = [rank for rank in range(self.workers) if rank not in evicted]
        in_group = frozenset(self.multicast) if in_group is None else in_group

        def member(child: Child) -> Member:
            if child.switch is None:
                port = self.udp_port(child.src_id, epoch)
                key, joined = key_of(port) if self.keyed else 0, child.src_id in in_group
                return Member(child.src_id, child.port, port, child.src_id, key=key, joined=joined)
            workers = len(child.ranks if begun else set(child.ranks) & set(present))
            return Member(child.src_id, child.port, self.edge_port(child.port, epoch), EVERYONE, workers, switch=True)

        def job(node: Node) -> Job | None:
            members = tuple(member(child) for child in node.children if set(child.ranks) & set(present))
            quorum = min(self.quorum, len(present))
            if node.parents:
                expected = range(self.workers) if begun else present
                below = {rank for child in node.children for rank in child.ranks} & set(expected)
                whole = min(self.quorum, len(expected))
                quorum = -(-whole * len(below) // len(expected)) if self.epoch_rules.shares_of_quorum else 0
            aging = (1, quorum, self.window) if self.degrades else ()
            uplinks = tuple(Uplink(port, self.edge_port(port, epoch), src_id) for port, src_id in node.parents)
            job = Job(number, first_block_id & ID_MASK, self.slots, 0, members, *aging)
            group = Group(GROUP_PORT, self.group_key(epoch, evicted)) if in_group else None
            return job._replace(uplinks=uplinks, group=group) if members else None

        number = epoch if self.epoch_rules.fresh_epoch else 1
        return tuple(job(node) for node in self.nodes)

    def group_key(self, epoch: int, evicted: frozenset[int]) -> int:
        """The key of the group after these evictions."""
        return group_key_of(self.udp_port(0, epoch), len(evicted) if self.epoch_rules.eviction_changes_group else 0)

    def hosts(self, run: int, epoch: int, *, ids_again: bool = False) -> tuple[Host, ...]:
        """The ranks at the start of a run, what may be sent at once already sent. ``ids_again``: those of the first."""
        programs = self.replaced if run else self.programs
        origin = self.second_block_id if run and self.epoch_rules.fresh_ids and not ids_again else self.first_block_id
        return tuple(
            advance(
                self._host(rank, program, self.udp_port(rank, epoch), origin, run),
                self.host_rules,
            )
            for rank, program in enumerate(programs)
        )

    def _host(self, rank: int, program: tuple[Call, ...], udp_port: int, origin: int, run: int) -> Host:
        key = key_of(udp_port) if self.keyed else 0
        host = Host(rank, program, self.window, udp_port, origin, run, degrades=self.degrades, key=key)
        return join_group(host, group_key_of(udp_port - rank), self.workers) if rank in self.multicast else host

    def forgeries(self, hosts: tuple[Host, ...]) -> Iterator[Packet | Reply]:
        """Packets of a sender that knows all but the keys: a contribution and a result of each rank's first block, the latter
        also to the group that the rank has joined."""
        for host in hosts:
            first = contribution(host, 0)
            header = first.header._replace(key=first.header.key ^ 1)
            yield first._replace(header=header, payload=(FORGED,))
            header = header._replace(worker_cnt=len(hosts))
            yield Reply(first.port, host.rank, host.udp_port, header, (FORGED,))
            if host.group_key:
                yield Reply(first.port, None, GROUP_PORT, header._replace(key=host.group_key ^ 1), (FORGED,))

    def forgeries_of_evicted(self, host: Host) -> Iterator[Reply]:
        """Results that an evicted member, which knows the group's first key, sends to a member of the group."""
        knows = host.workers < self.workers
        for index in range(host.first, host.sent):
            if host.workers and host.results[index] is None:
                own = contribution(host, index)
                header = own.header._replace(worker_cnt=host.workers, key=group_key_of(self.udp_port(0, 1)))
                yield Reply(own.port, None, GROUP_PORT, header, (FORGED if knows else EXCUSED,))

    def expected(self, host: Host, todo: Todo) -> Result | None:
        """The right result of a block for this rank; None from the first block on at which the ranks' calls differ: nothing
        is right there, and no rank's call may succeed."""
        programs = self._of_one_run(host) if self.files else self.replaced if host.run else self.programs
        if any(todo.call >= len(program) for program in programs):
            return None
        calls = [program[todo.call] for program in programs]
        meant = {(call.gen, call.kind, call.op, call.dest, len(call.blocks)) for call in calls if not call.aborts}
        return _combined(calls, todo, host.rank) if len(meant) < 2 else None

    def _of_one_run(self, host: Host) -> tuple[tuple[Call, ...], ...]:
        """The programs of this process and of those whose marks are in its opening block's result."""
        opening = host.results[0]
        marks = sum(opening.payload) if opening is not None else 0

        def meant(rank: int) -> tuple[Call, ...]:
            new = host.run if rank == host.rank else marks & (self.replaced[rank][0].blocks[0] or 0)
            return self.replaced[rank] if new else self.programs[rank]

        return tuple(meant(rank) for rank in range(self.workers))

    def agree(self, result: Result, expected: Result | None) -> bool:
        """True if a result is the expected one. A leaf's partial with RANGE or ABORT counts no payloads; whether those who have
        heard of an ABORT still bring theirs is a question of time, and whose call the block says that it is, of order."""
        if expected is not None and (expected.status == Status.ABORT or (expected.status and len(self.nodes) > 1)):
            expected = expected._replace(data_cnt=result.data_cnt, kind=result.kind)
        return result == expected


def _combined(calls: list[Call], todo: Todo, rank: int) -> Result:
    values, status = [], int(Status.OK)
    for call in calls:
        if call.aborts:
            status = max(status, int(Status.ABORT))
        elif todo.phase == Phase.ABORTED:
            status = int(Status.ABORT)
        elif todo.phase == Phase.EXPONENTS:
            values.append(exponent_of(call))
        elif todo.phase == Phase.DATA and todo.offset in call.misfits:
            status = max(status, int(Status.RANGE))
        else:
            value = call.blocks[todo.offset]
            values += [] if value is None else [value]
    op = Op.MAX if todo.phase == Phase.EXPONENTS else calls[0].op
    payload = (max(values) if op == Op.MAX else sum(values),) if values else ()
    if status or calls[0].dest not in (EVERYONE, rank):
        payload = ()
    congested = todo.phase == Phase.DATA and any(todo.offset in call.congested for call in calls)
    return Result(status, len(values), payload, len(calls), congested=int(congested))


class Epoch(NamedTuple):
    """The controller's state: the epoch installed, what each rank has reported since a restart, budgets left."""

    number: int = 1
    run: int = 0
    reports: tuple[int | None, ...] | None = None  # not None: the switch has restarted and ranks rejoin
    away: frozenset[int] = frozenset()  # ranks still in the run before the last replacement
    told: frozenset[tuple[int, int, int]] = frozenset()  # reports in flight: rank, the epoch that they are for, block
    switch_restarts: int = 0
    moves: int = 0
    rebinds: int = 0
    replacements: int = 0
    state_losses: int = 0
    forgotten: bool = False  # the controller's state is of before the first epoch
    mortals: tuple[int, ...] = ()  # ranks that may still die
    dead: frozenset[int] = frozenset()  # ranks that have died and are not evicted
    evicted: frozenset[int] = frozenset()
    in_group: frozenset[int] = frozenset()  # ranks whose results leave by multicast
    joins: tuple[int, ...] = ()  # ranks that may still join the group
    joined: frozenset[tuple[int, int]] = frozenset()  # reports in flight: rank, and evictions before it was told of the group
    resumed: bool = False  # the epoch goes on where another was when the switch restarted


def digits(*shape: int) -> list[int]:
    """Values whose sums tell which were added and how often: the i-th is 1 in a 4-bit digit of its own."""
    count = 1
    for size in shape:
        count *= size
    return [1 << (4 * index) for index in range(count)]
