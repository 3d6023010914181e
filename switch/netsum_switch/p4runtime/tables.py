"""TableEntry: inserts, modifies, deletes and reads entries and default entries."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2

from netsum_switch.errors import MeterError, TableError
from netsum_switch.externs import MeterConfig, check_config
from netsum_switch.p4runtime.action_profiles import ActionProfiles, Target, check_action, write_action
from netsum_switch.p4runtime.match_key import DEFAULT_KEY, MatchKey, read_key, write_key
from netsum_switch.p4runtime.p4info import CounterUnit, P4Info, TableSpec, by_id
from netsum_switch.p4runtime.status import RpcError, by_type, invalid
from netsum_switch.pipeline import Pipeline
from netsum_switch.table import Entry, Table

_RATES, _BURSTS = (1 << 64) - 1, (1 << 32) - 1
_SCALE = 1_000_000.0


def read_config(config: Any) -> MeterConfig | None:
    """The configuration in a MeterConfig message; -1 is the highest value, and in all four places no configuration.
    Raises RpcError: INVALID_ARGUMENT for a number below -1, UNIMPLEMENTED for a burst that needs more than 32 bits."""
    fields = (("CIR", config.cir), ("CBurst", config.cburst), ("PIR", config.pir), ("PBurst", config.pburst))
    for name, value in fields:
        if value < -1:
            raise invalid(f"Negative meter {name}")
    for name, value in (("CBurst", config.cburst), ("Pburst", config.pburst)):
        if value > _BURSTS:
            raise RpcError(code_pb2.UNIMPLEMENTED, f"{name} too large")
    if all(value == -1 for _, value in fields):
        return None
    return MeterConfig(config.cir & _RATES, config.cburst & _BURSTS, config.pir & _RATES, config.pburst & _BURSTS)


def write_config(held: MeterConfig, config: Any) -> None:
    """Fill a MeterConfig message."""
    config.cir, config.pir = _rate(held.cir), _rate(held.pir)
    config.cburst, config.pburst = _burst(held.cburst), _burst(held.pburst)


def _rate(value: int) -> int:
    """The rate as the reference reads it back: it keeps millionths, which makes some numbers 1 less."""
    return -1 if value > _RATES >> 1 else int(value / _SCALE * _SCALE)


def _burst(value: int) -> int:
    return -1 if value == _BURSTS else value


@dataclass(slots=True)
class Attachment:
    """The metadata that a controller attaches to an entry; the data plane knows nothing of it."""

    controller_metadata: int = 0
    metadata: bytes = b""
    idle_timeout_ns: int = 0
    group: int | None = None  # that the entry's action set became


class Tables:
    """The tables of one pipeline as controllers see them.

    Only entries that controllers inserted count: const entries of the program can be read but, as in the reference, MODIFY
    and DELETE do not find them. The caller serializes calls, and writes while the pipeline is `changing`.
    """

    def __init__(self, info: P4Info, pipeline: Pipeline, profiles: ActionProfiles) -> None:
        self._info = info
        self._profiles = profiles
        self._pipeline = pipeline
        self._actions = {action.name: action for action in info.actions.values()}
        self._attachments: dict[int, dict[tuple[MatchKey, int], Attachment]] = {
            table_id: {DEFAULT_KEY: Attachment()} for table_id in info.tables
        }

    def spec(self, table_id: int) -> TableSpec:
        """The table with this id. Raises RpcError (INVALID_ARGUMENT) if there is none."""
        return by_id(self._info.tables, table_id)

    def table(self, spec: TableSpec) -> Table:
        """The table; where the program has none, one that is full."""
        found = self._pipeline.tables.get(spec.name)
        return Table(spec.name, "exact", (), (), 0) if found is None else found

    def write(self, update_type: int, entry: Any) -> None:
        """Carry out one update of a TableEntry. Raises RpcError if it is refused and nothing changed."""
        spec = self.spec(entry.table_id)
        if entry.HasField("time_since_last_hit"):
            raise invalid("has_time_since_last_hit must not be set in WriteRequest")
        by_type(update_type, self._insert, self._modify, self._delete)(spec, entry)

    def _insert(self, spec: TableSpec, entry: Any) -> None:
        if entry.is_default_action:
            raise invalid("Cannot use INSERT for default entry")
        if not entry.HasField("action"):
            raise invalid("'action' field must be set")
        key, priority = read_key(spec, entry)
        check_action(self._info, spec, entry)
        with ExitStack() as undo:
            name, params = self._profiles.target(spec, entry.action, undo)
            meter = self._check_resources(spec, entry)
            if (key, priority) in self._attachments[spec.id]:
                raise RpcError(code_pb2.ALREADY_EXISTS, "Match entry exists, use MODIFY if you wish to change action")
            try:
                if priority < 0:
                    raise TableError(f"priority {priority} is negative")
                if meter is not None:
                    check_config(meter)
                inserted = self.table(spec).insert(key, name, params, priority)
            except (TableError, MeterError) as error:  # full, const
                raise RpcError(code_pb2.UNKNOWN, "Error when adding match entry to target") from error
            undo.pop_all()
        self._set_resources(spec, inserted, entry, meter)
        self._attachments[spec.id][key, priority] = _attachment(entry, params)

    def _modify(self, spec: TableSpec, entry: Any) -> None:
        key, priority = read_key(spec, entry)
        check_action(self._info, spec, entry)
        with ExitStack() as undo:
            target = self._profiles.target(spec, entry.action, undo) if entry.HasField("action") else None
            if target is None and not entry.is_default_action:
                raise invalid("'action' field must be set for non-default entries")
            meter = self._check_resources(spec, entry)
            old = self._attachments[spec.id].get((key, priority))
            if old is None:
                raise RpcError(code_pb2.NOT_FOUND, "Cannot find match entry")
            try:
                if meter is not None:
                    check_config(meter)
                self._change(spec, entry, (key, priority), target, meter)
            except (TableError, MeterError) as error:
                raise RpcError(code_pb2.UNKNOWN, "Error when modifying match entry in target") from error
            undo.pop_all()
        if old.group is not None:
            self._profiles.drop_set(spec, old.group)
        self._attachments[spec.id][key, priority] = Attachment() if target is None else _attachment(entry, target[1])

    def _change(
        self,
        spec: TableSpec,
        entry: Any,
        place: tuple[MatchKey, int],
        target: Target | None,
        meter: MeterConfig | None,
    ) -> None:
        table = self.table(spec)
        if target is None:
            table.reset_default()
        elif entry.is_default_action:
            table.set_default(*target)
        else:
            key, priority = place
            self._set_resources(spec, table.modify(key, *target, priority), entry, meter)

    def _delete(self, spec: TableSpec, entry: Any) -> None:
        if entry.is_default_action:
            raise invalid("Cannot use DELETE for default entry")
        key, priority = read_key(spec, entry)
        old = self._attachments[spec.id].get((key, priority))
        if old is None:
            raise RpcError(code_pb2.NOT_FOUND, "Cannot find match entry")
        try:
            self.table(spec).delete(key, priority)
        except TableError as error:
            raise RpcError(code_pb2.UNKNOWN, "Error when deleting match entry in target") from error
        if old.group is not None:
            self._profiles.drop_set(spec, old.group)
        del self._attachments[spec.id][key, priority]

    def _check_resources(self, spec: TableSpec, entry: Any) -> MeterConfig | None:
        """Check what comes with an entry; return the configuration of its meter."""
        meter = None
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
        if entry.idle_timeout_ns > 0:
            raise _no_aging()
        return meter

    def _set_resources(self, spec: TableSpec, target: Entry, entry: Any, meter: MeterConfig | None) -> None:
        """Set what came with an entry; the unit that its counter is not declared to count becomes 0."""
        meters = self.table(spec).meters
        if entry.HasField("meter_config") and meters is not None:
            meters.configure(target.slot, meter)
        if spec.direct_counter is None or not entry.HasField("counter_data"):
            return
        unit, data = spec.direct_counter.unit, entry.counter_data
        target.packets = 0 if unit is CounterUnit.BYTES else data.packet_count
        target.bytes = 0 if unit is CounterUnit.PACKETS else data.byte_count

    def find(self, spec: TableSpec, entry: Any) -> Entry | None:
        """The data plane's entry for a TableEntry that a controller inserted; None for the default entry. Raises
        RpcError (INVALID_ARGUMENT) if there is none."""
        key, priority = read_key(spec, entry)
        if (key, priority) not in self._attachments[spec.id]:
            raise invalid("Cannot map table entry to handle")
        return None if entry.is_default_action else self.table(spec).find(key, priority)

    def read(self, request: Any, response: Any) -> None:
        """Append what a TableEntry in a ReadRequest asks for: one entry, all of a table, or all of all tables. As in
        the reference, entries are filtered by match key only, and default entries are read only if `is_default_action`
        asks for them. Raises RpcError; what was read before stays in `response`."""
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
            if request.HasField("time_since_last_hit"):
                raise _no_aging()
            for entry in self.select(spec, request):
                self._write_entry(spec, entry, request, response.entities.add().table_entry)

    def select(self, spec: TableSpec, request: Any) -> list[Entry]:
        """The entries of one table that a request names: all if it has no match key, else none or one."""
        table = self.table(spec)
        if not request.match:
            return list(table.entries())
        key, priority = read_key(spec, request)
        found = table.find(key, priority)
        return [] if found is None else [found]

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
        attachment = self._attachments[spec.id][DEFAULT_KEY]
        message.controller_metadata = attachment.controller_metadata
        message.metadata = attachment.metadata

    def _write_entry(self, spec: TableSpec, entry: Entry, request: Any, message: Any) -> None:
        message.table_id = spec.id
        write_key(spec, entry.match, entry.priority, message)
        if spec.profile_id is not None:
            self._profiles.describe(spec, entry, message.action)
        else:
            write_action(self._actions[entry.action], entry.params, message.action.action)
        meters = self.table(spec).meters
        if request.HasField("meter_config") and meters is not None and (config := meters.config(entry.slot)) is not None:
            write_config(config, message.meter_config)
        if request.HasField("counter_data") and spec.direct_counter is not None:
            message.counter_data.packet_count = entry.packets
            message.counter_data.byte_count = entry.bytes
        attachment = self._attachments[spec.id].get((entry.match, entry.priority))
        if attachment is not None:
            message.controller_metadata = attachment.controller_metadata
            message.metadata = attachment.metadata
            message.idle_timeout_ns = attachment.idle_timeout_ns


def _no_aging() -> RpcError:
    """The refusal of what a program's `support_timeout` asks for."""
    return RpcError(code_pb2.UNIMPLEMENTED, "This switch does not support idle timeouts")


def _attachment(entry: Any, params: tuple[int, ...]) -> Attachment:
    oneshot = entry.action.WhichOneof("type") == "action_profile_action_set"
    group = params[0] if oneshot else None
    return Attachment(entry.controller_metadata, entry.metadata, entry.idle_timeout_ns, group)
