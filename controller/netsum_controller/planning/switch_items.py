"""What a switch has without any job: its address, those of the others, and plain L2 forwarding, on shortest paths to every host
and switch, with floods along one tree. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from netsum.wire.schema import FLOOD_GROUP

from netsum_controller.config.topology import Topology
from netsum_controller.entries import (
    AggregatorEntry,
    ElsewhereEntry,
    Entry,
    ForwardEntry,
    Item,
    MulticastGroup,
    SenderEntry,
)
from netsum_controller.errors import RejectedError
from netsum_controller.planning.addresses import ip_to_int, mac_to_int
from netsum_controller.planning.graph import Graph, distances, flood_ports, switch_graph


def switch_items(topology: Topology, switch: str, down: Collection[str] = frozenset()) -> list[Item]:
    """All of these items. Forwarding avoids switches that are ``down``."""
    own = topology.switches[switch]
    items: list[Item] = [AggregatorEntry(address=ip_to_int(own.ip), mac=mac_to_int(own.mac))]
    items += [ElsewhereEntry(ip_to_int(other.ip)) for name, other in topology.switches.items() if name != switch]
    return items + forwarding_items(topology, switch, down)


def check_room(topology: str, switch: str, items: Iterable[Item], size: Callable[[str], int]) -> None:
    """Raise :class:`RejectedError` if these items are more than the P4 program has room for; ``size`` is that of a table."""
    wanted = Counter(item.TABLE for item in items if isinstance(item, Entry))
    for table, number in wanted.items():
        if number > size(table):
            raise RejectedError(
                f"topology {topology!r} is too large for switch {switch}: it needs {number} entries of the table "
                f"{table!r}, which has room for {size(table)}; leave hosts out"
            )


def forwarding_items(topology: Topology, switch: str, down: Collection[str] = frozenset()) -> list[Item]:
    """What one switch has for traffic that is not netsum's: where it goes, and who may send it. Paths avoid switches that are
    ``down``; unreachable targets have no entry. A switch that is down itself gets what it needs once it is back, while the others
    are still down."""
    graph = switch_graph(topology, set(down) - {switch})
    items: list[Item] = [ForwardEntry(mac_to_int(mac), port) for mac, port in ways(topology, graph, switch)]
    ports = [host.port for host in topology.hosts_of(switch).values()] + list(flood_ports(graph, switch))
    if ports:
        items.append(MulticastGroup(FLOOD_GROUP, frozenset((port, 0) for port in ports)))
    return items + _senders(topology, switch)


def _senders(topology: Topology, switch: str) -> list[Item]:
    """At which ports each address may come in: a host's at its own port; one behind another switch at any link to a switch, which
    has checked it; the switch's own nowhere."""
    links = sum(1 << port for port in topology.neighbours(switch))
    hosts = [
        SenderEntry(ip_to_int(host.ip), 1 << host.port if host.switch == switch else links)
        for host in topology.hosts.values()
    ]
    switches = topology.switches.items()
    return [*hosts, *(SenderEntry(ip_to_int(other.ip), 0 if name == switch else links) for name, other in switches)]


def ways(topology: Topology, graph: Graph, switch: str) -> Iterator[tuple[str, int]]:
    """(MAC address, port towards it) for every host and every other switch within reach."""
    own = distances(graph, switch)
    beyond = {other: distances(graph, other) for other in graph[switch]}
    level = _level(topology, own)
    targets = [(host.mac, host.switch, host.port) for host in topology.hosts.values()]
    targets += [(other.mac, name, -1) for name, other in topology.switches.items() if name != switch]
    for number, (mac, home, port) in enumerate(targets):
        if home == switch:
            yield mac, port
        elif home in own:
            hops = [other for other in beyond if beyond[other][home] == own[home] - 1]
            # Neighbouring targets take different paths of equal length. Each level looks at another digit of their number;
            # otherwise everything that a leaf sends one way would stay together all the way.
            hop = hops[number // len(hops) ** level % len(hops)]
            yield mac, graph.edges[switch, hop]["ports"][switch]


def _level(topology: Topology, own: dict[str, int]) -> int:
    """How many links away the nearest switch with hosts is."""
    homes = {host.switch for host in topology.hosts.values()}
    return min((distance for name, distance in own.items() if name in homes), default=0)
