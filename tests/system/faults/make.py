# SPDX-License-Identifier: MIT
"""Makes scenarios from a seed, by a pure function, so that a failure can be repeated."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from netsum.descriptor import HOST_ALGORITHMS
from netsum.wire.schema import UDP_PORT
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.links import LinkEnd
from netsum_testbed.netns import EGRESS, complaint

from tests.system.faults.scenario import Event, EventKind, LinkFaults, Rates, Scenario, Where

# Makes the kernel lose packets between a host and its switch or between two switches, by nftables rules at interfaces'
# egress.
#
# The hook is netdev's ``egress`` (Linux 5.16, CONFIG_NETFILTER_EGRESS), just before the wire, where packets of kernel
# sockets and of raw ones both pass (AF_PACKET reads before the ``ingress`` hook, and never passes the ``input`` hook).
# The draw is ``numgen random``. nftables can lose packets and cut a link, but neither delay nor reorder; if a kernel
# lacks something, :func:`check_kernel` says what.


_DRAWS: Final = 100_000
"""``numgen random mod``: probabilities are multiples of its reciprocal."""


class KernelError(TestbedError):
    """The kernel or its tools lack something; the message says what."""


def check_kernel() -> None:
    """Raise :class:`KernelError`, naming what is missing, unless this kernel can lose packets at random."""
    for tool in ("nft", "ip", "unshare"):
        if shutil.which(tool) is None:
            raise KernelError(f"losing packets in the kernel needs `{tool}` (Debian: apt install nftables iproute2)")
    if said := complaint(EGRESS):
        raise KernelError(
            "this kernel cannot lose packets at random (nftables' netdev egress hook with `numgen random`, Linux 5.16 with "
            f"CONFIG_NETFILTER_EGRESS and CONFIG_NFT_NUMGEN): {said}"
        )


def run_nft(end: LinkEnd, text: str) -> None:
    """Run an nftables script in an interface's namespace, in one transaction."""
    _run([*end.prefix, "nft", "-f", "-"], text)


def list_rules(end: LinkEnd) -> list[dict[str, Any]]:
    """The ruleset in an interface's namespace, as libnftables' JSON: ``{"table": …}``, ``{"rule": …}`` and so on."""
    listed: list[dict[str, Any]] = json.loads(_run([*end.prefix, "nft", "-j", "list", "ruleset"]))["nftables"]
    return listed


