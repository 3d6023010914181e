# SPDX-License-Identifier: MIT
"""Replies to all workers at once, of a block of parameters (docs/memory.md), and every behavior of small trainings.

Workers push gradients, an instruction for each step, at one block. Its log makes the steps: what is in it, and committed,
outlives the primary; what is not, a new primary does not have. A step's reply is one packet to every rank, which names the
instructions that it answers; who was too late, and who asks again, gets a reply of its own.

The network is the set of all packets that were ever sent: any of them may be delivered at any time, any number of times, or
never. An untrusted sender has seen them all, and sends others that look like them. Liveness: from every reachable state, throw
away what is in flight; every rank that then asks again until it is answered must come to the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tests.model.search import Violation, search

ROUNDS: Final = 20


@dataclass(frozen=True)
class Rules:
    """Each can be switched off, to see it found."""

    named: bool = True  # a worker takes a packet that names its instruction; else any of a step that it has not made
    sealed: bool = True  # the names are of these contents, and no other rank can make them
    committed: bool = True  # a reply leaves when its instruction is there to stay
    again: bool = True  # who asks again is answered, and with what it was to be told at first


class Push(NamedTuple):
    worker: int
    life: int
    step: int


Value = tuple[frozenset[Push], ...]
"""Parameters: the gradients in each step."""


class Packet(NamedTuple):
    """A reply. ``counted``: whether the gradients of those it answers are in the step."""

    to: frozenset[Push]
    value: Value
    counted: bool
    forged: bool = False


class Worker(NamedTuple):
    """``asked``: what it waits for."""

    life: int = 0
    value: Value = ()
    asked: Push | None = None


class State(NamedTuple):
    workers: tuple[Worker, ...]
    pushed: frozenset[Push] = frozenset()
    log: tuple[Push, ...] = ()
    committed: int = 0
    sent: frozenset[Packet] = frozenset()
    troubles: int = 0


@dataclass(frozen=True)
class Training:
    """``quorum`` gradients make a step. So many ``troubles`` happen: a primary dies, or a worker, which begins again."""

    workers: int
    quorum: int
    steps: int
    troubles: int = 1
    rules: Rules = Rules()

    @property
    def start(self) -> State:
        return State((Worker(),) * self.workers)

    def made(self, log: tuple[Push, ...]) -> tuple[Value, dict[Push, Packet]]:
        """The parameters that the log makes, and the reply to each push that has one."""
        value: Value = ()
        gathered: dict[int, Push] = {}
        waiting: list[Push] = []
        replies: dict[Push, Packet] = {}
        for push in log:
            if push.step <= len(value):
                replies[push] = Packet(frozenset({push}), value, counted=False)
                continue
            gathered.setdefault(push.worker, push)
            waiting.append(push)
            if len(gathered) >= self.quorum:
                counted = frozenset(gathered.values())
                value = (*value, counted)
                for each in waiting:
                    named = counted if each in counted else frozenset({each})
                    replies[each] = Packet(named, value, counted=each in counted)
                gathered, waiting = {}, []
        return value, replies

    # Events

    def push(self, state: State, number: int) -> State | None:
        worker = state.workers[number]
        if worker.asked is not None or len(worker.value) >= self.steps:
            return None
        asked = Push(number, worker.life, len(worker.value) + 1)
        state = state._replace(pushed=state.pushed | {asked})
        return self._with(state, number, worker._replace(asked=asked))

    def arrive(self, state: State, push: Push) -> State:
        """At the primary."""
        if push in state.log:
            return state
        state = state._replace(log=(*state.log, push))
        return state if self.rules.committed else self._reply(state, len(state.log))

    def commit(self, state: State) -> State:
        state = state._replace(committed=len(state.log))
        return self._reply(state, state.committed)

    def _reply(self, state: State, upto: int) -> State:
        return state._replace(sent=state.sent | set(self.made(state.log[:upto])[1].values()))

    def deliver(self, state: State, number: int, packet: Packet) -> State:
        worker = state.workers[number]
        asked = worker.asked
        if asked is None or (packet.forged and self.rules.sealed):
            return state
        other_step = self.rules.named or not packet.counted or len(packet.value) == len(worker.value)
        if asked not in packet.to and other_step:
            return state
        if packet.counted != (asked in packet.value[-1]):
            raise Violation(f"{asked} is told that it is in a step in which it is not")
        return self._with(state, number, worker._replace(value=packet.value, asked=None))

    def die(self, state: State, number: int) -> State:
        """The worker; the next life reads the parameters, and goes on."""
        value, _ = self.made(state.log[: state.committed])
        worker = Worker(state.workers[number].life + 1, value)
        return self._with(state, number, worker)

    @staticmethod
    def fail_over(state: State) -> State:
        return state._replace(log=state.log[: state.committed])

    @staticmethod
    def _with(state: State, number: int, worker: Worker) -> State:
        workers = state.workers
        return state._replace(workers=(*workers[:number], worker, *workers[number + 1 :]))

    # What may happen, and what must

    def events(self, state: State) -> Iterator[tuple[object, State]]:
        for number in range(self.workers):
            if (pushed := self.push(state, number)) is not None:
                yield f"worker {number} pushes", pushed
            for packet in state.sent:
                yield (number, packet), self.deliver(state, number, packet)
                forged = _forged(packet)
                yield (number, forged), self.deliver(state, number, forged)
        for push in state.pushed:
            yield push, self.arrive(state, push)
        yield "all is committed", self.commit(state)
        if state.troubles < self.troubles:
            more = state._replace(troubles=state.troubles + 1)
            yield "the primary dies", self.fail_over(more)
            for number in range(self.workers):
                yield f"worker {number} dies", self.die(more, number)

    def wrong(self, state: State) -> str:
        value, _ = self.made(state.log[: state.committed])
        for number, worker in enumerate(state.workers):
            if worker.value != value[: len(worker.value)]:
                return f"worker {number} has parameters that the memory never had: {state}"
        return "" if self.ends(state) else f"stuck for good: {state}"

    def ends(self, state: State) -> bool:
        """True if every rank comes to the end although what is in flight is lost, also what was sent to all."""
        for _ in range(ROUNDS):
            if all(len(worker.value) >= self.steps for worker in state.workers):
                return True
            for number in range(self.workers):
                state = self.push(state, number) or state
                asked = state.workers[number].asked
                state = state if asked is None else self.arrive(state, asked)
            state = self.commit(state._replace(sent=frozenset()))
            state = self._answered(state)
        return False

    def _answered(self, state: State) -> State:
        if not self.rules.again:
            return state
        _, replies = self.made(state.log[: state.committed])
        for number, worker in enumerate(state.workers):
            if worker.asked in replies:
                own = replies[worker.asked]._replace(to=frozenset({worker.asked}))
                state = self.deliver(state, number, own)
        return state


def _forged(packet: Packet) -> Packet:
    return packet._replace(value=(*packet.value[:-1], packet.value[-1] | {Push(-1, 0, 0)}), forged=True)


def explore(training: Training) -> int:
    """The number of states; raises :class:`~tests.model.search.Violation`."""
    return len(search(training.start, training.events, training.wrong))


def without(training: Training, rule: str) -> Training:
    return replace(training, rules=replace(training.rules, **{rule: False}))
