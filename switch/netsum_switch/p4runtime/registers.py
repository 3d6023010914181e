# SPDX-License-Identifier: MIT
"""RegisterEntry: reads and sets cells of registers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.externs import RegisterArray
from netsum_switch.p4runtime.cells import checked_index
from netsum_switch.p4runtime.p4info import P4Info, RegisterSpec, by_id
from netsum_switch.p4runtime.status import RpcError, check_type, invalid
from netsum_switch.pipeline import Pipeline


class Registers:
    """The registers of one pipeline as controllers see them.

    The caller serializes calls, and writes while the pipeline is `changing`.
    """

    def __init__(self, info: P4Info, pipeline: Pipeline, lock: AbstractContextManager[object]) -> None:
        """``lock`` is the data plane's, held while cells are copied: what is read is of one moment."""
        self._specs = info.registers
        self._arrays = pipeline.registers
        self._lock = lock

    def write(self, update_type: int, entry: Any) -> None:
        """Carry out one update: MODIFY sets a cell or, without an index, all. Raises RpcError if it is refused and nothing
        changed."""
        spec = by_id(self._specs, entry.register_id)
        array = self._arrays[spec.name]
        index = _index(entry, array) if entry.HasField("index") else None
        check_type(update_type)
        if update_type != p4runtime_pb2.Update.MODIFY:
            raise invalid(f"{p4runtime_pb2.Update.Type.Name(update_type)} update type not supported for registers")
        if not entry.HasField("data"):
            raise invalid("'data' field must be set")
        value = spec.type.read(entry.data, array.bits)
        if index is None:
            array.set_all(value)
        else:
            array.set(index, value)

    def read(self, request: Any, response: Any) -> None:
        """Append one cell, all cells of a register, or those of all registers. Raises RpcError."""
        specs = [by_id(self._specs, request.register_id)] if request.register_id else list(self._specs.values())
        if not request.HasField("index"):
            with self._lock:
                copies = [self._arrays[spec.name].tobytes() for spec in specs]
            for spec, copy in zip(specs, copies, strict=True):
                self._write_cells(spec, copy, response)
            return
        indices = [_index(request, self._arrays[spec.name]) for spec in specs]
        with self._lock:
            cells = [self._arrays[spec.name][index] for spec, index in zip(specs, indices, strict=True)]
        for spec, index, cell in zip(specs, indices, cells, strict=True):
            self._write_cell(spec, index, cell, response)

    def _write_cells(self, spec: RegisterSpec, copy: bytes, response: Any) -> None:
        size = self._arrays[spec.name].stride
        for index, at in enumerate(range(0, len(copy), size)):
            self._write_cell(spec, index, int.from_bytes(copy[at : at + size], "little"), response)

    def _write_cell(self, spec: RegisterSpec, index: int, cell: int, response: Any) -> None:
        message = response.entities.add().register_entry
        message.register_id = spec.id
        message.index.index = index
        spec.type.write(cell, self._arrays[spec.name].bits, message.data)


def _index(message: Any, array: RegisterArray) -> int:
    """The index in a message. Raises RpcError: INVALID_ARGUMENT for a negative one, OUT_OF_RANGE for one that the register does
    not have."""
    index = checked_index(message)
    if index >= len(array):
        raise RpcError(code_pb2.OUT_OF_RANGE, f"Register {array.name} has {len(array)} cells, none has index {index}")
    return index
