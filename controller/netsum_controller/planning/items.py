# SPDX-License-Identifier: MIT
"""The entries of a switch without any job: its address, those of the others, and plain L2 forwarding, on shortest paths to
every host and switch, with floods along one tree. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from netsum.frames import group_mac
from netsum.wire.schema import (
    CPU_PORT,
    EVERYONE,
    FLOOD_GROUP,
    IP_MULTICAST_GROUPS,
    SCAN_GROUPS,
    SCAN_REPLICA,
    SWITCH_SOURCE,
    Role,
)

from netsum_controller.config.topology import ANYWHERE, Topology
from netsum_controller.entries import (
    ForwardEntry,
    GroupRewriteEntry,
    Item,
    JobEntry,
    KeyedMemberEntry,
    KeyedRewriteEntry,
    MemberEntry,
    MulticastGroup,
    MulticastJobEntry,
    MyStationEntry,
    ParentEntry,
    RewriteEntry,
    SourceGuardEntry,
    SwitchRewriteEntry,
    TableEntry,
    TransitEntry,
    UplinkEntry,
)
from netsum_controller.errors import RejectedError
from netsum_controller.planning.allocation import JOB_IDS, ip_to_int, mac_to_int
from netsum_controller.planning.trees import (
    Child,
    Graph,
    Node,
    Trees,
    block_exp_us,
    distances,
    flood_ports,
    switch_graph,
    trees_of,
)
from netsum_controller.state.model import Job, Rejoin


def switch_items(topology: Topology, switch: str, down: Collection[str] = frozenset()) -> list[Item]:
    """All of these items. Forwarding avoids switches that are ``down``."""
    own = topology.switches[switch]
    items: list[Item] = [MyStationEntry(address=ip_to_int(own.ip), mac=mac_to_int(own.mac))]
    items += [TransitEntry(ip_to_int(ip)) for ip in _switch_addresses(topology) if ip != own.ip]
    return items + forwarding_items(topology, switch, down)


def check_room(topology: str, switch: str, items: Iterable[Item], size: Callable[[str], int]) -> None:
    """Raise :class:`RejectedError` if these items are more than the P4 program has room for; ``size`` is that of a table."""
    wanted = Counter(item.TABLE for item in items if isinstance(item, TableEntry))
    for table, number in wanted.items():
        if number > size(table):
            raise RejectedError(
                f"topology {topology!r} is too large for switch {switch}: it needs {number} entries of the table "
                f"{table!r}, which has room for {size(table)}; leave hosts out"
            )


def forwarding_items(topology: Topology, switch: str, down: Collection[str] = frozenset()) -> list[Item]:
    """The entries of one switch for traffic that is not netsum's: where it goes, and who may send it. Paths avoid switches
    that are ``down``; unreachable targets have no entry. A switch that is down itself gets what it needs once it is back,
    while the others are still down."""
    graph = switch_graph(topology, set(down) - {switch})
    items: list[Item] = [ForwardEntry(mac_to_int(mac), port) for mac, port in ways(topology, graph, switch)]
    ports = [host.port for host in topology.hosts_of(switch).values()] + list(flood_ports(graph, switch))
    if ports:
        items.append(MulticastGroup(FLOOD_GROUP, frozenset((port, 0) for port in ports)))
    return items + _senders(topology, switch)


def _senders(topology: Topology, switch: str) -> list[Item]:
    """At which ports each address may come in: a host's at its own port; one behind another switch at any link to a switch, which
    has checked it; the switch's own nowhere."""
    links, own = sum(1 << port for port in topology.neighbors(switch)), topology.switches[switch]
    hosts = [
        SourceGuardEntry(ip_to_int(host.ip), 1 << host.port if switch in topology.reached_by(host) else links)
        for host in topology.hosts.values()
        if host.ip != ANYWHERE
    ]
    switches = _switch_addresses(topology)
    return [*hosts, *(SourceGuardEntry(ip_to_int(ip), 0 if ip == own.ip else links) for ip in switches)]


def _switch_addresses(topology: Topology) -> list[str]:
    """The switches' addresses, each once: several on one machine may have the same."""
    return list(dict.fromkeys(switch.ip for switch in topology.switches.values()))


