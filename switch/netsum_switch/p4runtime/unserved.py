"""Entities that this switch does not serve, answered as simple_switch_grpc does for programs without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.rpc import code_pb2

from netsum_switch.p4runtime.status import RpcError, invalid, invalid_id

# The reference never serves these either.
_NEVER = {"register_entry": "Register", "value_set_entry": "ValueSet"}

# The field that says which object a message is about.
_ID_FIELD = {
    "meter_entry": "meter_id",
    "action_profile_member": "action_profile_id",
    "action_profile_group": "action_profile_id",
}


def refuse(entity: Any, operation: str, unsupported: Mapping[int, str]) -> None:
    """Refuse a read or write of an entity; a wildcard read of objects that no program here has returns nothing.

    Args:
        operation: "reads" or "writes".
        unsupported: Names of the p4info's objects that the switch does not serve, by id.

    Raises:
        RpcError: unless it is such a wildcard read.
    """
    kind = entity.WhichOneof("entity")
    if kind in _NEVER:
        raise RpcError(code_pb2.UNIMPLEMENTED, f"{_NEVER[kind]} {operation} are not supported yet")
    if kind == "extern_entry" and operation == "writes":
        raise RpcError(code_pb2.UNIMPLEMENTED)
    if kind == "direct_meter_entry":
        if not entity.direct_meter_entry.HasField("table_entry"):
            raise invalid("Missing table_entry field in DirectMeterEntry")
        if operation == "reads" and entity.direct_meter_entry.table_entry.table_id == 0:
            raise RpcError(code_pb2.UNIMPLEMENTED, "Reading all direct meters for ALL tables is not supported yet")
        raise invalid("Table has no direct meters")
    if kind not in _ID_FIELD:
        raise RpcError(code_pb2.UNKNOWN, "Incorrect entity type")
    object_id = getattr(getattr(entity, kind), _ID_FIELD[kind])
    if object_id in unsupported:
        raise RpcError(code_pb2.UNIMPLEMENTED, f"This switch does not support {unsupported[object_id]}")
    if object_id or operation == "writes":
        raise invalid_id()
