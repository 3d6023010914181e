"""Turns gRPC errors into sentences: which switch, which call, and which update of a batch failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.rpc import code_pb2, status_pb2
from netsum_p4runtime import p4runtime_pb2 as p4

from netsum_controller.errors import SwitchError, WriteError

_DETAILS = "grpc-status-details-bin"


def _code_name(code: int) -> str:
    return str(code_pb2.Code.Name(code)) if code in code_pb2.Code.values() else str(code)


def update_errors(error: grpc.RpcError) -> dict[int, str]:
    """What was wrong with each failed update of a batch, by its index. A P4Runtime server answers a failed batch with UNKNOWN
    and a ``google.rpc.Status`` in the trailing metadata with one ``p4.v1.Error`` for each update, including those that
    succeeded."""
    status = status_pb2.Status()
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS:
            status.ParseFromString(value)
    failed = {}
    for index, detail in enumerate(status.details):
        problem = p4.Error()
        if detail.Unpack(problem) and problem.canonical_code != code_pb2.OK:
            failed[index] = f"{_code_name(problem.canonical_code)} {problem.message}".strip()
    return failed


def switch_error(switch: str, address: str, call: str, error: grpc.RpcError) -> SwitchError:
    """One sentence about a failed call."""
    code, text = error.code(), " ".join((error.details() or "").split())
    if code == grpc.StatusCode.UNAVAILABLE:
        return SwitchError(f"switch {switch}: the P4Runtime server at {address} went away during {call} ({text})")
    if code == grpc.StatusCode.PERMISSION_DENIED:
        return SwitchError(f"switch {switch}: {call}: another P4Runtime client took over as primary ({text})")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return SwitchError(f"switch {switch}: {call}: no answer from {address} in time")
    if code == grpc.StatusCode.FAILED_PRECONDITION:
        return SwitchError(
            f"switch {switch}: {call}: {text or 'no pipeline'}; `netsum switch push` installs the P4 program"
        )
    return SwitchError(f"switch {switch}: {call}: {code.name} {text}".rstrip())


def write_error(switch: str, address: str, labels: Sequence[str], error: Any) -> SwitchError:
    """Error of a Write; ``labels`` name its updates. A :class:`WriteError` if some of them failed."""
    failed = update_errors(error)
    if not failed:
        return switch_error(switch, address, "Write", error)
    first = min(failed)
    more = f" (and {len(failed) - 1} more of {len(labels)} updates)" if len(failed) > 1 else ""
    return WriteError(f"switch {switch}: {labels[first]}: {failed[first]}{more}", failed)
