"""MeterEntry and DirectMeterEntry: read, set and reset."""

from __future__ import annotations

from typing import Any

from google.rpc import code_pb2
from p4.v1 import p4runtime_pb2

from netsum_switch.errors import MeterError
from netsum_switch.meter import MeterArray, MeterConfig
from netsum_switch.p4runtime.match_key import write_key
from netsum_switch.p4runtime.meter_config import read_config, write_config
from netsum_switch.p4runtime.p4info import MeterSpec, P4Info, TableSpec
from netsum_switch.p4runtime.status import RpcError, invalid, invalid_id
from netsum_switch.p4runtime.tables import Tables
from netsum_switch.pipeline import Pipeline

_CANNOT_WRITE_DIRECT = "Error when writing direct meter spec"


class Meters:
    """The meters of one pipeline as controllers see them. The caller serialises calls, and writes while the pipeline is
    `changing`."""

    def __init__(self, info: P4Info, pipeline: Pipeline, tables: Tables) -> None:
        self._info = info
        self._pipeline = pipeline
        self._tables = tables

    def write(self, update_type: int, entry: Any) -> None:
        """Carry out one update of a MeterEntry: MODIFY sets, or resets if it has no configuration.

        Raises:
            RpcError: it is refused and nothing changed.
        """
        spec = self._spec(entry.meter_id)
        if not entry.HasField("index"):
            raise RpcError(code_pb2.UNIMPLEMENTED, "Wildcard write is not supported for indirect meters yet")
        if entry.index.index < 0:
            raise invalid("A negative number is not a valid index value")
        _check_type(update_type)
        try:
            self._pipeline.meters[spec.name].configure(entry.index.index, _config(entry))
        except (IndexError, MeterError) as error:
            raise RpcError(code_pb2.UNKNOWN, "Error when writing meter spec") from error

    def write_direct(self, update_type: int, message: Any) -> None:
        """Carry out one update of a DirectMeterEntry.

        Raises:
            RpcError: it is refused and nothing changed.
        """
        table_entry = _table_entry(message)
        table = self._tables.spec(table_entry.table_id)
        entry = self._tables.find(table, table_entry)
        meters = self._direct(table)
        _check_type(update_type)
        config = _config(message)
        if entry is None:  # the default entry has no meter
            raise RpcError(code_pb2.UNKNOWN, _CANNOT_WRITE_DIRECT)
        try:
            meters.configure(entry.slot, config)
        except MeterError as error:
            raise RpcError(code_pb2.UNKNOWN, _CANNOT_WRITE_DIRECT) from error

    def read(self, request: Any, response: Any) -> None:
        """Append one cell, all cells of a meter, or all cells of all meters.

        Raises:
            RpcError: what was read before stays in `response`.
        """
        specs = [self._spec(request.meter_id)] if request.meter_id else list(self._info.meters.values())
        for spec in specs:
            array = self._pipeline.meters[spec.name]
            if request.HasField("index"):
                if request.index.index < 0:
                    raise invalid("A negative number is not a valid index value")
                if request.index.index >= array.size:
                    raise RpcError(code_pb2.UNKNOWN, "Error when reading meter spec from target")
                message = response.entities.add().meter_entry
                message.CopyFrom(request)
                _write(array.config(request.index.index), message)
                continue
            for index in range(spec.size):
                message = response.entities.add().meter_entry
                message.meter_id, message.index.index = spec.id, index
                _write(array.config(index), message)

    def read_direct(self, request: Any, response: Any) -> None:
        """Append the meter of one entry or of all entries of a table.

        Raises:
            RpcError: what was read before stays in `response`.
        """
        table_entry = _table_entry(request)
        if table_entry.table_id == 0:
            raise RpcError(code_pb2.UNIMPLEMENTED, "Reading all direct meters for ALL tables is not supported yet")
        table = self._tables.spec(table_entry.table_id)
        meters = self._direct(table)
        if table_entry.match or table_entry.is_default_action:
            entry = self._tables.find(table, table_entry)
            if entry is None:  # the default entry has no meter
                raise RpcError(code_pb2.UNKNOWN, "Error when reading meter from target")
            message = response.entities.add().direct_meter_entry
            message.table_entry.CopyFrom(table_entry)
            _write(meters.config(entry.slot), message)
            return
        for entry in self._tables.select(table, table_entry):
            message = response.entities.add().direct_meter_entry
            message.table_entry.table_id = table.id
            write_key(table, entry.match, entry.priority, message.table_entry)
            _write(meters.config(entry.slot), message)

    def _spec(self, meter_id: int) -> MeterSpec:
        spec = self._info.meters.get(meter_id)
        if spec is None:
            raise invalid_id()
        return spec

    def _direct(self, table: TableSpec) -> MeterArray:
        meters = self._tables.table(table).meters
        if not table.has_direct_meter or meters is None:
            raise invalid("Table has no direct meters")
        return meters


def _check_type(update_type: int) -> None:
    if update_type == p4runtime_pb2.Update.UNSPECIFIED:
        raise invalid("Update type is not set")
    for name in ("INSERT", "DELETE"):
        if update_type == p4runtime_pb2.Update.Type.Value(name):
            raise invalid(f"{name} update type not supported for meters")
    if update_type != p4runtime_pb2.Update.MODIFY:
        raise invalid("Invalid update type")


def _config(message: Any) -> MeterConfig | None:
    return read_config(message.config) if message.HasField("config") else None


def _write(config: MeterConfig | None, message: Any) -> None:
    if config is not None:
        write_config(config, message.config)


def _table_entry(message: Any) -> Any:
    if not message.HasField("table_entry"):
        raise invalid("Missing table_entry field in DirectMeterEntry")
    return message.table_entry
