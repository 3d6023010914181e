# SPDX-License-Identifier: MIT
"""The common base of counters and meters: cells of arrays, read and set by index, and a cell beside each entry of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.match_key import read_key, write_key
from netsum_switch.p4runtime.p4info import TableSpec, by_id
from netsum_switch.p4runtime.status import RpcError, check_type, invalid
from netsum_switch.p4runtime.tables import Tables
from netsum_switch.table import Entry

Place = int | Entry
"""An index, or the entry beside which the cell is."""


class Cells:
    """The counters or the meters of one pipeline as controllers see them.

    The caller serializes calls, and writes while the pipeline is `changing`.
    """

    kind: ClassVar[str]
    updates: ClassVar[tuple[int, ...]]

    def __init__(self, specs: Mapping[int, Any], arrays: Mapping[str, Any], tables: Tables) -> None:
        """``specs`` by id, ``arrays`` by name."""
        self._specs = specs
        self._arrays = arrays
        self._tables = tables

    def _array(self, spec: Any) -> Any:
        """The parts of an array that `_get` and `_set` need."""
        raise NotImplementedError

    def _direct(self, table: TableSpec) -> Any:
        """The same of the cells beside a table's entries; None if there are none."""
        raise NotImplementedError

    def _get(self, array: Any, place: Place, message: Any) -> None:
        """Fill the message from a cell that exists."""
        raise NotImplementedError

    def _set(self, array: Any, place: Place, message: Any) -> None:
        """Set a cell. Raises RpcError if it is refused."""
        raise NotImplementedError

    def write(self, update_type: int, message: Any) -> None:
        """Carry out one update of a cell in an array. Raises RpcError if it is refused and nothing changed."""
        spec = self._spec(message)
        array = self._array(spec)
        checked_index(message)
        self._check_type(update_type)
        indices = [self._index_of(spec, message)] if message.HasField("index") else range(spec.size)
        for index in indices:
            self._set(array, index, message)

    def write_direct(self, update_type: int, message: Any) -> None:
        """Carry out one update of the cell beside an entry. Raises RpcError if it is refused and nothing changed."""
        table_entry = self._table_entry(message)
        table = self._tables.spec(table_entry.table_id)
        read_key(table, table_entry)  # the reference's order
        array = self._require_direct(table)
        entry = self._tables.find(table, table_entry)
        self._check_type(update_type)
        self._set(array, entry, message)

    def read(self, request: Any, response: Any) -> None:
        """Append one cell, all cells of an array, or all cells of all arrays. Raises RpcError; what was read before
        stays in `response`."""
        specs = [self._spec(request)] if getattr(request, f"{self.kind}_id") else list(self._specs.values())
        for spec in specs:
            array = self._array(spec)
            if request.HasField("index"):
                self._index_of(spec, request)
                message = getattr(response.entities.add(), f"{self.kind}_entry")
                message.CopyFrom(request)
                self._get(array, request.index.index, message)
                continue
            for index in range(spec.size):
                message = getattr(response.entities.add(), f"{self.kind}_entry")
                setattr(message, f"{self.kind}_id", spec.id)
                message.index.index = index
                self._get(array, index, message)

    def read_direct(self, request: Any, response: Any) -> None:
        """Append the cell of one entry, of all entries of a table, or of all of all tables. Raises RpcError; what was read before
        stays in `response`."""
        table_entry = self._table_entry(request)
        if table_entry.table_id == 0:
            for table in self._tables.specs():
                if (array := self._direct(table)) is not None:
                    self._read_beside(table, array, table_entry, response)
            return
        table = self._tables.spec(table_entry.table_id)
        array = self._require_direct(table)
        if table_entry.match or table_entry.is_default_action:
            entry = self._tables.find(table, table_entry)
            message = getattr(response.entities.add(), f"direct_{self.kind}_entry")
            message.table_entry.CopyFrom(table_entry)
            self._get(array, entry, message)
            return
        self._read_beside(table, array, table_entry, response)

    def _read_beside(self, table: TableSpec, array: Any, request: Any, response: Any) -> None:
        """Append the cells of a table's entries."""
        for entry in self._tables.select(table, request):
            message = getattr(response.entities.add(), f"direct_{self.kind}_entry")
            message.table_entry.table_id = table.id
            write_key(table, entry.match, entry.priority, message.table_entry)
            self._get(array, entry, message)

    def _spec(self, message: Any) -> Any:
        return by_id(self._specs, getattr(message, f"{self.kind}_id"))

    def _index_of(self, spec: Any, message: Any) -> int:
        """The index in a message. Raises RpcError: INVALID_ARGUMENT for a negative one, OUT_OF_RANGE if there is no such cell."""
        index, size = checked_index(message), self._arrays[spec.name].size
        if index >= size:
            raise RpcError(code_pb2.OUT_OF_RANGE, f"The {self.kind} has {size} cells, none has index {index}")
        return index

    def _require_direct(self, table: TableSpec) -> Any:
        array = self._direct(table)
        if array is None:
            raise invalid(f"Table has no direct {self.kind}s")
        return array

    def _check_type(self, update_type: int) -> None:
        check_type(update_type)
        if update_type not in self.updates:
            name = p4runtime_pb2.Update.Type.Name(update_type)
            raise invalid(f"{name} update type not supported for {self.kind}s")

    def _table_entry(self, message: Any) -> Any:
        if not message.HasField("table_entry"):
            raise invalid(f"Missing table_entry field in Direct{self.kind.capitalize()}Entry")
        return message.table_entry


def checked_index(message: Any) -> int:
    """The index in a message. Raises RpcError (INVALID_ARGUMENT) for a negative one."""
    index: int = message.index.index
    if index < 0:
        raise invalid("A negative number is not a valid index value")
    return index
