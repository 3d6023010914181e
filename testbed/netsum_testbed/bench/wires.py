"""The wires of a switch without a controller, one for each host, with the hosts' generator at their other ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Final

from netsum_testbed.bench.blast import Blaster
from netsum_testbed.bench.loads import HOSTS
from netsum_testbed.free_ports import hold_address
from netsum_testbed.netns import NetworkNamespace

MTU: Final = 9500


@dataclass(frozen=True)
class Wires:
    """``ends``: the switch's, as its ``-i`` takes them behind PORT@; ``prefix``: what precedes the command line of a process that
    opens them; ``blaster``: opens the others."""

    ends: Sequence[str]
    prefix: Sequence[str]
    blaster: Callable[[], Blaster]


@contextmanager
def bare_wires(rootless: bool) -> Iterator[Wires]:
    """Pairs of interfaces in a namespace, which needs root, or of UDP sockets."""
    with ExitStack() as undo:
        if rootless:
            with ExitStack() as held:  # until all are known, so that none is taken twice
                pairs = [(hold_address(held), hold_address(held)) for _ in range(HOSTS)]
            ends = [f"udp:{ours}:{theirs}" for ours, theirs in pairs]
            yield Wires(ends, (), lambda: Blaster.on_datagrams([(theirs, ours) for ours, theirs in pairs]))
            return
        links = [(f"s{number}", f"h{number}") for number in range(1, HOSTS + 1)]
        namespace = undo.enter_context(closing(NetworkNamespace(links, MTU)))
        prefix = ("ip", "netns", "exec", namespace.name)
        hosts = [host for _, host in links]
        yield Wires(
            [switch for switch, _ in links], prefix, lambda: namespace.call(lambda: Blaster.on_interfaces(hosts))
        )
