"""The type of an update in a WriteRequest: INSERT, MODIFY or DELETE."""

from __future__ import annotations

from typing import TypeVar

from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.status import invalid

_Writer = TypeVar("_Writer")


def check_type(update_type: int) -> None:
    """Check that it is one of the three. Raises RpcError (INVALID_ARGUMENT) if it is not."""
    if update_type == p4runtime_pb2.Update.UNSPECIFIED:
        raise invalid("Update type is not set")
    if update_type not in p4runtime_pb2.Update.Type.values():
        raise invalid("Invalid update type")


def by_type(update_type: int, insert: _Writer, modify: _Writer, delete: _Writer) -> _Writer:
    """The one of the three that carries out an update of this type. Raises RpcError (INVALID_ARGUMENT) if there is no
    such type."""
    check_type(update_type)
    update = p4runtime_pb2.Update
    return {update.INSERT: insert, update.MODIFY: modify, update.DELETE: delete}[update_type]
