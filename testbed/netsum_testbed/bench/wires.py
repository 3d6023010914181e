"""The wires of a switch without a controller, one for each host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Final

from netsum.transports.sockets import parse_address
from netsum_switch.ports import Port
from netsum_switch.ports.packet import PacketPort
from netsum_switch.ports.udp import UdpPort

from netsum_testbed.bench.blast import Blaster
from netsum_testbed.bench.loads import HOSTS
from netsum_testbed.free_ports import hold_address
from netsum_testbed.netns import NetworkNamespace

MTU: Final = 9500


@dataclass(frozen=True)
class Wires:
    """``ends``: the switch's, as its ``-i`` takes them behind PORT@; ``prefix``: what precedes the command line of a process that
    opens them; ``blaster`` and ``ports`` open the hosts' ends, for a generator or one by one."""

    ends: Sequence[str]
    prefix: Sequence[str]
    blaster: Callable[[], Blaster]
    ports: Callable[[], list[Port]]


@contextmanager
def bare_wires(rootless: bool, number: int = HOSTS) -> Iterator[Wires]:
    """So many pairs of interfaces in a namespace, which needs root, or of UDP sockets."""
    with ExitStack() as undo:
        if rootless:
            with ExitStack() as held:  # until all are known, so that none is taken twice
                pairs = [(hold_address(held), hold_address(held)) for _ in range(number)]
            ends = [f"udp:{ours}:{theirs}" for ours, theirs in pairs]
            yield Wires(
                ends,
                (),
                lambda: Blaster.on_datagrams([(theirs, ours) for ours, theirs in pairs]),
                lambda: [
                    UdpPort(at, parse_address(theirs), parse_address(ours)) for at, (ours, theirs) in enumerate(pairs)
                ],
            )
            return
        links = [(f"s{at}", f"h{at}") for at in range(number)]
        namespace = undo.enter_context(closing(NetworkNamespace(links, MTU)))
        prefix = ("ip", "netns", "exec", namespace.name)
        hosts = [host for _, host in links]
        yield Wires(
            [switch for switch, _ in links],
            prefix,
            lambda: namespace.call(lambda: Blaster.on_interfaces(hosts)),
            lambda: namespace.call(lambda: [PacketPort(at, host) for at, host in enumerate(hosts)]),
        )
