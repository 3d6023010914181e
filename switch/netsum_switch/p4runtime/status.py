# SPDX-License-Identifier: MIT
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


def batch_status(results: Sequence[RpcError | None], message: str = "") -> Any:
    """google.rpc.Status of a batch of updates, or of the entities of a ReadRequest: OK, or UNKNOWN with one p4.v1.Error for each,
    in order."""
    status = status_pb2.Status()
    if not any(results):
        return status
    status.code, status.message = code_pb2.UNKNOWN, message
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


def stream_error(refused: RpcError, request: Any) -> Any:
    """The StreamMessageResponse that reports what is wrong with a StreamMessageRequest, which it repeats."""
    response = p4runtime_pb2.StreamMessageResponse()
    error = response.error
    error.canonical_code, error.message, error.space = refused.code, refused.message, ERROR_SPACE
    kind = request.WhichOneof("update")
    if kind == "packet":
        error.packet_out.packet_out.CopyFrom(request.packet)
    elif kind == "digest_ack":
        error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        error.other.other.CopyFrom(request.other)
    return response


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


# Entities of no kind that there is.


def refuse(kind: str | None) -> NoReturn:
    """Refuse an entity of this kind, which is None if the entity is empty. Always raises RpcError."""
    if kind is None:
        raise invalid("The entity is empty: set one of its fields")
    raise invalid(f"The program has no {kind}: externs of other architectures do not run here")


# P4Runtime's bytestrings: unsigned big-endian integers, canonical without leading zero bytes.


def decode(data: bytes, width: int) -> int:
    """Value of a bytestring of any length but 0 for a field of `width` bits. Raises RpcError (INVALID_ARGUMENT) if it is empty,
    or the value needs more bits."""
    if not data:
        raise invalid("Bytestring provided is empty")
    value = int.from_bytes(data, "big")
    if value >> width:
        raise invalid(f"Bytestring provided does not fit within {width} bits")
    return value


def encode(value: int) -> bytes:
    """Canonical bytestring of `value`: as short as possible, at least one byte."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