def ways(topology: Topology, graph: Graph, switch: str) -> Iterator[tuple[str, int]]:
    """(MAC address, port towards it) for every host and every other switch within reach."""
    own = distances(graph, switch)
    beyond = {other: distances(graph, other) for other in graph[switch]}
    level = _level(topology, own)
    here = topology.hosts_of(switch)
    targets = [
        (host.mac, switch if name in here else host.switch, host.port)
        for name, host in topology.hosts.items()
        if host.ip != ANYWHERE
    ]
    targets += [(other.mac, name, -1) for name, other in topology.switches.items() if name != switch]
    for number, (mac, home, port) in enumerate(targets):
        if home == switch:
            yield mac, port
        elif home in own:
            hops = [other for other in beyond if beyond[other][home] == own[home] - 1]
            # Neighboring targets take different paths of equal length. Each level looks at another digit of their number;
            # otherwise everything that a leaf sends one way would stay together all the way.
            hop = hops[number // len(hops) ** level % len(hops)]
            yield mac, graph.edges[switch, hop]["ports"][switch]


def _level(topology: Topology, own: dict[str, int]) -> int:
    """The distance in links to the nearest switch with hosts."""
    homes = {host.switch for host in topology.hosts.values()}
    return min((distance for name, distance in own.items() if name in homes), default=0)


# What a job has on each of its switches: pure functions from the topology and the job to table entries.


def home_of(job: Job, rank: int) -> str:
    """The switch that a rank is on in the job's current epoch."""
    shape = job.epoch.shape
    return shape.homes[rank] if rank < len(shape.homes) else job.switch


def reached_by(job: Job, rank: int) -> tuple[str, ...]:
    """The switches to which a rank sends its contributions in the job's current epoch."""
    return job.epoch.shape.reached(home_of(job, rank))


def switch_for(job: Job, rank: int, block: int) -> str:
    """The one of them to which it sends a block."""
    shape = job.epoch.shape
    return shape.root_of(block) if shape.striped else home_of(job, rank)


def job_trees(topology: Topology, job: Job) -> Trees:
    """The trees of a job's current epoch, including evicted members. :class:`RejectedError` if the topology no longer has the
    links that they need, or the remaining members on the switches where the epoch has them."""
    shape = job.epoch.shape
    here = {}
    for seat in job.epoch.seats:
        host, home = topology.hosts.get(seat.host), home_of(job, seat.rank)
        if host is not None and host.switch == home:
            here[seat.rank] = seat.host
        elif not seat.evicted:
            raise RejectedError(f"job {job.name!r}: its member {seat.host} is no longer on switch {home} in the topology")
    try:
        return trees_of(topology, shape, here)
    except RejectedError as error:
        raise RejectedError(f"job {job.name!r}: {error}") from None


def present(trees: Trees, job: Job) -> Trees:
    """The trees without evicted members, and without switches that have no member left."""
    members = {seat.rank for seat in job.epoch.members}

    def stays(child: Child) -> bool:
        return any(rank in members for rank in child.ranks)

    nodes = {
        name: replace(node, children=tuple(filter(stays, node.children)))
        for name, node in trees.nodes.items()
        if any(map(stays, node.children))
    }
    return replace(trees, nodes=nodes)


def job_items(topology: Topology, job: Job, switch: str, *, priority: int = 0) -> list[Item]:
    """The entries of a job on one switch in its current epoch. Evicted members have no entries, nor do switches that have only
    evicted members. Blocks age only once all others have joined. An epoch that resumes another has no job entry until its
    first block is known. ``priority`` is the job entry's."""
    began = job_trees(topology, job)
    trees = present(began, job)
    node = trees.nodes.get(switch)
    if node is None:
        return []
    items: list[Item] = []
    replicas = set()
    for child in node.children:
        replicas.add((child.port, child.src_id))
        items += _source(topology, job, node, child)
    items.append(MulticastGroup(job.job_id, frozenset(replicas)))
    items.append(MulticastGroup(SCAN_GROUPS + job.job_id, frozenset({*replicas, (CPU_PORT, SCAN_REPLICA)})))
    items += _uplinks(topology, job, node)
    together = _together(topology, job, node)
    items += together
    if job.epoch.rejoin is not Rejoin.WAITING:
        kind = MulticastJobEntry if together else JobEntry
        items.append(_job_entry(kind, job, node, quorum_of(job, began, switch), trees.stripes, priority))
    return items


def _together(topology: Topology, job: Job, node: Node) -> list[Item]:
    """Entries by which the members that have joined the job's IP multicast group get their results together; none if there are
    not two of them at a port."""
    joined = [child for child in node.children if has_joined(topology, job, child)]
    ports = {port for port, number in Counter(child.port for child in joined).items() if number > 1}
    if not ports:
        return []
    replicas = {
        (child.port, SWITCH_SOURCE if child in joined and child.port in ports else child.src_id) for child in node.children
    }
    address, udp_port = job.epoch.group
    ends = mac_to_int(group_mac(address) or ""), ip_to_int(address), udp_port
    return [
        MulticastGroup(IP_MULTICAST_GROUPS + job.job_id, frozenset(replicas)),
        GroupRewriteEntry(job.job_id, SWITCH_SOURCE, *ends, job.epoch.group_key),
    ]


def has_joined(topology: Topology, job: Job, child: Child) -> bool:
    """True if a source is a host that has joined the job's IP multicast group, and shares its port."""
    if not job.multicast or child.host is None or not topology.shares_port(topology.hosts[child.host]):
        return False
    return job.epoch.seats[job.local_ranks(child.ranks[0])[0]].multicast


def _source(topology: Topology, job: Job, node: Node, child: Child) -> Iterator[Item]:
    """Entries of one source. A child switch counts for all members below it when the epoch began, never for fewer."""
    source = 1 << child.src_id
    if child.host is not None:
        present = job.local_ranks(child.ranks[0])
        host, seat, workers = topology.hosts[child.host], job.epoch.seats[present[0]], len(present)
        together = present[-1] - present[0] == workers - 1  # else it gets everything, as a child switch does
        ranks = {"rank": present[0], "ranks": workers} if together else {"rank": 0, "ranks": EVERYONE}
        if topology.shares_port(host):
            key = job.epoch.key_of(seat.rank)
            yield KeyedMemberEntry(job.job_id, child.src_id, child.port, source, workers, key)
            yield KeyedRewriteEntry(job.job_id, child.src_id, key, **ranks)
            return
        yield MemberEntry(job.job_id, child.src_id, child.port, source, workers, seat.udp_port)
        address = (mac_to_int(host.mac), ip_to_int(host.ip), seat.udp_port)
        yield RewriteEntry(job.job_id, child.src_id, *address, **ranks)
    else:
        assert child.switch is not None
        below, udp_port = topology.switches[child.switch], _port_between(job, child.switch, node.switch)
        yield MemberEntry(job.job_id, child.src_id, child.port, source, len(child.ranks), udp_port)
        yield SwitchRewriteEntry(job.job_id, child.src_id, mac_to_int(below.mac), ip_to_int(below.ip), udp_port)


def _uplinks(topology: Topology, job: Job, node: Node) -> Iterator[Item]:
    for up in node.uplinks:
        yield ParentEntry(job.job_id, up.port, _port_between(job, node.switch, up.switch))
    for stripe, way in enumerate(node.parents):
        if way is not None:
            parent = topology.switches[way.switch]
            address = (mac_to_int(parent.mac), ip_to_int(parent.ip), _port_between(job, node.switch, way.switch))
            yield UplinkEntry(job.job_id, stripe, way.port, *address, way.src_id)


def _port_between(job: Job, child: str, parent: str) -> int:
    port = job.epoch.port_between(child, parent)
    assert port is not None, "an epoch has a port for every edge of its trees"
    return port


def quorum_of(job: Job, began: Trees, switch: str) -> int:
    """Workers that a switch needs in a block to close it early, in the trees with which the epoch began. Below a root this is the
    quorum's share of the workers there, rounded up, so that the partial sums of a result meet the quorum together."""
    node = began.nodes[switch]
    if node.role is Role.ROOT:
        return job.quorum_now
    workers = len(began.nodes[began.roots[0]].ranks)
    return -(-min(job.quorum, workers) * len(node.ranks) // workers)


def _job_entry(kind: type[JobEntry], job: Job, node: Node, quorum: int, stripes: int, priority: int) -> JobEntry:
    leaf = node.role is Role.LEAF
    return kind(
        job_id=job.job_id,
        epoch=job.epoch.number,
        all_sources=sum(1 << child.src_id for child in node.children),
        slot_base=_slot_base(job, node.switch),
        slot_mask=job.slots - 1,
        first_block_id=job.epoch.first_block_id,
        block_exp=block_exp_us(job.block_exp_us, node.height) if job.aging else 0,
        quorum=quorum,
        window=job.window,
        role=int(node.role),
        stripe_mask=stripes - 1 if leaf else 0,
        priority=priority,
    )


def _slot_base(job: Job, switch: str) -> int:
    part = job.part(switch)
    assert part is not None, "a job has a part on every switch of its trees"
    return part.slot_base


def job_of(item: Item) -> int | None:
    """The id of the job that an item belongs to; None if it is no job's."""
    table, (first, *_) = item.identity
    if table == "multicast group":
        found = (first - base for base in (0, SCAN_GROUPS, IP_MULTICAST_GROUPS) if first - base in JOB_IDS)
        return next(found, None)
    return first if table in _JOB_TABLES else None


_JOB_TABLES = {kind.TABLE for kind in (JobEntry, MemberEntry, RewriteEntry, UplinkEntry)}


def of_job(items: Iterable[Item], job_id: int) -> list[Item]:
    return [item for item in items if job_of(item) == job_id]


def by_job(items: Iterable[Item]) -> dict[int, list[Item]]:
    """The items of each job, by its id."""
    found: dict[int, list[Item]] = {}
    for item in items:
        job_id = job_of(item)
        if job_id is not None:
            found.setdefault(job_id, []).append(item)
    return found
