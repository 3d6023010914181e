"""Makes scenarios from a seed, by a pure function, so that a failure can be repeated."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
from netsum.descriptor import HOST_ALGORITHMS

from netsum_trials.faults.scenario import Event, Kind, LinkFaults, Rates, Scenario, Where

WORST: Final = 0.1
"""Largest probability of a loss, a duplicate or a reordering."""

_EVENTS: Final = {
    Kind.STALL: (0.5, 0.4),
    Kind.KILL: (0.2, 0.5),
    Kind.CUT: (0.3, 0.6),
    Kind.RESTART_SWITCH: (0.25, 0.5),
    Kind.RESTART_CONTROLLER: (0.15, 0.5),
    Kind.EVICT: (0.15, 1.0),
    Kind.CUT_TRUNK: (0.2, 0.6),
    Kind.MOVE: (0.25, 1.5),
    Kind.HANG_CONTROLLER: (0.1, 4.0),
}
"""The probability that a round has such an event, and its longest duration in seconds."""
GONE: Final = 13.0
"""Seconds without a switch after which its jobs have moved to their members."""


@dataclass(frozen=True)
class Possible:
    """Where packets may be disturbed on a fabric, and which events may happen."""

    where: tuple[Where, ...] = (Where.HOSTS,)
    kinds: Collection[Kind] = tuple(Kind)


@dataclass(frozen=True)
class Around:
    """A job's switches and the links between them. ``waits``: it waits for every rank; only such a job can move."""

    switches: tuple[str, ...] = ()
    trunks: tuple[str, ...] = ()
    waits: bool = True


def make_scenario(
    seed: int, index: int, *, ranks: int, calls: int, possible: Possible, around: Around | None = None
) -> Scenario:
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
    kinds = [kind for kind in Kind if kind in possible.kinds]
    for kind, can in ((Kind.CUT_TRUNK, bool(around.trunks)), (Kind.MOVE, around.waits)):
        if not can and kind in kinds:
            kinds.remove(kind)
    events = [_event(rng, kind, ranks, calls, around) for kind in kinds if rng.random() < _EVENTS[kind][0]]
    upheavals = [event for event in events if event.kind not in (Kind.STALL, Kind.CUT, Kind.CUT_TRUNK)]
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


def _event(rng: np.random.Generator, kind: Kind, ranks: int, calls: int, around: Around) -> Event:
    seconds = round(float(rng.uniform(0.05, _EVENTS[kind][1])), 3)
    things: dict[Kind, tuple[str, ...]] = {
        Kind.RESTART_SWITCH: around.switches,
        Kind.CUT_TRUNK: around.trunks,
        Kind.MOVE: HOST_ALGORITHMS,
    }
    chosen = things.get(kind, ())
    if kind is Kind.RESTART_SWITCH and around.waits and rng.random() < 0.15:
        seconds = GONE
    return Event(
        after=int(rng.integers(max(1, (3 * calls) // 4))),
        kind=kind,
        rank=int(rng.integers(ranks)) if kind.of_a_rank else None,
        what=str(rng.choice(chosen)) if chosen else None,
        seconds=seconds,
    )
