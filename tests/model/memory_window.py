# SPDX-License-Identifier: MIT
"""A client's window and a device's record of what it has done, as rules small enough to be explored.

A client sends instruction s once all up to s - W are complete, and repeats it until it has a reply, or gives it up. A device does
an instruction that it does not know and remembers the reply; it knows the last W of a client, and what is older is EXPIRED. When
its numbers are used up, a client takes a new one for itself.

The network is the set of all packets that were ever sent: any of them may be delivered at any time, any number of times, or
never. That is every loss, duplication, reordering, delay and repetition there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tests.model.search import Violation, search

EXPIRED = -1
Name = tuple[int, int]
"""A client's number, and the instruction's."""


@dataclass(frozen=True)
class WindowRules:
    """Rules of client and device; each can be switched off."""

    window_is_the_devices: bool = True  # the client's is not larger
    old_is_expired: bool = True  # and not done (again)
    window_is_a_span: bool = True  # of numbers, not a count of what is in progress
    knows_all_of_the_window: bool = True  # also those that came after a newer one
    new_number: bool = True  # when numbers are used up


@dataclass(frozen=True)
class WindowScenario:
    window: int = 2
    instructions: int = 5
    given_up: frozenset[int] = frozenset()
    """Instructions that the client may give up, by number."""
    last: int = 99
    """The largest number of an instruction."""
    rules: WindowRules = field(default_factory=WindowRules)


class Client(NamedTuple):
    number: int = 1
    begun: int = 0
    sent: int = 0
    complete: frozenset[int] = frozenset()


class Known(NamedTuple):
    """A device's state of one client."""

    newest_block: int = 0
    replies: tuple[tuple[int, int], ...] = ()

    def find(self, sequence: int, scenario: WindowScenario) -> int | None:
        """The reply; None: it is new."""
        replies = dict(self.replies)
        if sequence in replies:
            return replies[sequence]
        old = sequence <= self.newest_block - scenario.window
        return EXPIRED if old and scenario.rules.old_is_expired else None

    def note(self, sequence: int, reply: int, scenario: WindowScenario) -> Known:
        newest_block = max(self.newest_block, sequence)
        replies = {**dict(self.replies), sequence: reply}
        if not scenario.rules.knows_all_of_the_window and sequence < self.newest_block:
            del replies[sequence]
        kept = {each: what for each, what in replies.items() if each > newest_block - scenario.window}
        return Known(newest_block, tuple(sorted(kept.items())))


class World(NamedTuple):
    client: Client = Client()
    known: tuple[tuple[int, Known], ...] = ()
    done: tuple[tuple[int, int], ...] = ()
    """(instruction of the program, reply), in the order in which they were done."""
    requests: frozenset[tuple[Name, int]] = frozenset()
    """With the instruction of the program."""
    replies: frozenset[tuple[Name, int]] = frozenset()
    taken: tuple[tuple[int, int], ...] = ()
    """What the client took: (instruction of the program, reply)."""


def explore(scenario: WindowScenario) -> int:
    """Visit every state; returns how many there are. Raises :class:`~tests.model.search.Violation`."""
    worlds = search(World(), partial(steps, scenario=scenario), wrong)
    if not any(world.client.begun == scenario.instructions and is_idle(world.client) for world in worlds):
        raise Violation("no device comes to the end")
    return len(worlds)


def wrong(world: World) -> str:
    """Violations of the invariants."""
    names = [name for name, _ in world.done]
    if len(names) != len(set(names)):
        return "an instruction is done twice"
    for instruction, reply in world.taken:
        if reply == EXPIRED:
            return "an instruction that is waited for is refused"
        if (instruction, reply) not in world.done:
            return "the client takes a reply to something else"
    return ""


def is_idle(client: Client) -> bool:
    return len(client.complete) == client.sent


def steps(world: World, scenario: WindowScenario) -> Iterator[tuple[str, World]]:
    """Everything that may happen next."""
    yield from _begin(world, scenario)
    client = world.client
    first = client.begun - client.sent  # instructions of the client's earlier lives
    for sequence in scenario.given_up & set(range(1, client.sent + 1)) - client.complete:
        given_up = client._replace(complete=client.complete | {sequence})
        yield f"{sequence} is given up", world._replace(client=given_up)
    for name, instruction in world.requests:
        yield f"request {name} arrives", _serve(world, name, instruction, scenario)
    for (number, sequence), reply in world.replies:
        if number == client.number and sequence <= client.sent and sequence not in client.complete:
            taken = client._replace(complete=client.complete | {sequence})
            told = (*world.taken, (first + sequence, reply))
            yield f"reply to {(number, sequence)} arrives", world._replace(client=taken, taken=told)


def _begin(world: World, scenario: WindowScenario) -> Iterator[tuple[str, World]]:
    client, rules = world.client, scenario.rules
    if client.begun == scenario.instructions:
        return
    if client.sent == scenario.last:
        if is_idle(client):
            number = client.number + 1 if rules.new_number else client.number
            yield "the numbers begin anew", world._replace(client=Client(number, client.begun))
        return
    sequence = client.sent + 1
    window = scenario.window + (0 if rules.window_is_the_devices else 1)
    oldest = sequence - window  # what came before it is complete, or its successor would not have been sent
    free = oldest < 1 or oldest in client.complete
    if free if rules.window_is_a_span else client.sent - len(client.complete) < window:
        begun = client._replace(begun=client.begun + 1, sent=sequence)
        request = ((client.number, sequence), client.begun + 1)
        yield f"{sequence} is sent", world._replace(client=begun, requests=world.requests | {request})


def _serve(world: World, name: Name, instruction: int, scenario: WindowScenario) -> World:
    number, sequence = name
    known = dict(world.known)
    ours = known.get(number, Known())
    reply = ours.find(sequence, scenario)
    if reply is not None:
        return world._replace(replies=world.replies | {(name, reply)})
    reply = len(world.done)
    known[number] = ours.note(sequence, reply, scenario)
    return world._replace(
        known=tuple(sorted(known.items())),
        done=(*world.done, (instruction, reply)),
        replies=world.replies | {(name, reply)},
    )
