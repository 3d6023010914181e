# SPDX-License-Identifier: MIT
"""gRPC channels to P4Runtime servers, and the one query that needs no arbitration: which program runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
from google.rpc import code_pb2, status_pb2
from netsum_p4runtime import p4runtime_pb2 as p4

from netsum_controller.config.topology import Tls
from netsum_controller.errors import (
    EntryNotFoundError,
    InputError,
    SwitchError,
    UnknownOutcomeError,
    UnreachableError,
    WriteError,
)

MAX_METADATA = 4 << 20
"""Bytes of metadata that a switch may send. A failed Write brings an error for each of its updates there, and of more than gRPC's
default, 8 KiB, nothing would come."""

_CLOSING = 2.0

BATCH = 256
"""Updates in one Write: if all fail, their errors are a hundredth of that."""

MAX_RECONNECT_MS = 1000
"""Longest pause between a channel's attempts to connect, for which gRPC's default grows to two minutes."""


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    def pem(path: str | None) -> bytes | None:
        try:
            return Path(path).read_bytes() if path is not None else None
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None

    return grpc.ssl_channel_credentials(pem(tls.ca), pem(tls.key), pem(tls.cert))


def open_channel(address: str, tls: Tls | None) -> grpc.Channel:
    """A channel to a P4Runtime server, which connects on first use. :class:`InputError` if a PEM file is missing."""
    # Read back with its p4info, the compiled program is larger than gRPC's default limit of 4 MB.
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", MAX_METADATA),
        ("grpc.absolute_max_metadata_size", MAX_METADATA),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_MS),
        # A connection of its own: one shared with another channel could still be pausing after a failed attempt, and report a
        # switch as away although it is back.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if tls is None:
        return grpc.insecure_channel(address, options)
    name = tls.server_name or ("localhost" if address.startswith("unix:") else None)  # a path is no host's name
    if name is not None:
        options.append(("grpc.ssl_target_name_override", name))
    return grpc.secure_channel(address, _credentials(tls), options)


def close_channel(channel: grpc.Channel) -> None:
    """Close a channel and the calls on it. If Ctrl-C has come in the middle of gRPC's making of a call, gRPC waits forever for
    this call to end; so it is left to a daemon thread after 2 s."""
    closing = threading.Thread(target=channel.close, name="p4runtime close", daemon=True)
    closing.start()
    closing.join(_CLOSING)


def read_cookie(stub: Any, device_id: int, timeout: float) -> int | None:
    """Cookie of the program that a switch runs; None if it runs none, or one without a cookie. This is one call, and needs no
    arbitration. Raises :class:`grpc.RpcError`."""
    request = p4.GetForwardingPipelineConfigRequest(
        device_id=device_id, response_type=p4.GetForwardingPipelineConfigRequest.COOKIE_ONLY
    )
    try:
        answer = stub.GetForwardingPipelineConfig(request, timeout=timeout)
    except grpc.RpcError as error:
        # simple_switch_grpc --no-p4: "No forwarding pipeline config set for this device"
        if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
            return None
        raise
    return int(answer.config.cookie.cookie) if answer.config.HasField("cookie") else None


# Which switches have just not answered.
#
# Who works on a switch holds the state lock, and all others wait for it. So a switch that hangs (one that is gone
# refuses the connection at once) is waited for in full only the first time: then it is left alone for a moment, and
# after that has little time to answer, until it does.


PAUSE: Final = 1.0
"""Seconds for which a switch is not queried again."""

BRIEF: Final = 0.5
"""Seconds that it has to answer after that."""


class Silence:
    """Several threads may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def begins(self, switch: str) -> None:
        """The switch has not answered in the time that it had."""
        self._until[switch] = self._clock() + PAUSE

    def ends(self, switch: str) -> None:
        """The switch has answered."""
        self._until.pop(switch, None)

    def patience(self, switch: str, usual: float) -> float:
        """Seconds for which to wait for its answer; 0: do not ask now."""
        until = self._until.get(switch)
        if until is None:
            return usual
        return 0.0 if self._clock() < until else min(BRIEF, usual)


# Turns gRPC errors into sentences: which switch, which call, and which update of a batch failed.


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
    """The error of each failed update of a batch, by its index. A P4Runtime server answers a failed batch with UNKNOWN
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
        return SwitchError(f"switch {switch}: {call}: {text or 'no pipeline'}; `netsum switch push` installs the P4 program")
    problems = list(update_errors(error).values()) if code == grpc.StatusCode.UNKNOWN else []  # of a Read, one for each entity
    reason = "; ".join(problems) or f"{code.name} {text}".rstrip()
    is_not_found = all(each.startswith("NOT_FOUND") for each in problems or [reason])
    return (EntryNotFoundError if is_not_found else SwitchError)(f"switch {switch}: {call}: {reason}")


def taken_over(switch: str, call: str) -> SwitchError:
    """Another netsum has become primary in the middle of a command: commands with one state file wait for each other."""
    return SwitchError(
        f"switch {switch}: {call}: another netsum took over as primary, one with another state file, or `netsum shell`: end it, "
        "or give both the same --state"
    )


def unreachable(switch: str, address: str, why: str) -> UnreachableError:
    return UnreachableError(f"switch {switch}: no P4Runtime server answers at {address}; is the switch running? ({why})")


def no_connection(switch: str, address: str, details: str, *, tls: bool) -> SwitchError:
    """The reason why there is no connection, from gRPC's words; ``tls`` if the topology has certificates for the switch."""
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
    :class:`UnknownOutcomeError` if that is not known, any other if none was carried out."""
    failed = update_errors(error)
    if not failed:
        found = switch_error(switch, address, "Write", error)
        return found if error.code() in _REFUSED_WHOLE else UnknownOutcomeError(str(found))
    first = min(failed)
    more = f" (and {len(failed) - 1} more of {len(labels)} updates)" if len(failed) > 1 else ""
    return WriteError(f"switch {switch}: {labels[first]}: {failed[first]}{more}", failed)
