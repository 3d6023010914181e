"""Errors as P4Runtime reports them: a canonical code and a text, alone or one per update of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, status_pb2
from netsum_p4runtime import p4runtime_pb2

# The name under which the reference reports its errors, kept because controllers may check it.
ERROR_SPACE = "ALL-sswitch-p4org"

# Trailing metadata in which gRPC libraries look for a serialised google.rpc.Status.
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
