"""Turns gRPC errors into sentences: which switch, which call, and which update of a batch failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.rpc import code_pb2, status_pb2
from netsum_p4runtime import p4runtime_pb2 as p4

from netsum_controller.errors import EntryNotFoundError, SwitchError, UnknownOutcomeError, UnreachableError, WriteError

_DETAILS = "grpc-status-details-bin"

_CLOSED = ("Socket closed", "Connection reset", "Broken pipe", "SETTINGS frame", "shutdown")
"""gRPC's words for a server that accepted the connection and dropped it before it spoke HTTP/2."""

_REFUSED_WHOLE = frozenset(
    {
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Codes with which a server refuses a Write before its first update. All others may come from gRPC, in the middle of it."""


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
    kind = EntryNotFoundError if code == grpc.StatusCode.NOT_FOUND else SwitchError
    return kind(f"switch {switch}: {call}: {code.name} {text}".rstrip())


def taken_over(switch: str, call: str) -> SwitchError:
    """Another netsum has become primary in the middle of a command: commands with one state file wait for each other."""
    return SwitchError(
        f"switch {switch}: {call}: another netsum took over as primary, one with another state file, or `netsum shell`: end it, "
        "or give both the same --state"
    )


def unreachable(switch: str, address: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"switch {switch}: no P4Runtime server answers at {address}; is the switch running? ({why})"
    )


def no_connection(switch: str, address: str, details: str, *, tls: bool) -> SwitchError:
    """Why there is no connection, from gRPC's words; ``tls`` if the topology has certificates for the switch."""
    if "handshake failed" in details:
        reason = details.rpartition("OPENSSL_internal:")[2].removesuffix(": OK")
        text = f"TLS with {address} failed: {reason}"
    elif "Hostname Verification" in details:
        text = f"the certificate of {address} has another name; `server_name` in the topology's `tls` says which"
    elif any(words in details for words in _CLOSED):
        wants = "our certificate is not one it knows" if tls else "it may want TLS (`tls` in the topology)"
        text = f"{address} closed the connection: {wants}"
    else:
        return unreachable(switch, address, f"gRPC: {details}")
    return SwitchError(f"switch {switch}: {text}")


def write_error(switch: str, address: str, labels: Sequence[str], error: Any) -> SwitchError:
    """Error of a Write; ``labels`` name its updates. A :class:`WriteError` if some of them failed,
    :class:`UnknownOutcomeError` if nobody can tell, any other if none was carried out."""
    failed = update_errors(error)
    if not failed:
        found = switch_error(switch, address, "Write", error)
        return found if error.code() in _REFUSED_WHOLE else UnknownOutcomeError(str(found))
    first = min(failed)
    more = f" (and {len(failed) - 1} more of {len(labels)} updates)" if len(failed) > 1 else ""
    return WriteError(f"switch {switch}: {labels[first]}: {failed[first]}{more}", failed)
