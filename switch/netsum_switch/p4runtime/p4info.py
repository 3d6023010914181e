# SPDX-License-Identifier: MIT
"""A p4info indexed by id, with the widths and names that requests are checked against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from netsum_p4runtime import p4info_pb2

from netsum_switch.p4runtime.p4data import DataType
from netsum_switch.p4runtime.p4info_check import check_ids
from netsum_switch.p4runtime.status import invalid, invalid_id

Spec = TypeVar("Spec")


class MatchKind(Enum):
    EXACT = p4info_pb2.MatchField.EXACT
    LPM = p4info_pb2.MatchField.LPM
    TERNARY = p4info_pb2.MatchField.TERNARY
    RANGE = p4info_pb2.MatchField.RANGE
    OPTIONAL = p4info_pb2.MatchField.OPTIONAL

    @property
    def needs_priority(self) -> bool:
        """True if an entry of a table with such a field must have a priority."""
        return self in (MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL)


class Scope(Enum):
    """The scope in which a table may use an action."""

    ANYWHERE = p4info_pb2.ActionRef.TABLE_AND_DEFAULT
    ENTRIES = p4info_pb2.ActionRef.TABLE_ONLY
    DEFAULT = p4info_pb2.ActionRef.DEFAULT_ONLY


class CounterUnit(Enum):
    """The unit of a counter; the switch always counts both."""

    BYTES = p4info_pb2.CounterSpec.BYTES
    PACKETS = p4info_pb2.CounterSpec.PACKETS
    BOTH = p4info_pb2.CounterSpec.BOTH


@dataclass(frozen=True, slots=True)
class Field:
    """A match field, an action parameter or a piece of packet metadata: `width` in bits."""

    id: int
    name: str
    width: int


@dataclass(frozen=True, slots=True)
class KeyField(Field):
    kind: MatchKind


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """An action and its parameters, in the order of the p4info (that of the JSON)."""

    id: int
    name: str
    params: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class CounterSpec:
    """An indirect or direct counter; `size` is 0 for a direct one."""

    id: int
    name: str
    unit: CounterUnit
    size: int = 0


@dataclass(frozen=True, slots=True)
class MeterSpec:
    """An indirect meter."""

    id: int
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class RegisterSpec:
    """A register, and the type of its cells."""

    id: int
    name: str
    size: int
    type: DataType


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """An action profile: the ids of its tables' actions; 0 is no limit to its members, and to the weights of a group together."""

    id: int
    name: str
    max_group_size: int
    actions: frozenset[int]
    size: int
    with_selector: bool


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table as controllers see it."""

    id: int
    name: str
    key: tuple[KeyField, ...]
    actions: dict[int, Scope]
    const_default: bool
    idle_timeout: bool
    direct_counter: CounterSpec | None
    has_direct_meter: bool
    profile_id: int | None
    is_const: bool

    @property
    def needs_priority(self) -> bool:
        """True if entries of this table must have a priority."""
        return any(field.kind.needs_priority for field in self.key)


@dataclass(frozen=True, slots=True)
class DigestSpec:
    """A digest and the widths of its members; `shape` tells how members are put into a P4Data."""

    id: int
    name: str
    widths: tuple[int, ...]
    shape: str  # "struct", "tuple" or "bitstring"


@dataclass(frozen=True)
class P4Info:
    tables: dict[int, TableSpec]
    actions: dict[int, ActionSpec]
    counters: dict[int, CounterSpec]
    digests: dict[int, DigestSpec]
    meters: dict[int, MeterSpec]
    registers: dict[int, RegisterSpec]
    profiles: dict[int, ProfileSpec]
    value_sets: frozenset[int]
    packet_in: tuple[Field, ...] | None
    packet_out: tuple[Field, ...] | None

    def action_named(self, name: str) -> ActionSpec:
        """The action with this name, which is there."""
        return next(action for action in self.actions.values() if action.name == name)

    @classmethod
    def parse(cls, message: Any) -> P4Info:
        """Index a p4.config.v1.P4Info. Raises RpcError (INVALID_ARGUMENT) with what cannot be imported."""
        check_ids(message)
        try:
            direct_counters = _index(message.direct_counters, _counter)
            headers = {header.preamble.name: header for header in message.controller_packet_metadata}
            return cls(
                tables=_index(message.tables, lambda table: _table(table, direct_counters, message)),
                actions=_index(message.actions, _action),
                counters=_index(message.counters, lambda counter: _counter(counter, counter.size)),
                digests=_index(message.digests, lambda digest: _digest(digest, message.type_info)),
                meters=_index(message.meters, _meter),
                registers=_index(message.registers, lambda register: _register(register, message.type_info)),
                profiles=_index(message.action_profiles, lambda profile: _profile(profile, message)),
                value_sets=frozenset(each.preamble.id for each in message.value_sets),
                packet_in=_header(headers.get("packet_in")),
                packet_out=_header(headers.get("packet_out")),
            )
        except ValueError as error:
            raise invalid(f"Error when importing p4info: {error}") from error


def by_id(specs: Mapping[int, Spec], number: int) -> Spec:
    """The object with this id. Raises RpcError (INVALID_ARGUMENT) if there is none of its kind."""
    if number not in specs:
        raise invalid_id()
    return specs[number]


def _index(messages: Iterable[Any], read: Callable[[Any], Spec]) -> dict[int, Spec]:
    return {each.preamble.id: read(each) for each in messages}


def _counter(counter: Any, size: int = 0) -> CounterSpec:
    return CounterSpec(counter.preamble.id, counter.preamble.name, CounterUnit(counter.spec.unit), size)


def _meter(meter: Any) -> MeterSpec:
    return MeterSpec(meter.preamble.id, meter.preamble.name, meter.size)


def _register(register: Any, type_info: Any) -> RegisterSpec:
    name = register.preamble.name
    try:
        cell = DataType.parse(register.type_spec, type_info)
    except ValueError as error:
        raise ValueError(f"register {name}: {error}") from error
    return RegisterSpec(register.preamble.id, name, register.size, cell)


def _table(table: Any, direct_counters: dict[int, CounterSpec], message: Any) -> TableSpec:
    meters = {meter.preamble.id for meter in message.direct_meters}
    resources = list(table.direct_resource_ids)
    return TableSpec(
        id=table.preamble.id,
        name=table.preamble.name,
        key=tuple(KeyField(field.id, field.name, field.bitwidth, MatchKind(field.match_type)) for field in table.match_fields),
        actions={ref.id: Scope(ref.scope) for ref in table.action_refs},
        const_default=table.const_default_action_id != 0,
        idle_timeout=table.idle_timeout_behavior == p4info_pb2.Table.NOTIFY_CONTROL,
        direct_counter=next((direct_counters[id_] for id_ in resources if id_ in direct_counters), None),
        has_direct_meter=any(id_ in meters for id_ in resources),
        profile_id=table.implementation_id or None,
        is_const=table.is_const_table,
    )


def _action(action: Any) -> ActionSpec:
    params = tuple(Field(param.id, param.name, param.bitwidth) for param in action.params)
    return ActionSpec(action.preamble.id, action.preamble.name, params)


def _header(header: Any | None) -> tuple[Field, ...] | None:
    if header is None:
        return None
    return tuple(Field(field.id, field.name, field.bitwidth) for field in header.metadata)


def _digest(digest: Any, type_info: Any) -> DigestSpec:
    name, spec = digest.preamble.name, digest.type_spec
    shape = spec.WhichOneof("type_spec")
    if shape == "struct":
        if spec.struct.name not in type_info.structs:
            raise ValueError(f"digest {name}: struct {spec.struct.name} is not in the type information")
        members = [member.type_spec for member in type_info.structs[spec.struct.name].members]
    elif shape == "tuple":
        members = list(spec.tuple.members)
    elif shape == "bitstring":
        members = [spec]
    else:
        raise ValueError(f"digest {name}: a digest is a bitstring, a struct or a tuple")
    for member in members:
        if member.WhichOneof("type_spec") != "bitstring" or member.bitstring.WhichOneof("type_spec") != "bit":
            raise ValueError(f"digest {name}: only bit<W> members can be packed")
    return DigestSpec(digest.preamble.id, name, tuple(m.bitstring.bit.bitwidth for m in members), shape)


def _profile(profile: Any, message: Any) -> ProfileSpec:
    tables = [table for table in message.tables if table.implementation_id == profile.preamble.id]
    actions = frozenset(ref.id for table in tables for ref in table.action_refs)
    name, limits = profile.preamble.name, (profile.max_group_size, actions, profile.size)
    return ProfileSpec(profile.preamble.id, name, *limits, profile.with_selector)
