"""Entities that this switch does not serve, answered as simple_switch_grpc does, which does not serve them either."""

from __future__ import annotations

from typing import NoReturn

from google.rpc import code_pb2

from netsum_switch.p4runtime.status import RpcError

_NAMES = {"register_entry": "Register", "value_set_entry": "ValueSet"}


def refuse(kind: str | None, operation: str) -> NoReturn:
    """Refuse a read or write (``operation``: "reads" or "writes") of an entity of this kind, which is None if the
    entity is empty. Always raises RpcError."""
    if kind in _NAMES:
        raise RpcError(code_pb2.UNIMPLEMENTED, f"{_NAMES[kind]} {operation} are not supported yet")
    if kind == "extern_entry" and operation == "writes":
        raise RpcError(code_pb2.UNIMPLEMENTED)
    raise RpcError(code_pb2.UNKNOWN, "Incorrect entity type")
