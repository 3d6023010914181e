"""Scenarios from a seed: a pure function, so that what went wrong once can go wrong again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from netsum_testbed.faults.scenario import Event, Kind, LinkFaults, Rates, Scenario, Where

WORST: Final = 0.1
"""Largest probability of a loss, a duplicate or a reordering."""

# How often a round has such an event.
_CHANCES: Final = {
    Kind.STALL: 0.5,
    Kind.KILL: 0.2,
    Kind.CUT: 0.3,
    Kind.RESTART_SWITCH: 0.25,
    Kind.RESTART_CONTROLLER: 0.15,
    Kind.EVICT: 0.15,
}
_LONGEST: Final = {
    Kind.STALL: 0.4,
    Kind.KILL: 0.5,
    Kind.CUT: 0.6,
    Kind.RESTART_SWITCH: 0.5,
    Kind.RESTART_CONTROLLER: 0.5,
    Kind.EVICT: 1.0,
}


@dataclass(frozen=True)
class Possible:
    """What a fabric can do: where packets may be disturbed, and which events may happen."""

    where: tuple[Where, ...] = (Where.HOSTS,)
    kinds: Collection[Kind] = tuple(Kind)


def make_scenario(seed: int, index: int, *, ranks: int, calls: int, possible: Possible) -> Scenario:
    """Scenario number ``index`` of a seed, for a job of so many ranks that makes so many calls.

    Events come before the last calls, so that what they do is seen; at most one is a restart, a kill or an eviction: each of
    these may take everybody to a new epoch, and two at once would say little about either.
    """
    rng = np.random.default_rng([seed, index, 0xFA])
    where = possible.where[int(rng.integers(len(possible.where)))]
    links = {rank: LinkFaults(up=_rates(rng, where), down=_rates(rng, where)) for rank in range(ranks)}
    links = {rank: link for rank, link in links.items() if link != LinkFaults()}
    events = [
        _event(rng, kind, ranks, calls) for kind in Kind if kind in possible.kinds and rng.random() < _CHANCES[kind]
    ]
    upheavals = [event for event in events if event.kind not in (Kind.STALL, Kind.CUT)]
    for event in upheavals[1:]:
        events.remove(event)
    events.sort(key=lambda event: event.after)
    return Scenario(seed=int(rng.integers(1 << 32)), where=where, links=links, events=tuple(events))


def _rates(rng: np.random.Generator, where: Where) -> Rates:
    """Most links have some fault, few have all."""
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


def _event(rng: np.random.Generator, kind: Kind, ranks: int, calls: int) -> Event:
    return Event(
        after=int(rng.integers(max(1, (3 * calls) // 4))),
        kind=kind,
        rank=int(rng.integers(ranks)) if kind.of_a_rank else None,
        seconds=round(float(rng.uniform(0.05, _LONGEST[kind])), 3),
    )
