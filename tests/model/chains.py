# SPDX-License-Identifier: MIT
"""The rules of chains (netsum.peers.chains), and every behavior of small ones.

The network is the set of all packets that were ever sent: any of them may be delivered at any time, any number of times, or
never. So a packet that is sent again is one that is there already, and safety is explored without questions and timers.
Liveness: from every reachable state, throw away what is in flight; questions and their answers then arrive, and every rank must
come to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

from tests.model.search import Violation, search

Ranks = tuple[int, ...]
SUM, STORE = "sum", "store"
ROUNDS: Final = 200


@dataclass(frozen=True)
class Rules:
    """Each can be switched off, to see it found."""

    pure: bool = True  # adding changes no memory
    numbers: bool = True  # what has come before is dropped by its number
    early: bool = True  # what comes before its block begins is kept
    kept: bool = True  # what was sent is kept ...
    window: bool = True  # ... until a block a window later is finished
    gaps: bool = True  # a gap is asked for at once
    timer: bool = True  # silence is asked about


class Packet(NamedTuple):
    source: int
    target: int
    number: int
    kind: str
    block: int
    ranks: Ranks  # whose contributions are in it


class Rank(NamedTuple):
    """``memory``: what each block's contribution is; ``sent`` by target; ``come``: numbers by source."""

    begun: int = 0
    memory: tuple[Ranks, ...] = ()
    results: tuple[Ranks | None, ...] = ()
    sent: tuple[Packet, ...] = ()
    come: frozenset[tuple[int, int]] = frozenset()
    early: tuple[Packet, ...] = ()


State = tuple[Rank, ...]


@dataclass(frozen=True)
class Chain:
    """``blocks`` one after the other around a ring of ``ranks``, each begun once the one a ``window`` before it is finished.
    Block b is stored first at rank b modulo their number."""

    ranks: int
    blocks: int
    window: int
    rules: Rules = Rules()

    @cached_property
    def start(self) -> State:
        return tuple(Rank(0, ((rank,),) * self.blocks, (None,) * self.blocks) for rank in range(self.ranks))

    @cached_property
    def all_ranks(self) -> Ranks:
        return tuple(range(self.ranks))

    def _place(self, rank: int, block: int) -> int:
        """0 is the first to send; the last stores first."""
        return (rank - block - 1) % self.ranks

    # Events

    def begin(self, state: State, rank: int) -> State | None:
        one = state[rank]
        block = one.begun
        if block == self.blocks or (block >= self.window and one.results[block - self.window] is None):
            return None
        one = one._replace(begun=block + 1)
        if self._place(rank, block) == 0:
            one = self._send(rank, one, SUM, block, one.memory[block])
        for packet in one.early:
            if packet.block == block:
                one = self._visited(rank, one, packet)
        return self._with(state, rank, one)

    def deliver(self, state: State, packet: Packet) -> State:
        rank, one = packet.target, state[packet.target]
        if self.rules.numbers and (packet.source, packet.number) in one.come:
            return state
        one = one._replace(come=one.come | {(packet.source, packet.number)})
        if packet.block >= one.begun:
            one = one._replace(early=(*one.early, packet)) if self.rules.early else one
        else:
            one = self._visited(rank, one, packet)
        return self._with(state, rank, one)

    def _visited(self, rank: int, one: Rank, packet: Packet) -> Rank:
        block = packet.block
        if packet.kind == STORE:
            one = self._store(one, block, packet.ranks)
            return one if self._place(rank, block) == self.ranks - 2 else self._send(rank, one, STORE, block, packet.ranks)
        total = tuple(sorted((*packet.ranks, *one.memory[block])))
        if not self.rules.pure:
            one = one._replace(memory=(*one.memory[:block], total, *one.memory[block + 1 :]))
        if self._place(rank, block) < self.ranks - 1:
            return self._send(rank, one, SUM, block, total)
        one = self._store(one, block, total)
        return self._send(rank, one, STORE, block, total)

    def _store(self, one: Rank, block: int, ranks: Ranks) -> Rank:
        if ranks != self.all_ranks:
            raise Violation(f"block {block} is stored with the contributions {ranks}")
        one = one._replace(results=(*one.results[:block], ranks, *one.results[block + 1 :]))
        return one._replace(early=tuple(each for each in one.early if each.block != block))

    def _send(self, rank: int, one: Rank, kind: str, block: int, ranks: Ranks) -> Rank:
        number = 1 + len(one.sent)  # a ring: all goes to the next rank
        return one._replace(sent=(*one.sent, Packet(rank, (rank + 1) % self.ranks, number, kind, block, ranks)))

    def _with(self, state: State, rank: int, one: Rank) -> State:
        return (*state[:rank], one, *state[rank + 1 :])

    # What may happen, and what must

    def events(self, state: State) -> Iterator[tuple[object, State]]:
        for rank in range(self.ranks):
            if (begun := self.begin(state, rank)) is not None:
                yield f"rank {rank} begins a block", begun
        for one in state:
            for packet in one.sent:
                yield packet, self.deliver(state, packet)

    def wrong(self, state: State) -> str:
        for timer in (True, False):
            if not self.ends(state, timer=timer):
                return f"stuck {'for good' if timer else 'without the timer'}: {state}"
        return ""

    def done(self, state: State) -> bool:
        return all(result is not None for one in state for result in one.results)

    def _has(self, one: Rank, packet: Packet) -> bool:
        """True if the sender still has it."""
        if not self.rules.kept:
            return False
        last = packet.block + (self.window if self.rules.window else 0)
        return last >= self.blocks or one.results[last] is None

    def asked(self, state: State, *, timer: bool) -> State:
        """Let every rank ask for what it knows to be missing, and with the ``timer`` for what was sent last."""
        for rank in range(self.ranks):
            before = (rank - 1) % self.ranks
            numbers = {number for source, number in state[rank].come if source == before}
            for packet in state[before].sent:
                gap = self.rules.gaps and packet.number < max(numbers, default=0)
                late = timer and self.rules.timer
                if packet.number not in numbers and (gap or late) and self._has(state[before], packet):
                    state = self.deliver(state, packet)
        return state

    def ends(self, state: State, *, timer: bool) -> bool:
        """True if every rank comes to the end although what is in flight is lost; without the ``timer``, if of each sender's
        packets the last arrives."""
        for _ in range(ROUNDS):
            if self.done(state):
                return True
            for rank in range(self.ranks):
                begun = self.begin(state, rank)
                state = state if begun is None else begun
            if not timer:
                for one in state:
                    state = self.deliver(state, one.sent[-1]) if one.sent else state
            state = self.asked(state, timer=timer)
        return False


def explore(chain: Chain) -> int:
    """The number of states; raises :class:`~tests.model.search.Violation`."""
    return len(search(chain.start, chain.events, chain.wrong))


def without(chain: Chain, *rules: str) -> Chain:
    return replace(chain, rules=replace(chain.rules, **dict.fromkeys(rules, False)))