def _run(command: Sequence[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelError(f"nft: {done.stderr.strip().splitlines()[0] if done.stderr else text}")
    return done.stdout


@dataclass
class _Chain:
    """The rules at one interface's egress."""

    end: LinkEnd
    match: str
    loss: float

    @property
    def table(self) -> str:
        return f"netsum_{self.end.interface}".replace("-", "_")

    def rules(self, *, cut: bool) -> str:
        """The script that makes the chain what it should be, whatever it was before."""
        chain = f'chain netdev {self.table} out {{ type filter hook egress device "{self.end.interface}" priority 0; }}'
        script = [f"add table netdev {self.table}", f"add {chain}", f"flush chain netdev {self.table} out"]
        if cut:
            script.append(f'add rule netdev {self.table} out counter drop comment "cut"')
        elif threshold := round(self.loss * _DRAWS):
            rule = f"{self.match} numgen random mod {_DRAWS} < {threshold} counter drop"
            script.append(f'add rule netdev {self.table} out {rule} comment "loss"')
        return "\n".join(script) + "\n"

    def counted(self) -> dict[str, int]:
        """Packets that each rule has dropped since the rules were made."""
        rules = [item["rule"] for item in list_rules(self.end) if "rule" in item]
        return {
            rule["comment"]: sum(part["counter"]["packets"] for part in rule["expr"] if "counter" in part)
            for rule in rules
            if rule["table"] == self.table
        }


class _Disturbed:
    """A link disturbed by the kernel; a context manager that removes its rules at the end.

    ``lost`` and ``cut_off`` count packets; :meth:`heal`, :meth:`cut` and the end update them.
    """

    def __init__(self, chains: Sequence[_Chain]) -> None:
        self._chains = chains
        self.lost = 0
        self.cut_off = 0

    def __enter__(self) -> Self:
        try:
            self._set(cut=False)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._count()
        self._remove()

    def cut(self) -> None:
        """Let nothing pass any more, not even ARP."""
        self._count()
        self._set(cut=True)

    def heal(self) -> None:
        """Undo :meth:`cut`."""
        self._count()
        self._set(cut=False)

    def _set(self, *, cut: bool) -> None:
        for chain in self._chains:
            run_nft(chain.end, chain.rules(cut=cut))

    def _count(self) -> None:
        for chain in self._chains:
            counted = chain.counted()
            self.lost += counted.get("loss", 0)
            self.cut_off += counted.get("cut", 0)

    def _remove(self) -> None:
        for chain in self._chains:
            run_nft(chain.end, f"add table netdev {chain.table}\ndelete table netdev {chain.table}\n")


class KernelLink(_Disturbed):
    """One host's link."""

    def __init__(self, fabric: Fabric, host: str, faults: LinkFaults) -> None:
        """Rates other than ``loss`` are ignored."""
        ends = fabric.link_ends(host)
        up = _Chain(ends[0], f"udp dport {UDP_PORT}", faults.up.loss)
        super().__init__([up, _Chain(ends[1], f"udp sport {UDP_PORT}", faults.down.loss)])


class KernelTrunk(_Disturbed):
    """A link between switches, where partials and results travel to the same port; ``loss`` applies to each direction."""

    def __init__(self, fabric: Fabric, link: str, loss: float) -> None:
        super().__init__([_Chain(end, f"udp dport {UDP_PORT}", loss) for end in fabric.trunk_ends(link)])


WORST: Final = 0.1
"""Largest probability of a loss, a duplicate or a reordering."""

_EVENTS: Final = {
    EventKind.STALL: (0.5, 0.4),
    EventKind.KILL: (0.2, 0.5),
    EventKind.CUT: (0.3, 0.6),
    EventKind.RESTART_SWITCH: (0.25, 0.5),
    EventKind.RESTART_CONTROLLER: (0.15, 0.5),
    EventKind.EVICT: (0.15, 1.0),
    EventKind.CUT_TRUNK: (0.2, 0.6),
    EventKind.MOVE: (0.25, 1.5),
    EventKind.HANG_CONTROLLER: (0.1, 4.0),
}
"""The probability that a round has such an event, and its longest duration in seconds."""
GONE: Final = 13.0
"""Seconds without a switch after which its jobs have moved to their members."""


@dataclass(frozen=True)
class Possible:
    """Places where packets may be disturbed on a fabric, and events that may happen."""

    where: tuple[Where, ...] = (Where.HOSTS,)
    kinds: Collection[EventKind] = tuple(EventKind)


@dataclass(frozen=True)
class Around:
    """A job's switches and the links between them. ``waits``: it waits for every rank; only such a job can move."""

    switches: tuple[str, ...] = ()
    trunks: tuple[str, ...] = ()
    waits: bool = True


def make_scenario(seed: int, index: int, *, ranks: int, calls: int, possible: Possible, around: Around | None = None) -> Scenario:
    """Scenario number ``index`` of a seed, for a job of so many ranks that makes so many calls.

    Events come before the last calls, so that their effects are seen. At most two, and mostly one, are restarts, kills,
    evictions or moves: each of these may start a new epoch, and two at once would say little about either. In one
    round in three no packet is disturbed, so that errors may name only ranks with an event.
    """
    around = Around() if around is None else around
    rng = np.random.default_rng([seed, index, 0xFA])
    where = possible.where[int(rng.integers(len(possible.where)))]
    links = {rank: LinkFaults(up=_rates(rng, where), down=_rates(rng, where)) for rank in range(ranks)}
    trunks = {} if where is Where.HOSTS else {name: Rates(loss=_chance(rng) / 2) for name in around.trunks}
    if rng.random() < 1 / 3:
        links, trunks = {}, {}
    kinds = [kind for kind in EventKind if kind in possible.kinds]
    for kind, can in ((EventKind.CUT_TRUNK, bool(around.trunks)), (EventKind.MOVE, around.waits)):
        if not can and kind in kinds:
            kinds.remove(kind)
    events = [_event(rng, kind, ranks, calls, around) for kind in kinds if rng.random() < _EVENTS[kind][0]]
    upheavals = [event for event in events if event.kind not in (EventKind.STALL, EventKind.CUT, EventKind.CUT_TRUNK)]
    for chosen in rng.permutation(len(upheavals))[1 if rng.random() < 0.8 else 2 :]:
        events.remove(upheavals[chosen])
    events.sort(key=lambda event: event.after)
    return Scenario(
        seed=int(rng.integers(1 << 32)),
        where=where,
        links={rank: link for rank, link in links.items() if link != LinkFaults()},
        trunks={name: rates for name, rates in trunks.items() if rates != Rates()},
        events=tuple(events),
    )


def _rates(rng: np.random.Generator, where: Where) -> Rates:
    """The rates of one direction: most links have some fault, few have all."""
    loss = _chance(rng)
    if where is Where.KERNEL:
        return Rates(loss=loss)
    held = rng.random() < 0.2
    return Rates(
        loss=loss,
        duplicate=_chance(rng),
        reorder=_chance(rng),
        burst=round(float(rng.uniform(2, 6)), 1) if loss and rng.random() < 0.3 else 1.0,
        delay_ms=round(float(rng.uniform(0, 2)), 3) if held else 0.0,
        jitter_ms=round(float(rng.uniform(0, 1)), 3) if held and rng.random() < 0.5 else 0.0,
    )


def _chance(rng: np.random.Generator) -> float:
    """0 half of the time; else up to ``WORST``, small ones more often."""
    return round(WORST * float(rng.random()) ** 2, 4) if rng.random() < 0.5 else 0.0


def _event(rng: np.random.Generator, kind: EventKind, ranks: int, calls: int, around: Around) -> Event:
    seconds = round(float(rng.uniform(0.05, _EVENTS[kind][1])), 3)
    things: dict[EventKind, tuple[str, ...]] = {
        EventKind.RESTART_SWITCH: around.switches,
        EventKind.CUT_TRUNK: around.trunks,
        EventKind.MOVE: HOST_ALGORITHMS,
    }
    chosen = things.get(kind, ())
    if kind is EventKind.RESTART_SWITCH and around.waits and rng.random() < 0.15:
        seconds = GONE
    return Event(
        after=int(rng.integers(max(1, (3 * calls) // 4))),
        kind=kind,
        rank=int(rng.integers(ranks)) if kind.of_a_rank else None,
        what=str(rng.choice(chosen)) if chosen else None,
        seconds=seconds,
    )
