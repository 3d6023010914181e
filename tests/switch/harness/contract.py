# SPDX-License-Identifier: MIT
"""Rows of the contract: what the P4Runtime specification requires, and what each switch does where it differs.

A row is a list of steps. The outcome of the last is compared, or that of the first which is refused. Outcomes: "OK"; the name of
the canonical code with which an update, or one entity of a read, is refused; the same after "RPC " if the call as a whole is
refused; the entities of a read; what a step says of the stream or of frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import DEVICE_ID, SILENCE, SwitchUnderTest
from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, details, uint128
from tests.switch.harness.launch import BMV2
from tests.threads import PATIENCE

PRIMARY = "primary"
SAME: Final = "as the specification"


class World:
    """A switch and the controllers of one row, by name."""

    def __init__(self, switch: SwitchUnderTest) -> None:
        self.switch = switch
        self.controllers: dict[str, Controller] = {}

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for controller in reversed(self.controllers.values()):
            controller.close()

    def open(self, name: str, election_id: int | None, device_id: int = DEVICE_ID) -> Controller:
        self.controllers[name] = Controller(self.switch.grpc_address, election_id, device_id)
        return self.controllers[name]

    @property
    def primary(self) -> Controller:
        return self.controllers[PRIMARY]


Step = Callable[[World], Any]


@dataclass(frozen=True)
class Otherwise:
    """Other entities than the required ones are read: so many, and why."""

    entities: int
    why: str


def _is_refusal(outcome: Any) -> bool:
    codes = outcome if isinstance(outcome, list) else [outcome]
    return any(isinstance(code, str) and code != "OK" for code in codes)


@dataclass(frozen=True)
class Row:
    """``bmv2`` and ``ours``: the outcome on simple_switch_grpc and on netsum-switch where it is not the required one; ``why``
    says why ours is not. ``crashes``: how simple_switch_grpc ends on it, so that the row is left out there."""

    section: str
    states: str
    steps: Sequence[Step]
    required: Any
    bmv2: Any = SAME
    ours: Any = SAME
    why: str = ""
    crashes: str = ""

    def expected(self, kind: str) -> Any:
        held = self.bmv2 if kind == "bmv2" else self.ours
        return self.required if isinstance(held, str) and held == SAME else held

    def check(self, world: World) -> None:
        """Carry out the steps. AssertionError if the outcome is not that of this kind of switch."""
        outcome, expected = self.outcome(world), self.expected(world.switch.kind)
        if isinstance(expected, Otherwise):
            assert isinstance(outcome, Found), outcome
            assert (len(outcome.entities), outcome != self.required) == (expected.entities, True), outcome
        else:
            assert outcome == expected, f"{self.section}: {self.states}"

    def outcome(self, world: World) -> Any:
        """The outcome of the last step, or of the first that is refused."""
        for number, step in enumerate(self.steps[:-1], 1):
            outcome = step(world)
            if _is_refusal(outcome):
                return f"step {number}: {', '.join(outcome) if isinstance(outcome, list) else outcome}"
        return self.steps[-1](world)


def cases(rows: Iterable[Row]) -> list[Any]:
    """(kind of switch, row) for `pytest.mark.parametrize(("p4rt_switch", "row"), ..., indirect=["p4rt_switch"])`."""
    found = []
    for row in rows:
        found.append(pytest.param("embedded", row, id=f"embedded-{row.section}: {row.states}"))
        if not row.crashes:
            found.append(pytest.param("bmv2", row, id=f"bmv2-{row.section}: {row.states}", marks=BMV2.marks))
    return found


# Outcomes


def code_name(code: int) -> str:
    return str(code_pb2.Code.Name(code))


def refusal_of(error: grpc.RpcError) -> Any:
    """The codes of a refused call: one name if one update or entity was refused, else a list with all of them."""
    held = dict(error.trailing_metadata() or ())
    if error.code() is grpc.StatusCode.UNKNOWN and "grpc-status-details-bin" in held:
        names = [code_name(code) for code, _, _ in details(error)]
        if names:
            return names[0] if len(names) == 1 else names
    return f"RPC {error.code().name}"


def outcome_of(call: Callable[[], Any]) -> Any:
    try:
        call()
    except grpc.RpcError as error:
        return refusal_of(error)
    return "OK"


def in_order(entities: Iterable[Any]) -> list[Any]:
    """Entities in an order of their own: that of a read is not promised, nor that of replicas and matches."""
    found = []
    for entity in entities:
        copy = p4rt.Entity.FromString(entity.SerializeToString())
        replication = copy.packet_replication_engine_entry
        kind = replication.WhichOneof("type")
        repeated = [copy.table_entry.match] if copy.HasField("table_entry") else []
        repeated += [getattr(replication, kind).replicas] if kind is not None else []
        for each in repeated:
            each.sort(key=lambda one: one.SerializeToString())
        found.append(copy)
    return sorted(found, key=lambda one: one.SerializeToString())


# Steps


def updates(*pairs: tuple[Any, Any], by: str = PRIMARY, **fields: Any) -> Step:
    """A Write of (type, entity) in one batch; ``fields`` of the WriteRequest."""
    batch = [p4rt.Update(type=kind, entity=entity) for kind, entity in pairs]
    return lambda world: outcome_of(lambda: world.controllers[by].write_updates(batch, **fields))


def insert(*entities: Any, **fields: Any) -> Step:
    return updates(*((INSERT, each) for each in entities), **fields)


def modify(*entities: Any, **fields: Any) -> Step:
    return updates(*((MODIFY, each) for each in entities), **fields)


def delete(*entities: Any, **fields: Any) -> Step:
    return updates(*((DELETE, each) for each in entities), **fields)


def refused(step: Step) -> Step:
    """The step is refused, which is no outcome: what comes of it is looked at afterwards."""

    def carry_out(world: World) -> None:
        assert _is_refusal(step(world)), "it was not refused"

    return carry_out


@dataclass(frozen=True)
class Found:
    """Entities, compared in any order."""

    entities: list[Any] = field(default_factory=list)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Found) and in_order(self.entities) == in_order(other.entities)

    __hash__ = None  # type: ignore[assignment]


def found(*entities: Any) -> Found:
    return Found(list(entities))


def read(*entities: Any, by: str = PRIMARY, device_id: int | None = None, seen: Callable[[Any], Any] | None = None) -> Step:
    """A Read; the outcome is what was found, or the refusal. ``seen`` takes the list of entities and gives the outcome."""

    def step(world: World) -> Any:
        controller = world.controllers[by]
        request = p4rt.ReadRequest(device_id=controller.device_id if device_id is None else device_id, entities=entities)
        entities_read: list[Any] = []
        try:
            for response in controller.stub.Read(request, timeout=PATIENCE):
                entities_read += response.entities
        except grpc.RpcError as error:
            return refusal_of(error)
        return found(*entities_read) if seen is None else seen(entities_read)

    return step


def read_in_part(*entities: Any) -> Step:
    """A Read of which something is refused: (how many entities came, the codes)."""

    def step(world: World) -> Any:
        count = 0
        request = p4rt.ReadRequest(device_id=DEVICE_ID, entities=entities)
        try:
            for response in world.primary.stub.Read(request, timeout=PATIENCE):
                count += len(response.entities)
        except grpc.RpcError as error:
            return count, refusal_of(error)
        return count, "OK"

    return step


def how_many(entities: Sequence[Any]) -> int:
    return len(entities)


def status_of(message: Any) -> tuple[str, int | None]:
    """(code, election id) of an arbitration update."""
    update = message.arbitration
    election_id = update.election_id.high << 64 | update.election_id.low if update.HasField("election_id") else None
    return code_name(update.status.code), election_id


def connects(name: str, election_id: int | None = None, device_id: int = DEVICE_ID, **fields: Any) -> Step:
    """A controller opens a stream and sends an arbitration update, of which `arbitrates` has the fields. The outcome is the
    answer."""

    def step(world: World) -> Any:
        world.open(name, election_id, device_id)
        return arbitrates(name, election_id, device_id, **fields)(world)

    return step


def arbitrates(
    name: str,
    election_id: int | None = None,
    device_id: int = DEVICE_ID,
    role: str | None = None,
    config: Any = None,
    seen: Callable[[Any], Any] = status_of,
) -> Step:
    """An arbitration update of an open controller, and the answer as ``seen`` has it."""

    def step(world: World) -> Any:
        asks(name, election_id, device_id, role, config)(world)
        return told(name, seen)(world)

    return step


def asks(
    name: str, election_id: int | None = None, device_id: int = DEVICE_ID, role: str | None = None, config: Any = None
) -> Step:
    """An arbitration update of an open controller."""

    def step(world: World) -> None:
        controller = world.controllers[name]
        controller.election_id = election_id
        request = p4rt.StreamMessageRequest()
        request.arbitration.device_id = device_id
        if election_id is not None:
            request.arbitration.election_id.CopyFrom(uint128(election_id))
        if role is not None:
            request.arbitration.role.name = role
        if config is not None:
            packed = any_pb2.Any()
            packed.Pack(config)
            request.arbitration.role.config.CopyFrom(packed)
        controller.send(request)

    return step


def told(name: str, seen: Callable[[Any], Any] = status_of) -> Step:
    """The next message of a controller's stream, as ``seen`` has it; "RPC ..." if the stream ends."""

    def step(world: World) -> Any:
        response = world.controllers[name].responses.get(timeout=PATIENCE)
        if isinstance(response, grpc.RpcError):
            return f"RPC {response.code().name}"
        return "the stream ended" if response is None else seen(response)

    return step


