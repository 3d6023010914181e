"""CounterEntry and DirectCounterEntry: read, set and reset."""

from __future__ import annotations

from typing import Any

from google.rpc import code_pb2
from p4.v1 import p4runtime_pb2

from netsum_switch.counter import CounterArray
from netsum_switch.p4runtime.match_key import write_key
from netsum_switch.p4runtime.p4info import CounterSpec, CounterUnit, P4Info, TableSpec
from netsum_switch.p4runtime.status import RpcError, invalid, invalid_id
from netsum_switch.p4runtime.tables import Tables
from netsum_switch.pipeline import Pipeline

_CANNOT_READ = "Error when reading counter from target"


class Counters:
    """The counters of one pipeline as controllers see them: packets and bytes, whichever the declared unit.

    The caller serialises calls, and writes while the pipeline is `changing`.
    """

    def __init__(self, info: P4Info, pipeline: Pipeline, tables: Tables) -> None:
        self._info = info
        self._pipeline = pipeline
        self._tables = tables

    def write(self, update_type: int, entry: Any) -> None:
        """Carry out one update of a CounterEntry: MODIFY sets, DELETE resets.

        Raises:
            RpcError: it is refused and nothing changed.
        """
        spec = self._spec(entry.counter_id)
        if not entry.HasField("index"):
            raise RpcError(code_pb2.UNIMPLEMENTED, "Wildcard write is not supported for indirect counters yet")
        if entry.index.index < 0:
            raise invalid("A negative number is not a valid index value")
        _check_type(update_type)
        array, index = self._array(spec), entry.index.index
        if index >= array.size:
            raise RpcError(code_pb2.UNKNOWN, "Error when writing to counter")
        array.write(index, *_new_value(update_type, spec, entry.data, array.read(index)))

    def write_direct(self, update_type: int, message: Any) -> None:
        """Carry out one update of a DirectCounterEntry.

        Raises:
            RpcError: it is refused and nothing changed.
        """
        table_entry = _table_entry(message)
        table = self._tables.spec(table_entry.table_id)
        entry = self._tables.find(table, table_entry)
        spec = _direct_counter(table)
        _check_type(update_type)
        if entry is None:  # the default entry has no counter
            raise RpcError(code_pb2.UNKNOWN, "Error when writing to direct counter")
        old = entry.packets, entry.bytes
        entry.packets, entry.bytes = _new_value(update_type, spec, message.data, old)

    def read(self, request: Any, response: Any) -> None:
        """Append one cell, all cells of a counter, or all cells of all counters.

        Raises:
            RpcError: what was read before stays in `response`.
        """
        specs = [self._spec(request.counter_id)] if request.counter_id else list(self._info.counters.values())
        for spec in specs:
            array = self._array(spec)
            if not request.HasField("index"):
                for index in range(spec.size):
                    _write_cell(spec.id, index, array.read(index), response)
                continue
            index = request.index.index
            if index < 0:
                raise invalid("A negative number is not a valid index value")
            if index >= array.size:
                raise RpcError(code_pb2.UNKNOWN, _CANNOT_READ)
            _write_cell(request.counter_id, index, array.read(index), response)

    def read_direct(self, request: Any, response: Any) -> None:
        """Append the counter of one entry or of all entries of a table.

        Raises:
            RpcError: what was read before stays in `response`.
        """
        table_entry = _table_entry(request)
        if table_entry.table_id == 0:
            raise RpcError(code_pb2.UNIMPLEMENTED, "Reading all direct counters for ALL tables is not supported yet")
        table = self._tables.spec(table_entry.table_id)
        _direct_counter(table)
        if table_entry.match or table_entry.is_default_action:
            entry = self._tables.find(table, table_entry)
            if entry is None:  # the default entry has no counter
                raise RpcError(code_pb2.UNKNOWN, _CANNOT_READ)
            message = response.entities.add().direct_counter_entry
            message.table_entry.CopyFrom(table_entry)
            message.data.packet_count, message.data.byte_count = entry.packets, entry.bytes
            return
        for entry in self._tables.select(table, table_entry):
            message = response.entities.add().direct_counter_entry
            message.table_entry.table_id = table.id
            write_key(table, entry.match, entry.priority, message.table_entry)
            message.data.packet_count, message.data.byte_count = entry.packets, entry.bytes

    def _spec(self, counter_id: int) -> CounterSpec:
        spec = self._info.counters.get(counter_id)
        if spec is None:
            raise invalid_id()
        return spec

    def _array(self, spec: CounterSpec) -> CounterArray:
        return self._pipeline.counters[spec.name]


def _check_type(update_type: int) -> None:
    if update_type == p4runtime_pb2.Update.UNSPECIFIED:
        raise invalid("Update type is not set")
    if update_type == p4runtime_pb2.Update.INSERT:
        raise invalid("INSERT update type not supported for counters")
    if update_type not in (p4runtime_pb2.Update.MODIFY, p4runtime_pb2.Update.DELETE):
        raise invalid("Invalid update type")


def _new_value(update_type: int, spec: CounterSpec, data: Any, old: tuple[int, int]) -> tuple[int, int]:
    """(packets, bytes) after an update; the unit that the counter is not declared to count keeps its value."""
    if update_type == p4runtime_pb2.Update.DELETE:
        return 0, 0
    packets = old[0] if spec.unit is CounterUnit.BYTES else data.packet_count
    size = old[1] if spec.unit is CounterUnit.PACKETS else data.byte_count
    return packets, size


def _direct_counter(table: TableSpec) -> CounterSpec:
    if table.direct_counter is None:
        raise invalid("Table has no direct counters")
    return table.direct_counter


def _table_entry(message: Any) -> Any:
    if not message.HasField("table_entry"):
        raise invalid("Missing table_entry field in DirectCounterEntry")
    return message.table_entry


def _write_cell(counter_id: int, index: int, value: tuple[int, int], response: Any) -> None:
    message = response.entities.add().counter_entry
    message.counter_id = counter_id
    message.index.index = index
    message.data.packet_count, message.data.byte_count = value
