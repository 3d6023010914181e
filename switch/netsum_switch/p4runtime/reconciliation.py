# SPDX-License-Identifier: MIT
"""RECONCILE_AND_COMMIT: brings the forwarding state of the running program into a new one.

What controllers wrote has to fit: entries, default entries, members and groups of action profiles, meters, multicast groups,
clone sessions and digests. If one does not, the new program is refused and nothing changes, as the specification has it. What
packets wrote is kept where the new program has a place for it: cells of counters and registers of the same name, as far as both
have them. Objects, fields and parameters are the same if they have the same name; their ids may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.control import Control
from netsum_switch.p4runtime.p4info import ActionSpec, TableSpec
from netsum_switch.p4runtime.status import RpcError, invalid
from netsum_switch.pipeline import Pipeline
from netsum_switch.table import Entry

_INSERT, _MODIFY = p4runtime_pb2.Update.INSERT, p4runtime_pb2.Update.MODIFY
_ALL_GROUPS: Mapping[str, Any] = {"packet_replication_engine_entry": {"multicast_group_entry": {}}}
_ALL_SESSIONS: Mapping[str, Any] = {"packet_replication_engine_entry": {"clone_session_entry": {}}}


class Reconciliation:
    """The change from a running program to a new one, under the device's lock."""

    def __init__(self, running: Pipeline, old: Control | None, new: Control) -> None:
        """``old`` is None if the running program was started without a p4info, so that no controller wrote anything. The new
        program's clock goes on where the old one's is."""
        self._running = running
        self._old = old
        self._new = new
        self._entries: list[tuple[TableSpec, Entry, TableSpec, Entry]] = []
        new.pipeline.continue_clock(running)

    def write_entities(self) -> None:
        """Write what controllers wrote to the new program, which does not run. Raises RpcError (INVALID_ARGUMENT) that names what
        does not fit it."""
        if self._old is None:
            return
        for kind in ("action_profile_member", "action_profile_group"):
            for entity in self._read({kind: {}}):
                self._write(_INSERT, self._translated_profile(kind, entity))
        for spec in self._old.info.tables.values():
            self._write_table(spec)
        for everything in (_ALL_GROUPS, _ALL_SESSIONS):
            for entity in self._read(everything):
                self._write(_INSERT, entity)
        for entity in self._read({"digest_entry": {}}):
            entity.digest_entry.digest_id = self._id("digests", entity.digest_entry.digest_id)
            self._write(_INSERT, entity)
        for entity in self._read({"meter_entry": {}}):
            if entity.meter_entry.HasField("config"):
                entity.meter_entry.meter_id = self._id("meters", entity.meter_entry.meter_id)
                self._write(_MODIFY, entity)

    def copy_cells(self) -> None:
        """Copy what packets wrote, between the last packet of the old program and the first of the new one."""
        running, new = self._running, self._new.pipeline
        for name, counter in new.counters.items():
            if name in running.counters:
                counter.copy(running.counters[name])
        for name, register in new.registers.items():
            if name in running.registers:
                register.copy(running.registers[name])
        for name, meter in new.meters.items():
            if name in running.meters and not any(table.meters is meter for table in new.tables.values()):
                for index in range(min(meter.size, running.meters[name].size)):
                    meter.copy(index, running.meters[name], index)
        for name, table in new.tables.items():
            old = running.tables[name].default_entry if name in running.tables else None
            if old is not None and table.default_entry is not None:
                table.default_entry.packets, table.default_entry.bytes = old.packets, old.bytes
        for old_spec, entry, spec, kept in self._entries:
            kept.packets, kept.bytes = entry.packets, entry.bytes
            new.tables[spec.name].copy_hit(kept, running.tables[old_spec.name], entry)
            old_meters, meters = running.tables[old_spec.name].meters, new.tables[spec.name].meters
            if old_meters is not None and meters is not None:
                meters.copy(kept.row, old_meters, entry.row)

    def _read(self, fields: Mapping[str, Any]) -> list[Any]:
        """The entities that a request finds in the old program."""
        assert self._old is not None
        response = p4runtime_pb2.ReadResponse()
        self._old.read(p4runtime_pb2.Entity(**fields), response)
        return list(response.entities)

    def _write(self, update_type: int, entity: Any) -> None:
        try:
            self._new.write(p4runtime_pb2.Update(type=update_type, entity=entity))
        except RpcError as error:
            what = " ".join(str(entity).split())
            raise invalid(
                f"This does not fit the new program ({error.message}): {what[:400]}; delete it first, or use VERIFY_AND_COMMIT"
            ) from error

    def _write_table(self, old: TableSpec) -> None:
        """A table's entries, with meters, and its default entry if a controller changed it."""
        assert self._old is not None
        request = p4runtime_pb2.TableEntry(table_id=old.id)
        if old.has_direct_meter:
            request.meter_config.SetInParent()
        entities = [each for each in self._read({"table_entry": request}) if not each.table_entry.is_const]
        table = self._running.tables.get(old.name)
        request.is_default_action = True
        [default] = self._read({"table_entry": request})
        changed = table is not None and old.profile_id is None and not table.has_initial_default
        attached = default.table_entry.metadata or default.table_entry.controller_metadata
        if changed or attached or default.table_entry.HasField("meter_config"):
            entities.append(default)
        if not entities:
            return
        new = self._new.info.tables.get(self._id("tables", old.id))
        assert new is not None
        for entity in entities:
            entry = self._old.tables.find(old, entity.table_entry)
            self._translate_entry(old, new, entity.table_entry)
            self._write(_MODIFY if entity.table_entry.is_default_action else _INSERT, entity)
            self._entries.append((old, entry, new, self._new.tables.find(new, entity.table_entry)))

    def _id(self, kind: str, number: int) -> int:
        """The new program's id of an object with an id in the old one. Raises RpcError (INVALID_ARGUMENT) if it has none."""
        assert self._old is not None
        name = getattr(self._old.info, kind)[number].name
        for each in getattr(self._new.info, kind).values():
            if each.name == name:
                return int(each.id)
        raise invalid(f"The new program has no {name}, which is in use: delete what uses it, or use VERIFY_AND_COMMIT")

    def _translate_entry(self, old: TableSpec, new: TableSpec, entry: Any) -> None:
        """Give an entry the ids of the new program."""
        fields = {field.name: field.id for field in new.key}
        names = {field.id: field.name for field in old.key}
        entry.table_id = new.id
        for match in entry.match:
            if names[match.field_id] not in fields:
                raise invalid(f"Table {new.name} has entries with the field {names[match.field_id]}, which it has no more")
            match.field_id = fields[names[match.field_id]]
        kind = entry.action.WhichOneof("type")
        if kind == "action":
            self._translate_action(entry.action.action)
        elif kind == "action_profile_action_set":
            for each in entry.action.action_profile_action_set.action_profile_actions:
                self._translate_action(each.action)

    def _translate_action(self, action: Any) -> None:
        assert self._old is not None
        old: ActionSpec = self._old.info.actions[action.action_id]
        new: ActionSpec = self._new.info.actions[self._id("actions", action.action_id)]
        params, names = {param.name: param.id for param in new.params}, {param.id: param.name for param in old.params}
        action.action_id = new.id
        for param in action.params:
            if names[param.param_id] not in params:
                raise invalid(f"Action {new.name} is used with the parameter {names[param.param_id]}, which it has no more")
            param.param_id = params[names[param.param_id]]

    def _translated_profile(self, kind: str, entity: Any) -> Any:
        message = getattr(entity, kind)
        message.action_profile_id = self._id("profiles", message.action_profile_id)
        if kind == "action_profile_member":
            self._translate_action(message.action)
        return entity
