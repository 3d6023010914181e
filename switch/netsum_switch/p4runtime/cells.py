"""The common base of counters and meters: cells of arrays, read and set by index, and a cell beside each entry of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.match_key import write_key
from netsum_switch.p4runtime.p4info import TableSpec, by_id
from netsum_switch.p4runtime.status import RpcError, check_type, invalid
from netsum_switch.p4runtime.tables import Tables
from netsum_switch.table import Entry

Place = int | Entry | None
"""An index, or the entry beside which the cell is; the default entry, None, has no cell."""


class Cells:
    """The counters or the meters of one pipeline as controllers see them.

    The caller serializes calls, and writes while the pipeline is `changing`.
    """

    kind: ClassVar[str]
    updates: ClassVar[tuple[int, ...]]
    unreadable: ClassVar[tuple[str, str]]
    """The reference's error if there is no cell at an index, and beside an entry."""

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

    def _set(self, array: Any, place: Place, update_type: int, message: Any) -> None:
        """Set a cell; RpcError if it does not exist."""
        raise NotImplementedError

    def write(self, update_type: int, message: Any) -> None:
        """Carry out one update of a cell in an array. Raises RpcError if it is refused and nothing changed."""
        array = self._array(self._spec(message))
        if not message.HasField("index"):
            reason = f"Wildcard write is not supported for indirect {self.kind}s yet"
            raise RpcError(code_pb2.UNIMPLEMENTED, reason)
        index = _index(message)
        self._check_type(update_type)
        self._set(array, index, update_type, message)

    def write_direct(self, update_type: int, message: Any) -> None:
        """Carry out one update of the cell beside an entry. Raises RpcError if it is refused and nothing changed."""
        table_entry = self._table_entry(message)
        table = self._tables.spec(table_entry.table_id)
        entry = self._tables.find(table, table_entry)
        array = self._require_direct(table)
        self._check_type(update_type)
        self._set(array, entry, update_type, message)

    def read(self, request: Any, response: Any) -> None:
        """Append one cell, all cells of an array, or all cells of all arrays. Raises RpcError; what was read before
        stays in `response`."""
        specs = [self._spec(request)] if getattr(request, f"{self.kind}_id") else list(self._specs.values())
        for spec in specs:
            array = self._array(spec)
            if request.HasField("index"):
                if _index(request) >= self._arrays[spec.name].size:
                    raise RpcError(code_pb2.UNKNOWN, self.unreadable[0])
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
        """Append the cell of one entry or of all entries of a table. Raises RpcError; what was read before stays in
        `response`."""
        table_entry = self._table_entry(request)
        if table_entry.table_id == 0:
            reason = f"Reading all direct {self.kind}s for ALL tables is not supported yet"
            raise RpcError(code_pb2.UNIMPLEMENTED, reason)
        table = self._tables.spec(table_entry.table_id)
        array = self._require_direct(table)
        if table_entry.match or table_entry.is_default_action:
            entry = self._tables.find(table, table_entry)
            if entry is None:
                raise RpcError(code_pb2.UNKNOWN, self.unreadable[1])
            message = getattr(response.entities.add(), f"direct_{self.kind}_entry")
            message.table_entry.CopyFrom(table_entry)
            self._get(array, entry, message)
            return
        for entry in self._tables.select(table, table_entry):
            message = getattr(response.entities.add(), f"direct_{self.kind}_entry")
            message.table_entry.table_id = table.id
            write_key(table, entry.match, entry.priority, message.table_entry)
            self._get(array, entry, message)

    def _spec(self, message: Any) -> Any:
        return by_id(self._specs, getattr(message, f"{self.kind}_id"))

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


def _index(message: Any) -> int:
    index: int = message.index.index
    if index < 0:
        raise invalid("A negative number is not a valid index value")
    return index
