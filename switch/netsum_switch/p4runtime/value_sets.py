# SPDX-License-Identifier: MIT
"""ValueSetEntry: the parser's value sets, which are always empty here, as in simple_switch_grpc."""

from __future__ import annotations

from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.p4info import P4Info
from netsum_switch.p4runtime.status import RpcError, check_type, invalid, invalid_id


class ValueSets:
    """The value sets of one p4info. Immutable, hence thread-safe."""

    def __init__(self, info: P4Info) -> None:
        self._ids = info.value_sets

    def write(self, update_type: int, entry: Any) -> None:
        """Empty a value set. Raises RpcError: INVALID_ARGUMENT for one that there is not, or another type than MODIFY;
        UNIMPLEMENTED for members."""
        if entry.value_set_id not in self._ids:
            raise invalid_id()
        check_type(update_type)
        if update_type != p4runtime_pb2.Update.MODIFY:
            raise invalid(f"{p4runtime_pb2.Update.Type.Name(update_type)} update type not supported for value sets")
        if entry.members:
            raise RpcError(code_pb2.UNIMPLEMENTED, "Value sets have no members here")

    def read(self, request: Any, response: Any) -> None:
        """Append one value set, or all. Raises RpcError (INVALID_ARGUMENT) for one that there is not."""
        if request.value_set_id and request.value_set_id not in self._ids:
            raise invalid_id()
        for number in [request.value_set_id] if request.value_set_id else sorted(self._ids):
            response.entities.add().value_set_entry.value_set_id = number
