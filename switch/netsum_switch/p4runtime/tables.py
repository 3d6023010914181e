# SPDX-License-Identifier: MIT
"""TableEntry: inserts, modifies, deletes and reads entries and default entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.errors import ImmutableError, MeterError, TableError, TableFullError
from netsum_switch.externs import MeterConfig, check_config
from netsum_switch.p4runtime.action_profiles import ActionProfiles, Target, check_action, write_action
from netsum_switch.p4runtime.idle_timeouts import IdleTimeouts
from netsum_switch.p4runtime.match_key import DEFAULT_KEY, MatchKey, read_key, read_match, write_key
from netsum_switch.p4runtime.p4info import CounterUnit, P4Info, TableSpec, by_id
from netsum_switch.p4runtime.status import RpcError, by_type, invalid
from netsum_switch.pipeline import Pipeline
from netsum_switch.table import Entry, Table

_RATES, _BURSTS = (1 << 64) - 1, (1 << 32) - 1
_NO_ACTION = "NoAction"


def refuse_colors(message: Any, field: str) -> None:
    """Refuse counters for each color of a meter. Raises RpcError (UNIMPLEMENTED) if the message has them."""
    if message.HasField(field):
        raise RpcError(code_pb2.UNIMPLEMENTED, f"{field}: meters here do not count their colors")


def read_config(config: Any) -> MeterConfig | None:
    """The configuration in a MeterConfig message; -1 is the highest value, and in all four places no configuration.
    Raises RpcError: INVALID_ARGUMENT for a number below -1, a peak rate below the committed one, or an `eburst`, which meters of
    two rates do not have; UNIMPLEMENTED for a burst that needs more than 32 bits."""
    if config.eburst:
        raise invalid("A meter of two rates has no eburst: leave it unset")
    fields = (("CIR", config.cir), ("CBurst", config.cburst), ("PIR", config.pir), ("PBurst", config.pburst))
    for name, value in fields:
        if value < -1:
            raise invalid(f"Negative meter {name}")
    for name, value in (("CBurst", config.cburst), ("Pburst", config.pburst)):
        if value > _BURSTS:
            raise RpcError(code_pb2.UNIMPLEMENTED, f"{name} too large")
    if all(value == -1 for _, value in fields):
        return None
    held = MeterConfig(config.cir & _RATES, config.cburst & _BURSTS, config.pir & _RATES, config.pburst & _BURSTS)
    try:
        check_config(held)
    except MeterError as error:
        raise invalid(str(error)) from error
    return held


def write_config(held: MeterConfig, config: Any) -> None:
    """Fill a MeterConfig message."""
    config.cir, config.pir = _rate(held.cir), _rate(held.pir)
    config.cburst, config.pburst = _burst(held.cburst), _burst(held.pburst)


def _rate(value: int) -> int:
    return -1 if value > _RATES >> 1 else value


def _burst(value: int) -> int:
    return -1 if value == _BURSTS else value


@dataclass(slots=True)
class Attachment:
    """The metadata that a controller attaches to an entry; the data plane does not use it."""

    controller_metadata: int = 0
    metadata: bytes = b""
    idle_timeout_ns: int = 0
    group: int | None = None  # that the entry's action set became


_NOTHING = Attachment()


class Tables:
    """The tables of one pipeline as controllers see them.

    Const entries of the program can be read, and their direct resources be set. The caller serializes calls, and writes while the
    pipeline is `changing`.
    """

    def __init__(self, info: P4Info, pipeline: Pipeline, profiles: ActionProfiles, idle_timeouts: IdleTimeouts) -> None:
        self._info = info
        self._profiles = profiles
        self._idle_timeouts = idle_timeouts
        self._pipeline = pipeline
        self._actions = {action.name: action for action in info.actions.values()}
        self._attachments: dict[int, dict[tuple[MatchKey, int], Attachment]] = {
            table_id: {DEFAULT_KEY: Attachment()} for table_id in info.tables
        }

    def spec(self, table_id: int) -> TableSpec:
        """The table with this id. Raises RpcError (INVALID_ARGUMENT) if there is none."""
        return by_id(self._info.tables, table_id)

    def specs(self) -> Collection[TableSpec]:
        """All tables."""
        return self._info.tables.values()

    def table(self, spec: TableSpec) -> Table:
        """The table; where the program has none, one that is full."""
        found = self._pipeline.tables.get(spec.name)
        return Table(spec.name, "exact", (), (), 0) if found is None else found

    def write(self, update_type: int, entry: Any) -> None:
        """Carry out one update of a TableEntry. Raises RpcError if it is refused and nothing changed."""
        spec = self.spec(entry.table_id)
        if entry.is_const:
            raise invalid("is_const must not be set in a WriteRequest")
        by_type(update_type, self._insert, self._modify, self._delete)(spec, entry)

    def _insert(self, spec: TableSpec, entry: Any) -> None:
        if entry.is_default_action:
            raise invalid("Cannot use INSERT for default entry")
        if not entry.HasField("action"):
            raise invalid("'action' field must be set")
        key, priority = read_key(spec, entry)
        self._check_not_const(spec)
        check_action(self._info, spec, entry)
        with ExitStack() as undo:
            name, params = self._profiles.target(spec, entry.action, undo)
            meter = self._check_resources(spec, entry)
            if (key, priority) in self._attachments[spec.id]:
                raise RpcError(code_pb2.ALREADY_EXISTS, "Match entry exists, use MODIFY if you wish to change action")
            try:
                inserted = self.table(spec).insert(key, name, params, priority)
            except TableError as error:
                raise _refusal(error) from error
            undo.pop_all()
        self._set_resources(spec, inserted, entry, meter)
        self._attach(spec, (key, priority), _attachment(entry, params))

    def _modify(self, spec: TableSpec, entry: Any) -> None:
        key, priority = place = read_key(spec, entry)
        table, attachments = self.table(spec), self._attachments[spec.id]
        if not entry.is_default_action and entry.HasField("action"):
            self._check_not_const(spec)
        check_action(self._info, spec, entry)
        with ExitStack() as undo:
            target = self._profiles.target(spec, entry.action, undo) if entry.HasField("action") else None
            meter = self._check_resources(spec, entry)
            if place not in attachments and (not table.const_entries or table.find(key, priority) is None):
                raise RpcError(code_pb2.NOT_FOUND, "Cannot find match entry")
            try:
                if entry.is_default_action:
                    _modify_default(table, target)
                elif target is not None:
                    table.modify(key, *target, priority)
            except TableError as error:
                raise _refusal(error) from error
            undo.pop_all()
        modified = table.default_entry if entry.is_default_action else table.find(key, priority)
        if modified is not None:
            self._set_resources(spec, modified, entry, meter)
        old = attachments.get(place)
        if old is None:  # a const entry
            return
        if old.group is not None and target is not None:
            self._profiles.drop_set(spec, old.group)
        if entry.is_default_action and target is None:
            self._attach(spec, place, Attachment())
        else:
            attachment = _attachment(entry, () if target is None else target[1])
            attachment.group = old.group if target is None else attachment.group
            self._attach(spec, place, attachment)

    def _check_not_const(self, spec: TableSpec) -> None:
        if spec.is_const or self.table(spec).const_entries:
            raise RpcError(code_pb2.PERMISSION_DENIED, f"The entries of table {spec.name} are const")

    def _delete(self, spec: TableSpec, entry: Any) -> None:
        if entry.is_default_action:
            raise invalid("Cannot use DELETE for default entry")
        key, priority = read_key(spec, entry)
        self._check_not_const(spec)
        old = self._attachments[spec.id].get((key, priority))
        if old is None:
            raise RpcError(code_pb2.NOT_FOUND, "Cannot find match entry")
        self.table(spec).delete(key, priority)
        if old.group is not None:
            self._profiles.drop_set(spec, old.group)
        del self._attachments[spec.id][key, priority]
        self._idle_timeouts.forget((spec.id, key, priority))

    def _attach(self, spec: TableSpec, place: tuple[MatchKey, int], attachment: Attachment) -> None:
        """Keep what a controller attaches to an entry, and begin its time-to-live."""
        self._attachments[spec.id][place] = attachment
        key, table = (spec.id, *place), self.table(spec)
        entry = table.find(*place) if attachment.idle_timeout_ns else None
        if entry is None:
            self._idle_timeouts.forget(key)
            return
        message = p4runtime_pb2.TableEntry(
            table_id=spec.id,
            controller_metadata=attachment.controller_metadata,
            metadata=attachment.metadata,
            idle_timeout_ns=attachment.idle_timeout_ns,
        )
        write_key(spec, entry.match, entry.priority, message)
        self._idle_timeouts.watch(key, table, entry, message)

    def _check_resources(self, spec: TableSpec, entry: Any) -> MeterConfig | None:
        """Check what comes with an entry; return the configuration of its meter."""
        meter = None
        if entry.HasField("time_since_last_hit"):
            raise invalid("has_time_since_last_hit must not be set in WriteRequest")
        refuse_colors(entry, "meter_counter_data")
        if entry.HasField("meter_config"):
            if not spec.has_direct_meter:
                raise invalid("Table has no direct meters")
            meter = read_config(entry.meter_config)
        if entry.HasField("counter_data") and spec.direct_counter is None:
            raise invalid("Table has no direct counters")
        if entry.idle_timeout_ns < 0:
            raise invalid("idle_timeout_ns must be a positive value")
        if entry.idle_timeout_ns > 0 and not spec.idle_timeout:
            raise invalid("idle_timeout_ns must be set to 0 for tables which do not support idle timeout")
        if entry.idle_timeout_ns > 0 and entry.is_default_action:
            raise invalid("Default table entries do not support idle timeouts, idle_timeout_ns must be set to 0")
        return meter

    def _set_resources(self, spec: TableSpec, target: Entry, entry: Any, meter: MeterConfig | None) -> None:
        """Set what came with an entry; the unit that its counter is not declared to count becomes 0."""
        meters = self.table(spec).meters
        if meters is not None:
            meters.configure(target.row, meter)
        if spec.direct_counter is None or not entry.HasField("counter_data"):
            return
        unit, data = spec.direct_counter.unit, entry.counter_data
        target.packets = 0 if unit is CounterUnit.BYTES else data.packet_count
        target.bytes = 0 if unit is CounterUnit.PACKETS else data.byte_count

    def find(self, spec: TableSpec, entry: Any) -> Entry:
        """The data plane's entry for a TableEntry. Raises RpcError (NOT_FOUND) if there is none."""
        key, priority = read_key(spec, entry)
        table = self.table(spec)
        found = table.default_entry if entry.is_default_action else table.find(key, priority)
        if found is None:
            raise RpcError(code_pb2.NOT_FOUND, "Cannot find match entry")
        return found

    def read(self, request: Any, response: Any) -> None:
        """Append what a TableEntry in a ReadRequest selects: one entry, those of a table that have what it says, or all of all
        tables. Default entries are read only if `is_default_action` is set. Raises RpcError."""
        refuse_colors(request, "meter_counter_data")
        if request.table_id == 0 and request.match:
            raise invalid("A match key needs a table: set table_id")
        specs = [self.spec(request.table_id)] if request.table_id else list(self._info.tables.values())
        for spec in specs:
            if request.is_default_action:
                self._read_default(spec, request, response)
                continue
            if request.HasField("time_since_last_hit") and not spec.idle_timeout:
                raise invalid(
                    "Do not set time_since_last_hit for a ReadRequest if the table does not support idle timeout; yes, "
                    "that includes wildcard reads"
                )
            for entry in self.select(spec, request):
                self._write_entry(spec, entry, request, response.entities.add().table_entry)

    def select(self, spec: TableSpec, request: Any) -> list[Entry]:
        """The entries of one table that have what a request says: match key, priority, action, metadata; what it leaves out may
        be anything. Raises RpcError (INVALID_ARGUMENT) for a match key that is none of the table."""
        table, attachments = self.table(spec), self._attachments[spec.id]
        if not request.match:
            entries: Iterable[Entry] = table.entries()
        else:
            key = read_match(spec, request)
            if request.priority or not spec.needs_priority:
                found = table.find(key, request.priority)
                entries = [] if found is None else [found]
            else:
                entries = [each for each in table.entries() if table.find(key, each.priority) is each]
        action = self._info.actions.get(request.action.action.action_id)
        number, metadata = request.controller_metadata, request.metadata
        selected = []
        for each in entries:
            attached = attachments.get((each.match, each.priority), _NOTHING)
            if (
                request.priority in (0, each.priority)
                and (not request.action.action.action_id or (action is not None and action.name == each.action))
                and number in (0, attached.controller_metadata)
                and metadata in (b"", attached.metadata)
            ):
                selected.append(each)
        return selected

    def _read_default(self, spec: TableSpec, request: Any, response: Any) -> None:
        if request.HasField("time_since_last_hit"):
            raise invalid(
                "Default table entries do not support entry ageing, do not set 'time_since_last_hit' in your ReadRequest"
            )
        message = response.entities.add().table_entry
        message.table_id = spec.id
        message.is_default_action = True
        default = self.table(spec).default_entry
        if default is not None and default.action in self._actions and spec.profile_id is None:
            write_action(self._actions[default.action], default.params, message.action.action)
        elif spec.profile_id is not None and _NO_ACTION in self._actions:
            message.action.action.action_id = self._actions[_NO_ACTION].id
        attachment = self._attachments[spec.id][DEFAULT_KEY]
        message.controller_metadata = attachment.controller_metadata
        message.metadata = attachment.metadata
        if default is not None:
            self._write_resources(spec, default, request, message)

    def _write_entry(self, spec: TableSpec, entry: Entry, request: Any, message: Any) -> None:
        message.table_id = spec.id
        message.is_const = self.table(spec).const_entries
        write_key(spec, entry.match, entry.priority, message)
        if spec.profile_id is not None:
            self._profiles.describe(spec, entry, message.action)
        else:
            write_action(self._actions[entry.action], entry.params, message.action.action)
        self._write_resources(spec, entry, request, message)
        attachment = self._attachments[spec.id].get((entry.match, entry.priority))
        if attachment is not None:
            message.controller_metadata = attachment.controller_metadata
            message.metadata = attachment.metadata
            message.idle_timeout_ns = attachment.idle_timeout_ns
        if request.HasField("time_since_last_hit"):
            last_hit = self.table(spec).last_hit(entry)
            message.time_since_last_hit.elapsed_ns = 0 if last_hit is None else 1000 * max(0, self._pipeline.now() - last_hit)

    def _write_resources(self, spec: TableSpec, entry: Entry, request: Any, message: Any) -> None:
        """Fill in the meter and the counter of an entry, where the request has these fields."""
        meters = self.table(spec).meters
        if request.HasField("meter_config") and meters is not None and (config := meters.config(entry.row)) is not None:
            write_config(config, message.meter_config)
        if request.HasField("counter_data") and spec.direct_counter is not None:
            message.counter_data.packet_count = entry.packets
            message.counter_data.byte_count = entry.bytes


def _modify_default(table: Table, target: Target | None) -> None:
    """Set a default entry, or make it the program's again. Raises TableError if it is refused."""
    if target is None:
        table.reset_default()
    else:
        table.set_default(*target)


def _refusal(error: TableError) -> RpcError:
    """The refusal that says what a table refuses."""
    codes = {TableFullError: code_pb2.RESOURCE_EXHAUSTED, ImmutableError: code_pb2.PERMISSION_DENIED}
    return RpcError(codes.get(type(error), code_pb2.INVALID_ARGUMENT), str(error))


def _attachment(entry: Any, params: tuple[int, ...]) -> Attachment:
    oneshot = entry.action.WhichOneof("type") == "action_profile_action_set"
    group = params[0] if oneshot else None
    return Attachment(entry.controller_metadata, entry.metadata, entry.idle_timeout_ns, group)