def told_if_ours(name: str, seen: Callable[[Any], Any] = status_of) -> Step:
    """The same where simple_switch_grpc says nothing: there the outcome is "nothing"."""

    def step(world: World) -> Any:
        if world.switch.kind == "bmv2" and world.controllers[name].none_within(SILENCE):
            return "nothing"
        return told(name, seen)(world)

    return step


def silent(name: str) -> Step:
    """True if nothing comes for a controller."""
    return lambda world: world.controllers[name].none_within(SILENCE)


def leaves(name: str) -> Step:
    return lambda world: world.controllers.pop(name).close()


def sends(message: Any, by: str = PRIMARY) -> Step:
    """A StreamMessageRequest."""
    return lambda world: world.controllers[by].send(message)


def frame_in(data: bytes, port: int = 1) -> Step:
    """A frame arrives at a port; no outcome."""
    return lambda world: world.switch.send(port, data)


def frame_out(port: int, seen: Callable[[bytes | None], Any] = bool, timeout: float = PATIENCE) -> Step:
    """The next frame that leaves at a port, as ``seen`` has it."""
    return lambda world: seen(world.switch.recv(port, timeout))


def passed(data: bytes, port: int, seen: Callable[[bytes | None], Any] = bool) -> Step:
    """A frame arrives at port 1; the next that leaves at ``port``, as ``seen`` has it."""

    def step(world: World) -> Any:
        world.switch.send(1, data)
        return seen(world.switch.recv(port, PATIENCE))

    return step
