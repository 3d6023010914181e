"""Errors as P4Runtime reports them, types of updates, bytestrings, and the entities that are not served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, status_pb2
from netsum_p4runtime import p4runtime_pb2

# Errors as P4Runtime reports them: a canonical code and a text, alone or one per update of a batch.


# The name under which the reference reports its errors, kept because controllers may check it.
ERROR_SPACE = "ALL-sswitch-p4org"

# Trailing metadata in which gRPC libraries look for a serialized google.rpc.Status.
_DETAILS_KEY = "grpc-status-details-bin"

_STATUS_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class RpcError(Exception):
    """A request is refused. `code` is a google.rpc.Code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> RpcError:
    """INVALID_ARGUMENT, the most common refusal."""
    return RpcError(code_pb2.INVALID_ARGUMENT, message)


def invalid_id() -> RpcError:
    """The refusal of an id that the p4info lacks, or that is of another kind of object."""
    return invalid("Invalid P4 id")


def batch_status(results: Sequence[RpcError | None]) -> Any:
    """google.rpc.Status of a batch of updates: OK, or UNKNOWN with one p4.v1.Error per update, in order."""
    status = status_pb2.Status()
    if not any(results):
        return status
    status.code = code_pb2.UNKNOWN
    for result in results:
        error = p4runtime_pb2.Error()
        if result is not None:
            error.canonical_code = result.code
            error.message = result.message
            error.space = ERROR_SPACE
        detail = any_pb2.Any()
        detail.Pack(error)
        status.details.append(detail)
    return status


def single_status(error: RpcError) -> Any:
    """google.rpc.Status of a request that failed as a whole."""
    return status_pb2.Status(code=error.code, message=error.message)


def abort(context: Any, status: Any) -> NoReturn:
    """End the call with `status`, details included. Raises, as `grpc.ServicerContext.abort` does."""
    context.set_trailing_metadata(((_DETAILS_KEY, status.SerializeToString()),))
    context.abort(_STATUS_CODES.get(status.code, grpc.StatusCode.UNKNOWN), status.message)
    raise AssertionError("abort returned")


# The type of an update in a WriteRequest: INSERT, MODIFY or DELETE.


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


# Entities that this switch does not serve, answered as simple_switch_grpc does, which does not serve them either.


_NAMES = {"register_entry": "Register", "value_set_entry": "ValueSet"}


def refuse(kind: str | None, operation: str) -> NoReturn:
    """Refuse a read or write (``operation``: "reads" or "writes") of an entity of this kind, which is None if the
    entity is empty. Always raises RpcError."""
    if kind in _NAMES:
        raise RpcError(code_pb2.UNIMPLEMENTED, f"{_NAMES[kind]} {operation} are not supported yet")
    if kind == "extern_entry" and operation == "writes":
        raise RpcError(code_pb2.UNIMPLEMENTED)
    raise RpcError(code_pb2.UNKNOWN, "Incorrect entity type")


# P4Runtime's bytestrings: unsigned big-endian integers, canonical without leading zero bytes.


def decode(data: bytes, width: int) -> int:
    """Value of a bytestring of any length for a field of `width` bits. An empty one is 0, as in the reference. Raises
    RpcError (INVALID_ARGUMENT) if the value needs more bits."""
    value = int.from_bytes(data, "big")
    if value >> width:
        raise invalid(f"Bytestring provided does not fit within {width} bits")
    return value


def encode(value: int) -> bytes:
    """Canonical bytestring of `value`: as short as possible, at least one byte."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
